//! Checks for parsers of untrusted input that describes a machine. The fuzz targets run
//! them on random bytes, the test `publication_corpus` on the stored corpus.

use std::collections::BTreeSet;
use std::num::NonZeroU32;
use std::sync::LazyLock;
use std::time::Duration;

use k8s_openapi::api::resource::v1::Device;
use node_driver::facts::cloud::http::Patience;
use node_driver::facts::cloud::{CloudProvider, read};
use node_driver::facts::rdma::{complete, devices_in};
use node_driver::kernel::network::{facts_in, received};
use publication::cloud::CloudMetadata;
use publication::decision::{decide, decide_with};
use publication::judge::Rules;
use publication::machine::Facts;
use publication::network::NetworkFacts;
use publication::sharing::{Sharing, SharingArgs};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::runtime::{Builder, Runtime};
use topology_graph::fixture::{machine, plant};
use topology_graph::{HostRoot, Snapshot};

/// The parser reads interfaces and routes from any bytes, or ignores the bytes. What the socket makes of
/// them is stable.
pub(crate) fn netlink(bytes: &[u8]) {
    let once = received(bytes);
    assert!(once.len() <= bytes.len(), "nothing is added");
    assert_eq!(received(&once), once, "nothing is left to do");
    let network = facts_in(bytes);
    drop(network.uplinks());
    // Without an interface, what is published is always the same.
    if !network.interfaces.is_empty() {
        publish(network, CloudMetadata::default());
    }
}

/// The parser reads RDMA devices from any bytes, or ignores the bytes. The RDMA devices
/// found in sysfs remain, each with its PCI function.
pub(crate) fn rdma_netlink(bytes: &[u8]) {
    let devices = devices_in(bytes);
    assert!(devices.is_sorted_by(|a, b| a.name < b.name), "each device once");
    let mut snapshot = MACHINE.clone();
    complete(&mut snapshot, &devices);
    for before in &MACHINE.rdma {
        let after = snapshot.rdma.iter().find(|after| after.name == before.name);
        assert!(after.is_some_and(|after| after.pci == before.pci), "{}", before.name);
    }
    let again = snapshot.clone();
    complete(&mut snapshot, &devices);
    assert_eq!(snapshot, again, "completing twice changes nothing");
    let facts = Facts {
        snapshot,
        network: NetworkFacts::default(),
        cloud: CloudMetadata::default(),
        rails: None,
    };
    decide(&facts).devices.iter().for_each(is_taken);
}

/// Any interfaces and metadata yield devices that the API server accepts.
pub(crate) fn facts(bytes: &[u8]) {
    let Ok((network, cloud)) = serde_json::from_slice(bytes) else { return };
    publish(network, cloud);
}

/// Any answer of a metadata service is metadata or an error. The first byte selects the
/// cloud; the rest is the answer.
pub(crate) fn metadata(bytes: &[u8]) {
    let Some((cloud, answer)) = bytes.split_first() else { return };
    let cloud = CLOUDS[usize::from(*cloud) % CLOUDS.len()];
    if let Some(metadata) = RUNTIME.block_on(ask(cloud, answer)) {
        assert!(metadata.iter().all(|(_, text)| (1..=64).contains(&text.as_str().len())));
    }
}

const CLOUDS: [CloudProvider; 5] = [
    CloudProvider::Alibaba,
    CloudProvider::Aws,
    CloudProvider::Azure,
    CloudProvider::Gce,
    CloudProvider::Oci,
];

/// One attempt with a short timeout.
const PATIENCE: Patience =
    Patience { request: Duration::from_millis(100), attempts: 1, pause: Duration::ZERO };

static RUNTIME: LazyLock<Runtime> = LazyLock::new(|| {
    Builder::new_current_thread().enable_all().build().expect("a runtime can be made")
});

/// Queries a service that gives every request the same answer.
async fn ask(cloud: CloudProvider, answer: &[u8]) -> Option<CloudMetadata> {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port is free");
    let url = format!("http://{}", listener.local_addr().expect("it is bound"));
    let serve = async {
        while let Ok((mut stream, _)) = listener.accept().await {
            // The client may have closed the connection already.
            let _ = stream.read(&mut [0; 4096]).await;
            let _ = stream.write_all(answer).await;
        }
    };
    tokio::select! {
        answer = read(cloud, &url, PATIENCE) => answer.ok(),
        () = serve => None,
    }
}

/// A machine with NICs of all kinds.
static MACHINE: LazyLock<Snapshot> = LazyLock::new(|| {
    let root = tempfile::tempdir().expect("a folder can be made");
    let text = machine("x86-adapters").expect("the crate carries it");
    plant(text, root.path()).expect("it is sound");
    topology_graph::read(&HostRoot::at(root.path())).expect("it has a sysfs")
});

/// `IFNAMSIZ` without the terminating zero.
const MAX_NAME_BYTES: usize = 15;

fn publish(mut network: NetworkFacts, cloud: CloudMetadata) {
    // The kernel never reports such names, nor the same name twice.
    network.interfaces.retain(|it| (1..=MAX_NAME_BYTES).contains(&it.name.len()));
    network.interfaces.sort_by(|a, b| a.name.cmp(&b.name));
    network.interfaces.dedup_by(|a, b| a.name == b.name);
    let facts = Facts { snapshot: MACHINE.clone(), network, cloud, rails: None };
    let devices = decide(&facts).devices;
    let names: BTreeSet<_> = devices.iter().map(|device| &device.name).collect();
    assert_eq!(names.len(), devices.len(), "every device has a name of its own");
    let sharing = SharingArgs {
        sharing: Sharing::Bandwidth,
        rdma_hca_max: NonZeroU32::new(8),
        ..SharingArgs::default()
    };
    let shared = decide_with(&facts, &Rules { sharing, ..Rules::default() }).devices;
    devices.iter().chain(&shared).for_each(is_taken);
}

/// Asserts the limits of `resource.k8s.io/v1`, except the number of attributes, which a
/// metadata service does not determine.
fn is_taken(device: &Device) {
    let is_label = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    let name = &device.name;
    assert!(name.bytes().all(is_label) && (1..=63).contains(&name.len()), "{name}");
    assert!(!name.starts_with('-') && !name.ends_with('-'), "{name}");
    for (name, value) in device.attributes.iter().flatten() {
        assert!(value.string.as_ref().is_none_or(|text| (1..=64).contains(&text.len())), "{name}");
        assert!(value.int.is_none_or(|int| int >= 0), "{name}");
    }
}
