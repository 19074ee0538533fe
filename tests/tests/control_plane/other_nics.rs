//! The NICs of other DRA drivers: slices of `tests/fixtures/nic-drivers`, beside a graph of our
//! driver in mode `topology`. The real scheduler gives annotated pods near NICs.

use std::{sync::Arc, time::Duration};

use anyhow::Context;
use k8s_openapi::api::{
    core::v1::{Node, Pod},
    resource::v1::{ResourceClaim, ResourceSlice},
};
use kube::{
    Api, ResourceExt,
    api::{ListParams, Patch, PatchParams},
};
use serde_json::json;
use tests::{
    ControlPlane, Scope, binaries, installation::Installation, machine::Machine, manifest,
    suite::Test, with_scope,
};
use topology_graph::{HostRoot, PathKind, PciAddress, Topology, read};

use super::churn::create;

const SOON: Duration = Duration::from_secs(30);

pub(crate) fn tests() -> Vec<Test> {
    tests::tests![the_scheduler_gives_near_nics_of_every_driver]
        .into_iter()
        .map(Test::alone)
        .collect()
}

/// A driver of `tests/fixtures/nic-drivers` and the machine that its slices describe.
struct Case {
    fixture: &'static str,
    driver: &'static str,
    machine: &'static str,
    /// The class that the pod must name.
    class: Option<&'static str>,
    /// Pods that take the whole machine together, and how many GPUs and NICs each has.
    pods: [u32; 2],
    /// How near each GPU has a NIC.
    within: PathKind,
}

const CASES: [Case; 5] = [
    Case {
        fixture: "aws",
        driver: "dra.networking.k8s.aws",
        machine: "gb200-nvl72",
        class: None,
        // Its slices say nothing about places: only whole machines are aligned.
        pods: [1, 4],
        within: PathKind::Node,
    },
    Case {
        fixture: "sriov",
        driver: "sriovnetwork.k8snetworkplumbingwg.io",
        machine: "a100-pcie-8gpu",
        class: None,
        pods: [2, 2],
        within: PathKind::Phb,
    },
    Case {
        fixture: "sriov-numa",
        driver: "sriovnetwork.k8snetworkplumbingwg.io",
        machine: "a100-pcie-8gpu",
        class: None,
        pods: [2, 2],
        within: PathKind::Phb,
    },
    Case {
        fixture: "cilium",
        driver: "networkdriver.cilium.io",
        machine: "a100-pcie-8gpu",
        class: Some("rdma.networkdriver.cilium.io"),
        pods: [2, 2],
        within: PathKind::Pxb,
    },
    Case {
        fixture: "gke",
        driver: "mrdma.google.com",
        machine: "x86-two-per-switch",
        class: None,
        pods: [4, 2],
        within: PathKind::Phb,
    },
];

/// The RDMA devices of AWS's fixture.
const RDMA_DEVICES: [(&str, &str); 4] = [
    ("0000:03:00.0", "rocep3s0"),
    ("0002:03:00.0", "rocep515s0"),
    ("0010:03:00.0", "rocep4099s0"),
    ("0012:03:00.0", "rocep4611s0"),
];

async fn the_scheduler_gives_near_nics_of_every_driver(
    plane: Arc<ControlPlane>,
) -> anyhow::Result<()> {
    for case in &CASES {
        let ran = with_scope(plane.client(), async |scope| case.run(&plane, scope).await).await;
        ran.context(case.fixture)?;
    }
    Ok(())
}

