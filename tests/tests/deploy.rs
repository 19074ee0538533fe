//! The generated files in `deploy` are current.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::{
    collections::BTreeSet, fmt::Write as _, fs, os::unix::fs::PermissionsExt, path::Path,
    process::Command,
};

use clap::Parser;
use cluster_model::names::object;
use cluster_model::nic_pool::{NicAddress, NicPool};
use node_driver::{args::Args, kernel::attach::SYSCTL, kubelet::NEEDED};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use tests::{
    binaries, binaries::in_tests, generated::assert_current, installation::manifests, manifest,
};

#[test]
fn the_resource_definitions_are_current() {
    let expected = serde_saphyr::to_string(&topology_graph::crd()).unwrap();
    assert_current("deploy/chart/files/crd-nodetopologies.yaml", &expected).unwrap();
    let expected = serde_saphyr::to_string(&NicPool::crd()).unwrap();
    assert_current("deploy/chart/files/crd-nicpools.yaml", &expected).unwrap();
    let expected = serde_saphyr::to_string(&NicAddress::crd()).unwrap();
    assert_current("deploy/chart/files/crd-nicaddresses.yaml", &expected).unwrap();
}

#[test]
fn every_manifest_is_installed() {
    let folder = in_tests("../deploy/manifests");
    let files = folder.read_dir().unwrap().map(|entry| entry.unwrap().path());
    let mut files: Vec<_> = files.filter(|path| !path.ends_with("kustomization.yaml")).collect();
    // kubectl refuses a file that is named twice.
    let mut installed = manifests().unwrap();
    files.sort();
    installed.sort();
    assert_eq!(installed, files);
}

/// The names in `deploy` are those that the programs use.
#[test]
fn the_programs_own_objects_are_there() {
    let mut there = BTreeSet::new();
    for file in manifests().unwrap() {
        for found in manifest::read(&file).unwrap() {
            let kind = found.types.unwrap().kind;
            there.insert((kind, found.metadata.name.unwrap()));
        }
    }
    for (kind, name) in [
        ("Lease", object::LEASE),
        ("Lease", object::FABRIC_LEASE),
        ("Deployment", "fabric-controller"),
        ("Secret", object::CERTIFICATES),
        ("ConfigMap", object::MACHINES),
        ("MutatingWebhookConfiguration", object::WEBHOOK),
        ("ValidatingWebhookConfiguration", object::LINT_WEBHOOK),
        ("Service", "admission"),
        ("Deployment", "admission"),
        ("PodDisruptionBudget", "admission"),
    ] {
        assert!(there.contains(&(kind.to_owned(), name.to_owned())), "no {kind} `{name}`");
    }
}

#[test]
fn every_file_holds_objects() {
    for folder in ["../deploy/manifests", "../deploy/examples/aks-gb300"] {
        for entry in in_tests(folder).read_dir().unwrap() {
            let path = entry.unwrap().path();
            let objects = manifest::read(&path).unwrap();
            assert!(!objects.is_empty(), "`{}` is empty", path.display());
        }
    }
}

/// The driver's pod has the capabilities that the driver needs, and no others, and its flags are
/// valid.
#[test]
fn the_drivers_pod_has_exactly_what_the_driver_needs() {
    is_what_the_driver_asks_for(&drivers_set("manifests"));
}

/// As an NRI plugin, the driver's pod has the runtime's socket in addition, and nothing else.
#[test]
fn as_an_nri_plugin_the_pod_adds_only_the_runtimes_socket() {
    let mut set = drivers_set("components/nri");
    let args = is_what_the_driver_asks_for(&set);
    let socket = args.plugin.nri().expect("it is a plugin");
    let mounts = &set["spec"]["template"]["spec"]["containers"][0]["volumeMounts"];
    let mount = mounts.as_array().unwrap().last().unwrap()["mountPath"].as_str().unwrap();
    assert_eq!(socket.parent().unwrap(), Path::new(mount));
    // Without it, the pod equals the driver's pod.
    let pod = &mut set["spec"]["template"]["spec"];
    for list in ["/volumes", "/containers/0/volumeMounts"] {
        let list = pod.pointer_mut(list).unwrap().as_array_mut().unwrap();
        assert_eq!(list.pop().unwrap()["name"], "nri");
    }
    for arg in pod["containers"][0]["args"].as_array_mut().unwrap() {
        if *arg == "--attach=nri" {
            *arg = "--attach=hook".into();
        }
    }
    assert_eq!(set, drivers_set("manifests"));
}

fn drivers_set(folder: &str) -> Value {
    let file = in_tests(&format!("../deploy/{folder}/node-driver.yaml"));
    let text = fs::read_to_string(file).unwrap();
    serde_saphyr::from_str(&text).unwrap()
}

