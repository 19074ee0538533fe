//! From the annotation to a sum on the GPU.

use std::{fs, process::Command, sync::Arc, time::Duration};

use anyhow::Context;
use k8s_openapi::api::{
    core::v1::Pod,
    resource::v1::{Device, ResourceClaim, ResourceSlice},
};
use kube::{Api, api::ListParams};
use serde_json::json;
use tests::{
    Check, ControlPlane, Scope,
    binaries::in_tests,
    eventually,
    installation::Installation,
    node::{Machine, gpu_driver, image, links::shell, pods},
    suite::{self, Test},
    with_scope,
};
use topology_graph::{NodeTopology, Topology};

use super::{found, record};

const NODE: &str = "gpu-node";
const IMAGE: &str = "localhost/check:test";
/// NICs of our driver without RDMA.
const CLASS: &str = r#"
apiVersion: resource.k8s.io/v1
kind: DeviceClass
metadata: {name: ethernet}
spec:
  selectors:
  - cel:
      expression: device.driver == "dra.net" && !device.attributes["dra.net"].?rdma.orValue(false)
"#;
/// An address of the NIC on the host, which goes into the pod.
const ADDRESS: &str = "10.88.7.2/24";
/// The number of results of `check.c` for each GPU.
const SUM: &str = "65536";
const SOON: Duration = Duration::from_mins(1);

pub(crate) fn tests() -> Vec<Test> {
    tests::tests![a_pod_computes_beside_its_nic].into_iter().map(Test::alone).collect()
}

async fn a_pod_computes_beside_its_nic(plane: Arc<ControlPlane>) -> anyhow::Result<()> {
    let nic = crate::interface();
    shell(&format!("ip addr add {ADDRESS} dev {nic}"))?;
    shell(&format!("ip link set {nic} up"))?;
    with_scope(plane.client(), async |scope| {
        let mut installation = Installation::install(&plane, scope).await?;
        let mut machine = Machine::start_on_hardware(&plane, NODE).await?;
        let folder = tempfile::tempdir()?;
        let check = build(folder.path())?;
        machine.import(&folder.path().join("check.tar")).await?;

        let (_driver, gpus) = gpu_driver::start(&plane, &machine).await?;
        machine.use_kubeconfig(installation.node_kubeconfig("node-driver", NODE).await?);
        machine.start_driver(&["--cloud=none"]).await?;
        let topology = published(scope).await?;
        installation.start_admission().await?;
        installation.start_extender().await?;
        suite::report(&format!("{} ready", gpus.spec.driver));

        scope.apply_yaml(CLASS).await?;
        pods::create(scope, &pod(&topology)?).await?;
        let log = told(scope, &machine).await?;
        suite::report(log.trim_end());
        let claim = claim(scope).await?;
        record::pod(scope, &log).await?;
        compare_with_claim(&log, &claim, &gpus.spec.devices.unwrap_or_default(), &topology)?;

        let given = pods::network_data(scope, claim.metadata.name.as_deref().context("a name")?);
        let interface = given.await?["interfaceName"].as_str().context("an interface")?.to_owned();
        anyhow::ensure!(found::interfaces(&log).contains(&interface.as_str()), "no {interface}");

        pods::delete(scope, "check").await?;
        machine.wait_until_clean().await?;
        found::compare_with_nvidia_smi(&topology)?;
        found::compare_with_nccl(&topology, &check, folder.path())?;
        record::machine()
    })
    .await
}

/// Builds the program and the archive of its image. Returns the program's path.
fn build(folder: &std::path::Path) -> anyhow::Result<std::path::PathBuf> {
    let [program, layer] = ["check", "layer.tar"].map(|name| folder.join(name));
    let mut compile = Command::new("cc");
    compile
        .args(["-std=gnu17", "-O1", "-o"])
        .args([&program, &in_tests("gpu/check.c")])
        .arg("-ldl");
    let mut pack = Command::new(in_tests("gpu/layer"));
    pack.args([&program, &layer]);
    for command in [&mut compile, &mut pack] {
        let output = command.output().with_context(|| format!("{command:?} does not start"))?;
        let error = String::from_utf8_lossy(&output.stderr);
        anyhow::ensure!(output.status.success(), "{command:?}: {}", error.trim());
    }
    image::write_layer(&folder.join("check.tar"), IMAGE, &fs::read(layer)?)?;
    Ok(program)
}

