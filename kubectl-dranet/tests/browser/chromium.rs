//! A headless Chromium, driven over a pipe by its debugging protocol.

use serde_json::{Value, json};
use std::fs::{File, OpenOptions};
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// The longest life of a browser, and the longest wait for a condition of a page.
const LIFE: &str = "180";
const PATIENCE: Duration = Duration::from_secs(30);

/// A browser with one page.
pub(crate) struct Browser {
    child: Child,
    to: File,
    from: BufReader<File>,
    last: u64,
    session: Option<String>,
    /// What went wrong in the page: exceptions, and messages to the console.
    pub(crate) problems: Vec<String>,
    _folder: TempDir,
}

impl Browser {
    pub(crate) fn start() -> Self {
        let folder = TempDir::new().unwrap();
        let [to, from] = ["to", "from"].map(|name| folder.path().join(name));
        assert!(Command::new("mkfifo").args([&to, &from]).status().unwrap().success());
        // The browser reads commands from descriptor 3 and answers on descriptor 4.
        let script = "exec timeout \"$1\" chromium --headless --no-sandbox --disable-gpu \
                      --hide-scrollbars --force-device-scale-factor=1 --remote-debugging-pipe \
                      --user-data-dir=\"$2\" 3<\"$3\" 4>\"$4\"";
        let child = Command::new("sh")
            .args(["-c", script, "sh", LIFE])
            .arg(folder.path().join("profile"))
            .args([&to, &from])
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let to = OpenOptions::new().write(true).open(&to).unwrap();
        let from = BufReader::new(File::open(&from).unwrap());
        let (last, session, problems) = (0, None, Vec::new());
        let mut browser = Self { child, to, from, last, session, problems, _folder: folder };
        let target = browser.send("Target.createTarget", json!({ "url": "about:blank" }));
        let attach = json!({ "targetId": target["targetId"], "flatten": true });
        let session = browser.send("Target.attachToTarget", attach);
        browser.session = session["sessionId"].as_str().map(str::to_owned);
        for domain in ["Runtime", "Log", "Page"] {
            browser.send(&format!("{domain}.enable"), json!({}));
        }
        browser
    }

    /// Sends a command and returns its result.
    #[expect(clippy::needless_pass_by_value, reason = "calls write the parameters in place")]
    pub(crate) fn send(&mut self, method: &str, params: Value) -> Value {
        self.last += 1;
        let mut command = json!({ "id": self.last, "method": method, "params": params });
        if let Some(session) = &self.session {
            command["sessionId"] = session.as_str().into();
        }
        write!(self.to, "{command}\0").unwrap();
        self.to.flush().unwrap();
        loop {
            let mut answer = Vec::new();
            self.from.read_until(0, &mut answer).unwrap();
            assert!(answer.pop().is_some(), "the browser has ended");
            let answer: Value = serde_json::from_slice(&answer).unwrap();
            if answer["id"] == self.last {
                assert!(answer["error"].is_null(), "{method}: {answer}");
                return answer["result"].clone();
            }
            let is_problem =
                ["Runtime.exceptionThrown", "Runtime.consoleAPICalled", "Log.entryAdded"];
            if is_problem.iter().any(|method| answer["method"] == *method) {
                self.problems.push(answer["params"].to_string());
            }
        }
    }

    /// Opens an address in a window of this size.
    pub(crate) fn open(&mut self, address: &str, is_dark: bool) {
        let size = json!({ "width": 1280, "height": 800, "deviceScaleFactor": 1, "mobile": false });
        self.send("Emulation.setDeviceMetricsOverride", size);
        let value = if is_dark { "dark" } else { "light" };
        let features = json!([{ "name": "prefers-color-scheme", "value": value }]);
        self.send("Emulation.setEmulatedMedia", json!({ "features": features }));
        self.send("Page.navigate", json!({ "url": address }));
        self.until("document.readyState === 'complete' && document.querySelector('#legend li') !== null && fabrics.some((it) => it.strips.some((strip) => strip.isSeen))");
    }

    /// The value of an expression in the page.
    pub(crate) fn value(&mut self, expression: &str) -> Value {
        let params =
            json!({ "expression": expression, "awaitPromise": true, "returnByValue": true });
        let result = self.send("Runtime.evaluate", params);
        assert!(result["exceptionDetails"].is_null(), "{expression}: {result}");
        result["result"]["value"].clone()
    }

    /// Waits until an expression in the page is true. A page that is not loaded yet has no such names.
    pub(crate) fn until(&mut self, expression: &str) {
        let end = Instant::now() + PATIENCE;
        let tried =
            format!("(() => {{ try {{ return {expression} }} catch {{ return false }} }})()");
        while self.value(&tried) != true {
            assert!(
                Instant::now() < end,
                "{expression} does not become true; the page shows:\n{}",
                self.text()
            );
        }
    }

    /// The text that a person sees in the panel.
    pub(crate) fn text(&mut self) -> String {
        let text = self.value("document.getElementById('panel')?.innerText ?? ''");
        text.as_str().unwrap_or_default().to_owned()
    }

    pub(crate) fn click(&mut self, [x, y]: [f64; 2]) {
        for kind in ["mouseMoved", "mousePressed", "mouseReleased"] {
            let params = json!({ "type": kind, "x": x, "y": y, "button": "left", "clickCount": 1 });
            self.send("Input.dispatchMouseEvent", params);
        }
    }

    /// The middle of what an expression in the page finds.
    pub(crate) fn middle(&mut self, element: &str) -> [f64; 2] {
        let of = format!(
            "(() => {{ const box = ({element}).getBoundingClientRect(); return [box.x + box.width / 2, box.y + box.height / 2]; }})()"
        );
        serde_json::from_value(self.value(&of)).unwrap()
    }

    /// Presses a key.
    pub(crate) fn press(&mut self, key: &str) {
        let text = if key.chars().count() == 1 { key } else { "" };
        for kind in ["keyDown", "keyUp"] {
            let text = if kind == "keyDown" { text } else { "" };
            self.send("Input.dispatchKeyEvent", json!({ "type": kind, "key": key, "text": text }));
        }
    }

    /// Saves what the window shows, for people.
    pub(crate) fn screenshot(&mut self, name: &str) {
        let picture = self.send("Page.captureScreenshot", json!({ "format": "png" }));
        let picture: k8s_openapi::ByteString =
            serde_json::from_value(picture["data"].clone()).unwrap();
        let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("ui-{name}.png"));
        std::fs::write(path, picture.0).unwrap();
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        // `timeout` ends the browser's processes with itself.
        let _ = Command::new("kill").arg(self.child.id().to_string()).status();
        let _ = self.child.wait();
    }
}