/// Checks the pod; returns its flags.
fn is_what_the_driver_asks_for(set: &Value) -> Args {
    let pod = &set["spec"]["template"]["spec"];
    let container = &pod["containers"][0];
    let words = |value: &Value| -> BTreeSet<String> {
        value.as_array().unwrap().iter().map(|word| word.as_str().unwrap().to_owned()).collect()
    };
    let capabilities = &container["securityContext"]["capabilities"];
    let needed = NEEDED.iter().map(|needed| needed.name.to_owned()).collect();
    assert_eq!(words(&capabilities["add"]), needed);
    assert_eq!(words(&capabilities["drop"]), BTreeSet::from(["ALL".to_owned()]));

    let flags = ["node-driver".to_owned(), "--node-name=node".to_owned()];
    let arguments = flags.into_iter().chain(words(&container["args"]));
    let args = Args::try_parse_from(arguments).unwrap();
    let kubelet = args.plugin.kubelet_dir.clone().unwrap();
    let mounts: BTreeSet<_> = container["volumeMounts"]
        .as_array()
        .unwrap()
        .iter()
        .map(|mount| mount["mountPath"].as_str().unwrap().to_owned())
        .collect();
    // The container runtime finds the same files under the same names. Below its own `/proc`
    // a container has no mounts.
    let sysctl = args.plugin.sysctl_dir.to_str().unwrap();
    for volume in pod["volumes"].as_array().unwrap() {
        let path = volume["hostPath"]["path"].as_str().unwrap();
        let inside = if path == SYSCTL { sysctl } else { path };
        assert!(mounts.contains(inside), "`{path}` is mounted elsewhere, or not");
    }
    assert!(!sysctl.starts_with("/proc"), "`{sysctl}` cannot be written in a container");
    for needed in [
        kubelet.join("plugins/dra.net"),
        kubelet.join("plugins_registry"),
        args.plugin.cdi_dir.clone(),
        args.plugin.run_dir.clone(),
        args.plugin.netns_dir.clone(),
        args.plugin.sysctl_dir.clone(),
    ] {
        assert!(mounts.contains(needed.to_str().unwrap()), "`{}`", needed.display());
    }
    args
}

/// The first violated rule of krew for manifests (`internal/index/validation` of krew, with the
/// fields of `pkg/index/types.go`).
fn refused_by_krew(manifest: &Value) -> Option<String> {
    let only = |value: &Value, allowed: &[&str]| {
        let keys = value.as_object().into_iter().flat_map(|fields| fields.keys());
        keys.map(String::as_str).find(|key| !allowed.contains(key)).map(str::to_owned)
    };
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let spec = &manifest["spec"];
    let unknown = only(manifest, &["apiVersion", "kind", "metadata", "spec"]).or_else(|| {
        only(
            spec,
            &["version", "homepage", "shortDescription", "description", "caveats", "platforms"],
        )
    });
    if let Some(field) = unknown {
        return Some(format!("unknown field `{field}`"));
    }
    let name = text(&manifest["metadata"]["name"]);
    let is_safe = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    let short = text(&spec["shortDescription"]);
    let platforms = spec["platforms"].as_array().cloned().unwrap_or_default();
    let rules = [
        (manifest["apiVersion"] == "krew.googlecontainertools.github.com/v1alpha2", "apiVersion"),
        (manifest["kind"] == "Plugin", "kind"),
        (!name.is_empty() && name.chars().all(is_safe), "metadata.name"),
        (!short.is_empty() && !short.contains(['\r', '\n']), "spec.shortDescription"),
        (text(&spec["version"]).strip_prefix('v').is_some_and(is_version), "spec.version"),
        (!platforms.is_empty(), "spec.platforms"),
    ];
    let of_platform = |platform: &Value| {
        let sum = text(&platform["sha256"]);
        let is_hex = |c: char| c.is_ascii_digit() || ('a'..='f').contains(&c);
        let files = platform["files"].as_array();
        let has_both =
            |file: &Value| !text(&file["from"]).is_empty() && !text(&file["to"]).is_empty();
        let labels = platform["selector"]["matchLabels"].as_object();
        let is_selected = labels.is_some_and(|labels| !labels.is_empty())
            && only(&platform["selector"]["matchLabels"], &["os", "arch"]).is_none();
        let rules = [
            (only(platform, &["uri", "sha256", "bin", "files", "selector"]).is_none(), "platform"),
            (!text(&platform["uri"]).is_empty(), "uri"),
            (sum.len() == 64 && sum.chars().all(is_hex), "sha256"),
            (!text(&platform["bin"]).is_empty(), "bin"),
            (files.is_none_or(|all| !all.is_empty() && all.iter().all(has_both)), "files"),
            (is_selected, "selector"),
        ];
        rules.into_iter().find(|(holds, _)| !holds).map(|(_, field)| field.to_owned())
    };
    let broken = rules.into_iter().find(|(holds, _)| !holds).map(|(_, field)| field.to_owned());
    broken.or_else(|| platforms.iter().find_map(of_platform))
}

