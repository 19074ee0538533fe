//! The page of `ui`: its data, what it lets browsers run, and who may read it.

#![allow(clippy::panic, clippy::unwrap_used, reason = "a test may panic")]

#[path = "ui/cluster.rs"]
mod cluster;
#[cfg(feature = "live")]
#[path = "ui/served.rs"]
mod served;

use clap::Parser as _;
use cluster::{HOSTILE, HOSTILE_BLOCK};
use kubectl_dranet::args::Args;
use serde_json::Value;
use std::fs;
use tempfile::TempDir;

/// The page of the cluster, as a file.
fn page() -> String {
    let folder = TempDir::new().unwrap();
    let (snapshot, file) = (cluster::write(folder.path()), folder.path().join("page.html"));
    let (snapshot, file) = (snapshot.display().to_string(), file.display().to_string());
    let words = ["kubectl-dranet", "ui", "--snapshot", &snapshot, "-n", "acme", "-o", &file];
    let output = kubectl_dranet::run(&Args::try_parse_from(words).unwrap());
    output.map_err(|error| process::exit::one_line(&error)).unwrap();
    fs::read_to_string(&file).unwrap()
}

/// The data in a page.
fn data(page: &str) -> Value {
    let (_, rest) = page.split_once("<script id=\"data\" type=\"application/json\">").unwrap();
    serde_json::from_str(rest.split_once("</script>").unwrap().0).unwrap()
}

#[test]
fn every_device_has_the_state_that_other_commands_show() {
    let mut data = data(&page());
    data["time"] = "TIME".into();
    // GPU0 and GPU2 are held, the latter with a far NIC; GPU1 is tainted; GPU3 has lost its NICs.
    assert_eq!(data["nodes"][0]["devices"], "htashadh");
    assert_eq!(data["nodes"][1]["devices"], "ffffffff");
    let pictures = data["pictures"].take();
    assert!(pictures["0"].as_str().unwrap().starts_with("<svg"));
    insta::assert_json_snapshot!(data);
}

#[test]
fn names_are_data_and_never_markup() {
    let page = page();
    let scripts = page.matches("<script").count();
    assert_eq!(scripts, 2, "the data and the script of the page");
    for name in [HOSTILE, HOSTILE_BLOCK] {
        assert!(!page.contains(name), "{name}");
    }
    let data = data(&page);
    assert_eq!(data["nodes"][0]["block"], HOSTILE_BLOCK);
    let pods = data["nodes"][0]["pods"].as_array().unwrap();
    assert!(pods.iter().any(|pod| pod["name"] == format!("acme/{HOSTILE}")), "{pods:?}");
}

#[test]
fn the_page_loads_nothing_and_runs_only_its_own_script() {
    let page = page();
    let (_, rest) = page.split_once("http-equiv=\"Content-Security-Policy\" content=\"").unwrap();
    let policy = rest.split_once('"').unwrap().0;
    assert!(policy.starts_with("default-src 'none'; style-src 'sha256-"), "{policy}");
    assert!(!policy.contains("unsafe") && !policy.contains("http"), "{policy}");
    for loading in
        [" src=", "@import", "url(", "import(", "innerHTML", "outerHTML", "eval(", "document.write"]
    {
        let own = page.split("<script id=\"data\"").next().unwrap().to_owned()
            + page.split("</script>").nth(1).unwrap();
        assert!(!own.contains(loading), "{loading}");
    }
}
