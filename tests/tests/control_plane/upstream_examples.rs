//! Upstream's examples with annotations, `deploy/examples/upstream`. On the machine that each is
//! for, its pods are admitted and scheduled, and their devices are as near as the file says.

use std::{collections::BTreeSet, fs, path::Path, sync::Arc, time::Duration};

use anyhow::Context;
use k8s_openapi::api::core::v1::{Pod, PodTemplateSpec};
use kube::{
    ResourceExt,
    api::{DynamicObject, PostParams},
};
use tests::{
    ControlPlane, Scope, binaries,
    installation::Installation,
    machine::{H100, MI300X, Machine},
    manifest,
    suite::Test,
    with_scope,
};
use topology_graph::{HostRoot, PciAddress, Topology, read};

use super::other_nics::devices;

const SOON: Duration = Duration::from_mins(1);
/// A machine without cloud metadata here, with NVIDIA's driver v0.5.0.
const fn nvidia(fixture: &'static str) -> Machine {
    Machine { fixture, size: "", driver: "gpu.nvidia.com", resource: "nvidia.com/gpu" }
}
const MACHINES: [Machine; 5] =
    [H100, MI300X, nvidia("aws-p4d"), nvidia("gcp-a4"), nvidia("oci-gb200")];
/// The GB300 is the one whose slices were taken live.
const GB300: Machine = nvidia("azure-gb300");

/// As AMD's driver installs it.
const AMD_CLASS: &str = "
apiVersion: resource.k8s.io/v1
kind: DeviceClass
metadata: {name: gpu.amd.com}
spec:
  selectors: [{cel: {expression: device.driver == 'gpu.amd.com'}}]
";

pub(crate) fn tests() -> Vec<Test> {
    tests::tests![each_example_is_admitted_and_aligned].into_iter().map(Test::alone).collect()
}

async fn each_example_is_admitted_and_aligned(plane: Arc<ControlPlane>) -> anyhow::Result<()> {
    let folder = binaries::in_tests("../deploy/examples/upstream");
    let (mut tried, mut failed) = (0, Vec::new());
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        let example = Example::read(&path).with_context(|| path.display().to_string())?;
        let ran = with_scope(plane.client(), async |scope| example.run(&plane, scope).await).await;
        if let Err(error) = ran {
            failed.push(format!("{}: {error:#}", path.display()));
        }
        tried += 1;
    }
    assert!(failed.is_empty(), "{failed:#?}");
    assert!(tried >= 11, "{tried}");
    Ok(())
}

/// An example file: its machine, and its objects.
struct Example {
    machine: Machine,
    /// The paths from each NIC to its nearest GPU, as `nvidia-smi topo -m` names them.
    paths: BTreeSet<String>,
    by_hand: DynamicObject,
    workload: DynamicObject,
}

impl Example {
    fn read(path: &Path) -> anyhow::Result<Self> {
        let text = fs::read_to_string(path)?;
        let head = |name: &str| {
            let line = text.lines().find_map(|line| line.strip_prefix(&format!("# {name}: ")));
            line.with_context(|| format!("no line `# {name}: …`"))
        };
        let machine = head("Machine")?;
        let known = MACHINES.iter().chain([&GB300]).find(|known| known.fixture == machine);
        let paths = head("Paths")?.split(", ").map(str::to_owned).collect();
        let objects = manifest::parse(&text)?;
        let [by_hand, workload] =
            <[_; 2]>::try_from(objects).map_err(|all| anyhow::anyhow!("{} objects", all.len()))?;
        Ok(Self { machine: *known.context("an unknown machine")?, paths, by_hand, workload })
    }

    async fn run(&self, plane: &ControlPlane, scope: &Scope) -> anyhow::Result<()> {
        let mut installation = Installation::install(plane, scope).await?;
        scope.apply_yaml(AMD_CLASS).await?;
        let root = if self.machine.fixture == GB300.fixture {
            installation.gb300("example").await?;
            tests::installation::gb300_machine("example")?
        } else {
            installation.machine("example", self.machine).await?;
            self.machine.plant()?
        };
        installation.start_admission().await?;
        manifest::check(&plane.client(), &self.by_hand, scope.namespace()).await?;
        scope.api::<Pod>().create(&PostParams::default(), &self.pod()?).await?;
        let pod = scope.bound("example", SOON).await?;
        let (topology, _) = Topology::build(&read(&HostRoot::at(root.path()))?, None);
        let (gpus, nics) = devices(scope, &pod, "dra.net", &topology).await?;
        let nearest = |nic: &PciAddress| {
            let paths = gpus.iter().map(|gpu| topology.path(*gpu, *nic));
            Some(paths.min()?.to_string())
        };
        let found = nics.iter().map(nearest).collect::<Option<BTreeSet<_>>>();
        let found = found.context("the pod has GPUs")?;
        let plan = pod.annotations().get("dranet.io/plan");
        anyhow::ensure!(found == self.paths, "{found:?}: GPUs {gpus:?}, NICs {nics:?}, {plan:?}");
        Ok(())
    }

    /// A pod of the workload, as its controller would make it.
    fn pod(&self) -> anyhow::Result<Pod> {
        let data = &self.workload.data;
        let worker = data.pointer("/spec/mpiReplicaSpecs/Worker/template");
        let template = match worker {
            Some(template) => serde_json::from_value(template.clone())?,
            None => PodTemplateSpec {
                metadata: Some(self.workload.metadata.clone()),
                spec: Some(serde_json::from_value(data["spec"].clone())?),
            },
        };
        let mut metadata = template.metadata.unwrap_or_default();
        metadata.name = Some("example".to_owned());
        // Fabric-controller does not run here, and would wait for the other workers.
        if let Some(annotations) = &mut metadata.annotations {
            annotations.remove("dranet.io/fabric");
        }
        Ok(Pod { metadata, spec: template.spec, status: None })
    }
}