/// The node's graph, as soon as its NICs are published too.
async fn published(scope: &Scope) -> anyhow::Result<Topology> {
    let slices: Api<ResourceSlice> = Api::all(scope.client());
    let topologies: Api<NodeTopology> = Api::all(scope.client());
    let ours = ListParams::default().fields("spec.driver=dra.net");
    eventually(SOON, async || {
        let listed = slices.list(&ours).await?.items;
        let nics = listed.iter().flat_map(|slice| slice.spec.devices.iter().flatten()).count();
        let object = topologies.get_opt(NODE).await?;
        Ok(match object {
            Some(object) if nics > 0 => Check::Done(Topology::from_spec(&object.spec)?),
            _ => Check::NotYet(format!("{nics} NICs are published")),
        })
    })
    .await
}

/// A pod with one GPU and one NIC, which has RDMA if the machine's NICs have it.
fn pod(topology: &Topology) -> anyhow::Result<Pod> {
    let has_rdma = topology.nics().iter().any(|nic| nic.rdma_device.is_some());
    let annotations = if has_rdma {
        json!({"dranet.io/aligned-nics": "1"})
    } else {
        json!({"dranet.io/aligned-nics": "1", "dranet.io/nic-class": "ethernet"})
    };
    Ok(serde_json::from_value(json!({
        "metadata": {"name": "check", "annotations": annotations},
        "spec": {
            "restartPolicy": "Never",
            "terminationGracePeriodSeconds": 0,
            "automountServiceAccountToken": false,
            "enableServiceLinks": false,
            "containers": [{
                "name": "check",
                "image": IMAGE,
                "imagePullPolicy": "Never",
                "command": ["/check", "stay"],
                "resources": {"limits": {"nvidia.com/gpu": "1"}},
            }],
        },
    }))?)
}

/// The program's output, as soon as it is complete.
async fn told(scope: &Scope, machine: &Machine) -> anyhow::Result<String> {
    let pods: Api<Pod> = scope.api();
    eventually(pods::POD, async || {
        let phase = pods.get("check").await?.status.and_then(|status| status.phase);
        let log = machine.pod_log(scope.namespace(), "check")?;
        anyhow::ensure!(phase.as_deref() != Some("Failed"), "the pod failed:\n{log}");
        if log.ends_with("\nDONE\n") {
            return Ok(Check::Done(log));
        }
        let events = pods::events(scope, "check").await?;
        Ok(Check::NotYet(format!("the pod is {phase:?}, events {events:#?}")))
    })
    .await
}

async fn claim(scope: &Scope) -> anyhow::Result<ResourceClaim> {
    let claims: Api<ResourceClaim> = scope.api();
    let mut all = claims.list(&ListParams::default()).await?.items;
    all.pop().context("the pod has a claim")
}

/// Checks that the pod computed on the GPU of its claim, and that the claim's NIC is one of the
/// nearest to it.
fn compare_with_claim(
    log: &str,
    claim: &ResourceClaim,
    gpus: &[Device],
    topology: &Topology,
) -> anyhow::Result<()> {
    let allocation = claim.status.as_ref().and_then(|status| status.allocation.as_ref());
    let devices = allocation.and_then(|allocation| allocation.devices.as_ref());
    let results = devices.and_then(|devices| devices.results.clone()).context("results")?;
    let [gpu, nic] = [false, true].map(|ours| {
        let mut of_driver = results.iter().filter(|it| (it.driver == "dra.net") == ours);
        of_driver.next().map(|it| it.device.clone())
    });
    let (gpu, nic) = (gpu.context("a GPU")?, nic.context("a NIC")?);
    let device = gpus.iter().find(|device| device.name == gpu).context("it is published")?;
    let attributes = device.attributes.clone().unwrap_or_default();
    let uuid = attributes["uuid"].string.clone().context("a GPU has a uuid")?;

    let [(seen, address)] = found::gpus(log)?[..] else {
        anyhow::bail!("the pod sees not exactly one GPU:\n{log}");
    };
    assert_eq!(seen, uuid, "the pod computes on the GPU of its claim");
    assert_eq!(found::sums(log), [SUM], "all results are right");

    let pairs = topology.pairs();
    let nearest = pairs.iter().filter(|pair| pair.gpu == address).map(|pair| pair.nic);
    let names: Vec<_> = nearest.map(|nic| tests::node::device_name(&nic.to_string())).collect();
    anyhow::ensure!(names.contains(&nic), "{nic} is none of the nearest NICs {names:?}");
    Ok(())
}
