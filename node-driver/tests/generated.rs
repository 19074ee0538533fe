//! Checks that the committed gRPC code matches the vendored protocol files.
//!
//! protox compiles them, so `protoc` is not needed, neither here nor to build the driver.
#![expect(clippy::unwrap_used, reason = "a test's setup may panic")]

use std::fs;
use std::path::Path;

const KUBELET: [&str; 5] = [
    "deviceplugin-v1beta1/api.proto",
    "dra-v1/api.proto",
    "dra-health-v1/api.proto",
    "dra-health-v1alpha1/api.proto",
    "pluginregistration-v1/api.proto",
];

/// Its package has the name of another one.
const POD_RESOURCES: [&str; 1] = ["podresources-v1/api.proto"];

const RUNTIME: [&str; 2] = ["nri-v1alpha1/api.proto", "ttrpc/request.proto"];

#[test]
fn generated_code_is_current() {
    is_current(&KUBELET, "src/kubelet/generated");
    is_current(&POD_RESOURCES, "src/facts/pod_resources/generated");
    is_current(&RUNTIME, "src/runtime/nri/generated");
}

fn is_current(sources: &[&str], folder: &str) {
    let crate_dir = Path::new(env!("CARGO_MANIFEST_DIR"));
    let committed = crate_dir.join(folder);
    let made = tempfile::tempdir().unwrap();
    generate(sources, &crate_dir.join("proto"), made.path());

    let mut names: Vec<_> =
        fs::read_dir(made.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    names.sort();
    assert_eq!(names.len(), sources.len(), "one file for each package: {names:?}");
    for name in names {
        let new = fs::read_to_string(made.path().join(&name)).unwrap();
        let path = committed.join(&name);
        if std::env::var_os("UPDATE_GENERATED").is_some() {
            fs::write(&path, &new).unwrap();
        }
        let old = fs::read_to_string(&path).unwrap_or_default();
        assert!(old == new, "{} is stale; run with UPDATE_GENERATED=1", path.display());
    }
}

fn generate(sources: &[&str], protos: &Path, out: &Path) {
    for source in sources {
        let path = protos.join(source);
        let set = protox::compile([&path], [path.parent().unwrap()]).unwrap();
        tonic_prost_build::configure()
            .build_client(true)
            .build_server(true)
            .btree_map(".")
            .out_dir(out)
            .compile_fds(set)
            .unwrap();
    }
}