/// Returns true for numbers and dots, such as `1.2.3`, with an optional suffix.
fn is_version(text: &str) -> bool {
    let core = text.split(['-', '+']).next().unwrap_or_default();
    let numbers: Vec<_> = core.split('.').map(str::parse::<u64>).collect();
    numbers.len() == 3 && numbers.iter().all(Result::is_ok)
}

/// The archive and the manifest for krew fit together, and krew accepts the manifest.
#[test]
fn krew_gets_an_archive_and_a_manifest_that_fit_together() {
    let folder = tempfile::tempdir().unwrap();
    // Replaces the program, which is large, with a script that runs it.
    let (into, stand_in) = (folder.path().join("out"), folder.path().join("program"));
    let program = binaries::ours("kubectl-dranet").unwrap();
    fs::write(&stand_in, format!("#!/bin/sh\nexec {} \"$@\"\n", program.display())).unwrap();
    fs::set_permissions(&stand_in, fs::Permissions::from_mode(0o755)).unwrap();
    let output = Command::new(in_tests("../deploy/krew"))
        .args(["--version", "v0.1.0", "--url", "https://example.com/v0.1.0"])
        .arg("--into")
        .arg(&into)
        .arg("--program")
        .arg(format!("x86_64-unknown-linux-gnu={}", stand_in.display()))
        .arg("--program")
        .arg(format!("aarch64-apple-darwin={}", stand_in.display()))
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let manifest: Value =
        serde_saphyr::from_str(&fs::read_to_string(into.join("dranet.yaml")).unwrap()).unwrap();
    assert_eq!(refused_by_krew(&manifest), None);
    for (pointer, value, field) in [
        ("/kind", json!("Plugins"), "kind"),
        ("/spec/version", json!("0.1.0"), "spec.version"),
        ("/spec/platforms/0/sha256", json!("AB"), "sha256"),
        ("/spec/platforms/0/files/0/to", json!(""), "files"),
        ("/spec/platforms/0/selector/matchLabels", json!({ "libc": "gnu" }), "selector"),
    ] {
        let mut broken = manifest.clone();
        *broken.pointer_mut(pointer).unwrap() = value;
        assert_eq!(refused_by_krew(&broken).as_deref(), Some(field), "{pointer}");
    }
    assert_eq!(manifest["metadata"]["name"], "dranet");
    let short = manifest["spec"]["shortDescription"].as_str().unwrap();
    assert!(short.len() <= 50 && !short.ends_with('.'), "{short}");
    let mac = &manifest["spec"]["platforms"][1];
    assert_eq!(mac["selector"]["matchLabels"], json!({ "os": "darwin", "arch": "arm64" }));
    assert!(into.join("kubectl-dranet_darwin_arm64.tar.gz").exists(), "{mac}");
    let platform = &manifest["spec"]["platforms"][0];
    assert_eq!(platform["selector"]["matchLabels"]["arch"], "amd64");
    let archive = into.join("kubectl-dranet_linux_amd64.tar.gz");
    assert_eq!(platform["uri"], "https://example.com/v0.1.0/kubectl-dranet_linux_amd64.tar.gz");
    let bytes = fs::read(&archive).unwrap();
    let sum = Sha256::digest(&bytes).iter().fold(String::new(), |mut text, byte| {
        write!(text, "{byte:02x}").unwrap();
        text
    });
    assert_eq!(platform["sha256"], sum);
    let mut unpacked = tar::Archive::new(flate2::read::GzDecoder::new(bytes.as_slice()));
    let paths: BTreeSet<String> = unpacked
        .entries()
        .unwrap()
        .map(|entry| entry.unwrap().path().unwrap().display().to_string())
        .map(|path| path.trim_start_matches("./").to_owned())
        .collect();
    for file in platform["files"].as_array().unwrap() {
        let from = file["from"].as_str().unwrap();
        let is_there = match from.strip_suffix('*') {
            Some(folder) => paths.iter().any(|path| path.starts_with(folder) && path != folder),
            None => paths.contains(from),
        };
        assert!(is_there, "`{from}` is not among {paths:?}");
    }
    assert!(paths.contains(platform["bin"].as_str().unwrap()));
    assert!(paths.contains("man/kubectl-dranet-plan.1"), "{paths:?}");
}
