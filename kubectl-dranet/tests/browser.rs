//! The page of `ui` in a headless Chromium. Pictures of what it shows are left in cargo's folder for
//! temporary files, as `ui-*.png`.

#![allow(clippy::panic, clippy::unwrap_used, reason = "a test may panic")]

#[path = "browser/chromium.rs"]
mod chromium;
#[path = "ui/cluster.rs"]
mod cluster;

use chromium::Browser;
use clap::Parser as _;
use cluster::{HOSTILE, HOSTILE_BLOCK};
use kubectl_dranet::args::Args;
use serde_json::{Value, json};
use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use tempfile::TempDir;

/// A file with the page of the cluster; its address.
fn page(folder: &Path) -> String {
    let snapshot = cluster::write(folder).display().to_string();
    let file = folder.join("page.html").display().to_string();
    let words = ["kubectl-dranet", "ui", "--snapshot", &snapshot, "-n", "acme", "-o", &file];
    let output = kubectl_dranet::run(&Args::try_parse_from(words).unwrap());
    output.map_err(|error| process::exit::one_line(&error)).unwrap();
    format!("file://{file}")
}

/// How many devices of the map have the colour of the mark of this state in their middle.
const DEVICES: &str = "(() => {
  const found = {};
  for (const tile of tiles.values()) {
    const strip = tile.strips[0];
    const { width, height: rows } = strip.canvas;
    strip.pixels ||= strip.canvas.getContext('2d').getImageData(0, 0, width, rows).data;
    const m = tile.measures;
    const gpus = gpusOf(tile.node);
    [...tile.node.devices].forEach((letter, index) => {
      const isNic = index >= gpus;
      const height = isNic ? m.nic : m.size;
      const x = tile.x + m.padding + (isNic ? index - gpus : index) * (m.size + m.gap) + m.size / 2;
      const y = tile.y - strip.top + (isNic ? m.nicsFrom : m.title + m.padding) + height / 2;
      const at = (Math.floor(y) * width + Math.floor(x)) * 4;
      const [r, g, b] = strip.pixels.slice(at, at + 3);
      const colour = '#' + [r, g, b].map((it) => it.toString(16).padStart(2, '0')).join('');
      (found[letter] ||= new Set()).add(colour);
    });
  }
  return Object.fromEntries(Object.entries(found).map(([letter, colours]) => [letter, [...colours]]));
})()";

#[test]
fn each_state_is_drawn_in_its_own_colours_light_and_dark() {
    let folder = TempDir::new().unwrap();
    let address = page(folder.path());
    let mut browser = Browser::start();
    for (is_dark, expected) in [
        (
            false,
            json!({
                "h": ["#8a97a6"], "t": ["#7a3fb8"], "a": ["#ffffff"], "s": ["#9a7400"],
                "d": ["#c0262d"], "f": ["#e2f5ea"],
            }),
        ),
        (
            true,
            json!({
                "h": ["#66727f"], "t": ["#b98af0"], "a": ["#0e1116"], "s": ["#e0b32d"],
                "d": ["#ff6b6f"], "f": ["#12301f"],
            }),
        ),
    ] {
        browser.open(&address, is_dark);
        browser.screenshot(if is_dark { "dark" } else { "light" });
        assert_eq!(browser.value(DEVICES), expected, "dark: {is_dark}");
    }
    let numbers = browser.value("document.getElementById('numbers').innerText");
    let numbers = numbers.as_str().unwrap().replace('\n', " ");
    assert!(
        numbers.contains("GPUs free 5 / 8") && numbers.contains("GPUs stranded 1"),
        "{numbers}"
    );
    let printed = browser.send("Page.printToPDF", json!({}));
    assert!(printed["data"].as_str().is_some_and(|data| data.len() > 1000));
    assert_eq!(browser.problems, Vec::<String>::new());
}

