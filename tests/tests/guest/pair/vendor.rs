//! A NIC driver from an image, on machines whose NICs are in use: each machine is drained in its
//! turn, its module is replaced, and pods get its NICs again. A pod of the image that starts again
//! beside a running pod replaces nothing.

use std::{fs, time::Instant};

use anyhow::Context;
use futures::future::try_join_all;
use k8s_openapi::{
    api::{core::v1::Pod, events::v1::Event},
    jiff::Timestamp,
};
use kube::{Api, ResourceExt, api::ListParams};
use serde_json::json;
use tests::{
    Check, ControlPlane, Scope, chart::NAMESPACE, eventually, guest::node::GuestNode, node::pods,
};

use super::{WORKED, installed::Installed, modules::condition, pod};

/// The values: the image is that of the pods, and what it replaces is soft RDMA.
const VALUES: &str = r"
vendorDriver:
  enabled: true
  repository: localhost
  image: busybox
  version: test
  systems:
  - {name: vm, nodeLabels: {kubernetes.io/os: linux}, tagSuffix: ''}
  command: [/bin/sh, -c, REPLACE]
  readyFile: /run/vendor-driver-ready
  modules: [rdma_rxe]
  pciVendor: 1af4
  env: []
  hostMounts:
  - {path: /usr, mountPath: /usr, readOnly: true}
  - {path: /usr/lib, mountPath: /lib, readOnly: true}
  - {path: /usr/lib64, mountPath: /lib64, readOnly: true}
";

/// What the image does. The kernel's readers hold the module for a moment.
const REPLACE: &str = "set -e
until rmmod rdma_rxe; do sleep 0.2; done
insmod /lib/modules/rdma_rxe_pci.ko
for i in 0 1 2 3; do rdma link add mlx5_$i type rxe netdev rail$i; done
touch /run/vendor-driver-ready
exec sleep 100000";

/// How often the module was loaded.
const LOADS: &str = "dmesg | grep -c 'rdma_rxe.*: loaded' || true";

pub(super) async fn replaces_modules(
    plane: &ControlPlane,
    scope: &Scope,
    pair: &[GuestNode; 2],
    chart: &Installed<'_>,
) -> anyhow::Result<()> {
    let begin = Instant::now();
    let before = loads(pair).await?;
    start(scope, pair, "evicted").await?;
    let folder = tempfile::tempdir()?;
    let values = folder.path().join("values.yaml");
    fs::write(&values, VALUES.replace("REPLACE", &json!(REPLACE).to_string()))?;
    // It waits until the image's pods are ready.
    chart.set(&[&format!("--values={}", values.display()), "--timeout=10m"]).await?;

    for node in pair {
        condition(plane, node, "VendorDriver", "True", "Loaded").await?;
        let name = on("evicted", node);
        let left = scope.api::<Pod>().get_opt(&name).await?;
        anyhow::ensure!(left.is_none_or(|it| it.metadata.deletion_timestamp.is_some()), "{name}");
    }
    assert_eq!(loads(pair).await?, before.map(|count| count + 1));
    one_after_the_other(plane, pair).await?;

    start(scope, pair, "running").await?;
    restart(plane, pair).await?;
    assert_eq!(loads(pair).await?, before.map(|count| count + 1));
    for node in pair {
        let pod = scope.api::<Pod>().get(&on("running", node)).await?;
        assert!(pod.metadata.deletion_timestamp.is_none(), "{}", pod.name_any());
    }
    try_join_all(pair.iter().map(async |node| pods::delete(scope, &on("running", node)).await))
        .await?;
    report(&format!("a vendor's driver took {:.0?}", begin.elapsed()));
    Ok(())
}

async fn loads([one, other]: &[GuestNode; 2]) -> anyhow::Result<[usize; 2]> {
    let loads = async |node: &GuestNode| -> anyhow::Result<usize> {
        let count = node.guest.run(LOADS).await?;
        count.trim().parse().with_context(|| count.clone())
    };
    Ok([loads(one).await?, loads(other).await?])
}

fn on(name: &str, node: &GuestNode) -> String {
    format!("{name}-{}", node.name)
}

