//! Checks for parsers of untrusted input that preparation reads. The fuzz targets run
//! them on random bytes, the test `plugin_corpus` on the stored corpus.

use std::path::{Component, Path};

use cluster_model::network_config::NetworkConfig;
use k8s_openapi::api::resource::v1::ResourceClaim;
use node_driver::kernel::attach::AttachMode;
use node_driver::model::checkpoint::Checkpoint;
use node_driver::model::claim::{ClaimRef, is_safe_uid};
use node_driver::model::plan::Plan;
use node_driver::prepare::cdi::{Environment, SpecSettings, spec};
use node_driver::prepare::claim::AllocatedClaim;
use node_driver::prepare::effects::devices_file;
use node_driver::prepare::metadata;
use node_driver::runtime::nri::ProtocolError;
use node_driver::runtime::nri::session::{Incoming, Session};
use node_driver::runtime::nri::trunk::{PLUGIN, TrunkReader};
use node_files::paths::Paths;

/// The parser accepts or rejects any text; an accepted configuration round-trips.
pub(crate) fn network_config(bytes: &[u8]) {
    let Ok(config) = NetworkConfig::from_json(bytes) else { return };
    let text = serde_json::to_vec(&config).expect("a configuration has a text");
    assert_eq!(NetworkConfig::from_json(&text).expect("its own text"), config);
}

/// The parser accepts or rejects any text; an accepted checkpoint round-trips.
pub(crate) fn checkpoint(bytes: &[u8]) {
    let Ok(text) = str::from_utf8(bytes) else { return };
    let Some(checkpoint) = Checkpoint::from_text(text) else { return };
    let text = String::from_utf8(checkpoint.to_text().expect("a checkpoint has a text"));
    assert_eq!(Checkpoint::from_text(&text.expect("JSON")), Some(checkpoint));
}

/// The reader accepts or rejects any claim, no matter who wrote its status.
pub(crate) fn claim(bytes: &[u8]) {
    let Ok(claim) = serde_json::from_slice::<ResourceClaim>(bytes) else { return };
    let asked = ClaimRef {
        namespace: claim.metadata.namespace.clone().unwrap_or_default(),
        name: claim.metadata.name.clone().unwrap_or_default(),
        uid: claim.metadata.uid.clone().unwrap_or_default(),
    };
    if let Ok(read) = AllocatedClaim::read(&claim, &asked, "dra.net", "node-1") {
        assert!(is_safe_uid(&read.claim.uid));
        assert!(read.devices.iter().all(|device| device.pool == "node-1"));
    }
}

/// Host directories that containers may mount, or wait for in vain.
const OWN: [&str; 3] =
    ["/var/lib/kubelet/plugins/dra.net/claims", "/run/dranet/ready", "/run/dranet/never"];

/// Any plan that can be parsed renders to a spec, and none of its paths leaves this
/// driver's directories, on the host or in the container.
pub(crate) fn cdi(bytes: &[u8]) {
    let Ok(plan) = serde_json::from_slice::<Plan>(bytes) else { return };
    if !is_safe_uid(&plan.claim.uid) {
        return;
    }
    let paths = Paths {
        kubelet: "/var/lib/kubelet".into(),
        driver: "dra.net".into(),
        cdi: "/var/run/cdi".into(),
        run: "/run/dranet".into(),
        netns: "/run/netns".into(),
        sysctl: "/proc/sys/net".into(),
    };
    for attach in [AttachMode::Hook, AttachMode::Nri] {
        let environment = Environment::default();
        let settings =
            SpecSettings { runtime_root: "/".into(), attach, environment, locked_memory: true };
        let spec = serde_json::to_value(spec(&plan, &paths, &settings)).expect("a text");
        let edits = spec["devices"].as_array().into_iter().flatten();
        let edits = edits.map(|device| &device["containerEdits"]).chain([&spec["containerEdits"]]);
        for mount in edits.filter_map(|edits| edits["mounts"].as_array()).flatten() {
            for (path, below) in [("hostPath", &OWN[..]), ("containerPath", &["/"])] {
                let path = Path::new(mount[path].as_str().expect("a path"));
                let leads_up = path.components().any(|part| part == Component::ParentDir);
                let is_below = below.iter().any(|folder| path.starts_with(folder));
                assert!(is_below && !leads_up, "{}", path.display());
            }
        }
    }
    for request in metadata::requests(&plan) {
        drop(metadata::stream(&plan, "dra.net", request));
    }
    drop(serde_json::to_vec(&devices_file(&plan)).expect("a file has a text"));
}

/// Any bytes from a container runtime are parsed as calls or rejected, however they are
/// split into reads, and every call has an answer that can be parsed.
pub(crate) fn nri_frames(bytes: &[u8]) {
    let whole = Session::default().receive(bytes);
    let mut session = Session::default();
    let mut cut = Vec::new();
    let outcome: Result<(), ProtocolError> = bytes.chunks(7).try_for_each(|chunk| {
        cut.extend(session.receive(chunk)?);
        Ok(())
    });
    match whole {
        Ok(whole) => assert_eq!((whole, Ok(())), (cut.clone(), outcome)),
        Err(error) => assert_eq!(outcome, Err(error)),
    }
    for incoming in cut {
        let Incoming::Call(call) = incoming else { continue };
        let answer = Session::answer(&call, Ok(call.payload.clone()));
        let mut trunk = TrunkReader::default();
        trunk.push(&answer);
        while let Some((connection, _)) = trunk.next_frame().expect("our own frames") {
            assert_eq!(connection, PLUGIN);
        }
    }
}