#[test]
fn clicks_and_keys_lead_from_the_map_to_a_node_and_its_pods() {
    let folder = TempDir::new().unwrap();
    let mut browser = Browser::start();
    browser.open(&page(folder.path()), false);
    assert!(browser.text().contains("Pod waits in acme"), "{}", browser.text());
    let tile = "(() => { const tile = tiles.get('a'); const box = tile.strips[0].canvas.getBoundingClientRect(); return [box.x + tile.x + 20, box.y + tile.y + 6]; })()";
    let at: [f64; 2] = serde_json::from_value(browser.value(tile)).unwrap();
    browser.click(at);
    browser.until("document.querySelector('#panel h2').textContent === 'a'");
    browser.until("document.querySelector('.picture svg') !== null");
    let marks = "[...document.querySelectorAll('.picture g[class]')].map((it) => it.getAttribute('class')).sort()";
    assert_eq!(
        browser.value(marks),
        json!(["is-a", "is-a", "is-d", "is-h", "is-h", "is-h", "is-s", "is-t"])
    );
    browser.screenshot("node");
    let text = browser.text();
    assert!(text.contains("GPU2 with mlx5_1 (SYS)"), "{text}");
    assert!(text.contains("mlx5_2: port is Down, not Active"), "{text}");
    let link = "[...document.querySelectorAll('#panel .link')].find((it) => it.textContent === 'acme/far')";
    let at = browser.middle(link);
    browser.click(at);
    browser.until("document.querySelector('#panel h2').textContent === 'acme/far'");
    assert!(browser.text().contains("Farther than promised (NODE)"), "{}", browser.text());
    browser.screenshot("pod");
    browser.press("Escape");
    browser.until("document.querySelector('#panel h2').textContent === 'Cluster'");
    browser.press("ArrowRight");
    browser.until("view.selected !== null");
    let first = browser.value("view.selected");
    browser.press("ArrowRight");
    browser.until(&format!("view.selected !== {first}"));
    browser.press("Escape");
    browser.press("/");
    browser.until("document.activeElement.id === 'find'");
    for key in ["f", "a", "r"] {
        browser.press(key);
    }
    assert_eq!(
        browser.value("[...nodes.values()].filter(isDimmed).map((node) => node.name)"),
        json!(["b"])
    );
    let waits = "location.hash = '#pod/' + encodeURIComponent('acme/waits')";
    browser.value(waits);
    browser
        .until("document.querySelector('#panel pre')?.textContent.includes('Pod waits') === true");
    browser.screenshot("waits");
    assert_eq!(browser.problems, Vec::<String>::new());
}

#[test]
fn hostile_names_are_shown_as_text() {
    let folder = TempDir::new().unwrap();
    let mut browser = Browser::start();
    browser.open(&page(folder.path()), false);
    browser.value("location.hash = '#node/a'");
    browser.until("document.querySelector('#panel h2').textContent === 'a'");
    let text = browser.text();
    assert!(text.contains(HOSTILE) && text.contains(HOSTILE_BLOCK), "{text}");
    let pod = format!(
        "location.hash = '#pod/' + encodeURIComponent({})",
        json!(format!("acme/{HOSTILE}"))
    );
    browser.value(&pod);
    browser.until("document.querySelector('#panel h2').textContent.startsWith('acme/near')");
    let elements = "[document.images.length, document.scripts.length, document.querySelectorAll('iframe, object, embed').length]";
    assert_eq!(browser.value(elements), json!([0, 2, 0]));
    assert_eq!(browser.problems, Vec::<String>::new());
}

/// `kubectl-dranet ui` with the cluster; it ends with the value.
#[cfg(feature = "live")]
struct Served(Child);

#[cfg(feature = "live")]
impl Served {
    fn start(folder: &Path) -> (Self, String) {
        let mut child = Command::new(env!("CARGO_BIN_EXE_kubectl-dranet"))
            .args(["ui", "-n", "acme", "--snapshot"])
            .arg(cluster::write(folder))
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        (Self(child), line.trim().to_owned())
    }
}

#[cfg(feature = "live")]
impl Drop for Served {
    fn drop(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

#[cfg(feature = "live")]
#[test]
fn a_served_page_says_where_a_pod_would_go() {
    let folder = TempDir::new().unwrap();
    let (_served, address) = Served::start(folder.path());
    let mut browser = Browser::start();
    browser.open(&address, false);
    browser.value("document.querySelector('#panel textarea').value = 'dranet.io/aligned-nics: \"1\"\\ndranet.io/gpus: \"2\"'");
    let at = browser.middle("document.querySelector('#panel form button')");
    browser.click(at);
    browser.until("view.fits !== null");
    assert_eq!(browser.value("[...view.fits]"), json!(["b"]));
    assert!(browser.text().contains("Admitted: "), "{}", browser.text());
    browser.screenshot("what-if");
    browser.value("location.hash = '#node/b'");
    browser.until("document.querySelector('.picture svg') !== null");
    let problems: Vec<Value> = browser.problems.iter().map(|it| json!(it)).collect();
    assert_eq!(problems, Vec::<Value>::new());
}