/// A pod with a NIC on each machine, which runs.
async fn start(scope: &Scope, pair: &[GuestNode; 2], name: &str) -> anyhow::Result<()> {
    try_join_all(pair.iter().map(async |node| {
        let name = on(name, node);
        let annotations = json!({"dranet.io/aligned-nics": "1"});
        pods::create(scope, &pod(node, &name, &annotations, "exec sleep 1d")?).await?;
        eventually(WORKED, async || {
            let status = scope.api::<Pod>().get(&name).await?.status.unwrap_or_default();
            let runs = status.phase.as_deref() == Some("Running");
            if runs {
                return Ok(Check::Done(()));
            }
            let events = pods::events(scope, &name).await?;
            Ok(Check::NotYet(format!("{name} is {:?}, events {events:?}", status.phase)))
        })
        .await
    }))
    .await?;
    Ok(())
}

/// By the events: the second machine was drained when the first had its module.
async fn one_after_the_other(plane: &ControlPlane, pair: &[GuestNode; 2]) -> anyhow::Result<()> {
    let [one, other] = pair;
    let drained = [
        [
            happened(plane, one, "VendorDriverDraining").await?,
            happened(plane, one, "VendorDriverLoaded").await?,
        ],
        [
            happened(plane, other, "VendorDriverDraining").await?,
            happened(plane, other, "VendorDriverLoaded").await?,
        ],
    ];
    let [[begin_one, end_one], [begin_other, end_other]] = drained;
    anyhow::ensure!(end_one <= begin_other || end_other <= begin_one, "at once: {drained:?}");
    Ok(())
}

/// When an event on the Node was written.
async fn happened(
    plane: &ControlPlane,
    node: &GuestNode,
    reason: &str,
) -> anyhow::Result<Timestamp> {
    let events: Api<Event> = Api::namespaced(plane.client(), "default");
    eventually(pods::POD, async || {
        let all = events.list(&ListParams::default()).await?.items.into_iter();
        let of_node = all.filter(|it| {
            it.regarding.as_ref().and_then(|it| it.name.as_deref()) == Some(&node.name)
        });
        let of_node: Vec<_> = of_node.collect();
        let found = of_node.iter().find(|it| it.reason.as_deref() == Some(reason));
        if let Some(time) = found.and_then(|it| it.event_time.clone()) {
            return Ok(Check::Done(time.0));
        }
        let reasons: Vec<_> = of_node.iter().map(|it| it.reason.clone()).collect();
        Ok(Check::NotYet(format!("no event {reason} on {}: {reasons:?}", node.name)))
    })
    .await
}

/// The pods of the image are made anew, and are ready again.
async fn restart(plane: &ControlPlane, pair: &[GuestNode; 2]) -> anyhow::Result<()> {
    let api: Api<Pod> = Api::namespaced(plane.client(), NAMESPACE);
    let own = ListParams::default().labels("app.kubernetes.io/name=vendor-driver");
    let before = api.list(&own).await?.items;
    assert_eq!(before.len(), pair.len(), "a pod of the image on each machine");
    for pod in &before {
        api.delete(&pod.name_any(), &kube::api::DeleteParams::default().grace_period(1)).await?;
    }
    eventually(WORKED, async || {
        let now = api.list(&own).await?.items;
        let is_ready = |pod: &Pod| {
            let conditions = pod.status.iter().flat_map(|it| it.conditions.iter().flatten());
            let mut ready = conditions.filter(|it| it.type_ == "Ready" && it.status == "True");
            ready.next().is_some()
        };
        let is_new = |pod: &Pod| before.iter().all(|it| it.metadata.uid != pod.metadata.uid);
        let done = now.len() == pair.len() && now.iter().all(|it| is_new(it) && is_ready(it));
        Ok(Check::that(done, || {
            let names: Vec<_> = now.iter().map(|it| (it.name_any(), is_ready(it))).collect();
            format!("pods of the image: {names:?}")
        }))
    })
    .await
}

#[expect(clippy::print_stderr, reason = "how long it took is worth reading")]
fn report(line: &str) {
    eprintln!("{line}");
}