impl Case {
    async fn run(&self, plane: &ControlPlane, scope: &Scope) -> anyhow::Result<()> {
        let mut installation = Installation::install(plane, scope).await?;
        let machine = Machine {
            fixture: self.machine,
            size: "",
            driver: "gpu.nvidia.com",
            resource: "nvidia.com/gpu",
        };
        let names = if self.fixture == "aws" { &RDMA_DEVICES[..] } else { &[] };
        let (node, root) = installation.machine_with_other_nics("one", machine, names).await?;
        let label = json!({"metadata": {"labels": {"node.kubernetes.io/instance-type": "a-type"}}});
        let nodes: Api<Node> = Api::all(plane.client());
        nodes.patch(&node, &PatchParams::default(), &Patch::Merge(&label)).await?;
        let file = binaries::in_tests(&format!("fixtures/nic-drivers/{}.yaml", self.fixture));
        let text = std::fs::read_to_string(file)?.replace("node-0", &node);
        scope.apply_all(manifest::parse(&text)?).await?;
        installation.start_admission().await?;

        let (topology, _) = Topology::build(&read(&HostRoot::at(root.path()))?, None);
        let [pods, each] = self.pods;
        let mut taken = Vec::new();
        for index in 0..pods {
            let name = format!("{}-{index}", self.fixture);
            create(scope, &self.pod(&name, each)?).await?;
            let bound = scope.bound(&name, SOON).await?;
            let plan = bound.annotations().get("dranet.io/plan").cloned();
            let (gpus, nics) = devices(scope, &bound, self.driver, &topology).await?;
            let each = each as usize;
            assert_eq!((gpus.len(), nics.len()), (each, each), "{name}: {plan:?}");
            for gpu in gpus {
                let nearest = nics.iter().map(|nic| topology.path(gpu, *nic)).min();
                let is_near = nearest.is_some_and(|path| path <= self.within);
                assert!(is_near, "{name}: {gpu} {nics:?}: {nearest:?}; {plan:?}");
            }
            taken.extend(nics);
        }
        let all = taken.len();
        taken.sort_unstable();
        taken.dedup();
        assert_eq!(taken.len(), all, "no NIC is given twice");
        Ok(())
    }

    fn pod(&self, name: &str, gpus: u32) -> anyhow::Result<Pod> {
        let mut annotations = json!({"dranet.io/aligned-nics": "per-gpu"});
        if let Some(class) = self.class {
            annotations["dranet.io/nic-class"] = class.into();
        }
        Ok(serde_json::from_value(json!({
            "metadata": {"name": name, "annotations": annotations},
            "spec": {"containers": [{
                "name": "nccl", "image": "nccl",
                "resources": {"limits": {"nvidia.com/gpu": gpus.to_string()}},
            }]},
        }))?)
    }
}

/// The addresses of the GPUs, and of the NICs of this driver, that a pod got by claim; those of AWS's NICs
/// by their names.
pub(crate) async fn devices(
    scope: &Scope,
    pod: &Pod,
    nic_driver: &str,
    topology: &Topology,
) -> anyhow::Result<(Vec<PciAddress>, Vec<PciAddress>)> {
    let statuses = pod.status.as_ref().and_then(|it| it.resource_claim_statuses.as_ref());
    let name = statuses.into_iter().flatten().find_map(|it| it.resource_claim_name.as_ref());
    let claim = scope.api::<ResourceClaim>().get(name.context("it has a claim")?).await?;
    let allocation = claim.status.and_then(|status| status.allocation).context("allocated")?;
    let results = allocation.devices.and_then(|devices| devices.results).unwrap_or_default();
    let slices: Api<ResourceSlice> = Api::all(scope.client());
    let slices = serde_json::to_value(slices.list(&ListParams::default()).await?.items)?;
    let (mut gpus, mut nics) = (Vec::new(), Vec::new());
    for result in results {
        let is_nic = result.driver == nic_driver;
        let is_gpu = ["gpu.nvidia.com", "gpu.amd.com"].contains(&&*result.driver);
        anyhow::ensure!(is_nic || is_gpu, "{}", result.driver);
        let of_pool = slices.as_array().into_iter().flatten().filter(|slice| {
            let spec = &slice["spec"];
            spec["driver"] == result.driver && spec["pool"]["name"] == result.pool
        });
        let mut there = of_pool.filter_map(|it| it["spec"]["devices"].as_array()).flatten();
        let device = there.find(|device| device["name"] == result.device).context("device")?;
        let names = ["resource.kubernetes.io/pciBusID", "dra.net/pciAddress"];
        let text = |name: &&str| device["attributes"][*name]["string"].as_str();
        let by_name = || {
            let device = Some(&result.device);
            let nic = topology.nics().iter().find(|nic| nic.rdma_device.as_ref() == device);
            nic.map(|nic| nic.address)
        };
        let known = names.iter().find_map(text).and_then(|it| it.parse().ok());
        let address = known.or_else(by_name).context("it has an address")?;
        if is_nic { nics.push(address) } else { gpus.push(address) }
    }
    Ok((gpus, nics))
}
