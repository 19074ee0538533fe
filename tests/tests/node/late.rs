//! Late binding with a real kubelet and a device plugin: the kubelet gives each pod its GPUs before it
//! asks for its NICs, and each pod gets the NIC nearest to its GPU.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use anyhow::Context;
use k8s_openapi::api::{
    core::v1::{Node, Pod},
    resource::v1::{ResourceClaim, ResourceClaimTemplate, ResourceSlice},
};
use kube::{
    Api,
    api::{ListParams, PostParams},
};
use serde_json::{Value, json};
use tests::{
    Check, ControlPlane, Scope, eventually,
    node::{
        Machine,
        device_plugin::{DevicePlugin, RESOURCE},
        pods, with_machine,
    },
    suite::Test,
};
use topology_graph::{HostRoot, PciAddress, Topology};

const SOON: Duration = Duration::from_mins(1);

pub(crate) fn tests() -> Vec<Test> {
    let all = tests::tests![pods_of_a_device_plugin_get_the_nics_near_their_gpus];
    all.into_iter().map(Test::alone).collect()
}

async fn pods_of_a_device_plugin_get_the_nics_near_their_gpus(
    plane: Arc<ControlPlane>,
) -> anyhow::Result<()> {
    with_machine(&plane, "late", &[], async |machine, scope| {
        let (topology, _) =
            Topology::build(&topology_graph::read(&HostRoot::at(machine.root()))?, None);
        let gpus = topology.gpus().iter().map(|gpu| {
            let uuid = gpu.uuid.clone().context("each GPU has a UUID")?;
            Ok((uuid, gpu.numa.map(|numa| i64::from(numa.0))))
        });
        let gpus: Vec<_> = gpus.collect::<anyhow::Result<_>>()?;
        machine.start_driver(&["--bind-nics=late"]).await?;
        let _plugin = DevicePlugin::start(gpus.clone()).await?;
        offered(scope, machine, gpus.len()).await?;
        template(scope).await?;
        let names: Vec<String> = (0..gpus.len()).map(|number| format!("pod-{number}")).collect();
        for name in &names {
            pods::create(scope, &pod(name, machine)?).await?;
        }
        let mut used = BTreeSet::new();
        for name in &names {
            pods::running(scope, name).await?;
            let (gpu, nic) = given(&pods::told(scope, machine, name).await?, &topology)?;
            let nics = topology.nics().iter().map(|nic| nic.address);
            let nearest = nics.map(|nic| topology.path(gpu, nic)).min();
            assert_eq!(Some(topology.path(gpu, nic)), nearest, "{name}: {gpu} and {nic}");
            assert!(used.insert(nic), "{name}: {nic} twice");
            assert_eq!(
                status(scope, name).await?,
                (nic.to_string(), vec![gpu.to_string()]),
                "{name}"
            );
        }

        // The driver and the kubelet start again, and nothing changes.
        machine.kill_driver();
        machine.start_driver(&["--bind-nics=late"]).await?;
        machine.restart_kubelet().await?;
        for name in &names {
            pods::running(scope, name).await?;
            used.remove(&status(scope, name).await?.0.parse()?);
        }
        assert!(used.is_empty(), "{used:?}");
        for name in &names {
            pods::delete(scope, name).await?;
        }
        Ok(())
    })
    .await
}

/// Waits until the node offers the GPUs and as many places.
async fn offered(scope: &Scope, machine: &Machine, gpus: usize) -> anyhow::Result<()> {
    let nodes: Api<Node> = Api::all(scope.client());
    let slices: Api<ResourceSlice> = Api::all(scope.client());
    eventually(SOON, async || {
        let status = nodes.get(&machine.name).await?.status.unwrap_or_default();
        let amount = status.allocatable.as_ref().and_then(|it| it.get(RESOURCE)).cloned();
        let of_node = ListParams::default().fields(&format!("spec.nodeName={}", machine.name));
        let devices = slices.list(&of_node).await?.items.into_iter();
        let devices = devices.flat_map(|slice| slice.spec.devices.unwrap_or_default());
        let names: Vec<String> = devices.map(|device| device.name).collect();
        let places = names.iter().filter(|name| name.starts_with("late-")).count();
        let is_there = amount.as_ref().is_some_and(|it| it.0 == gpus.to_string()) && places >= gpus;
        Ok(Check::that(is_there, || format!("{amount:?} GPUs, devices {names:?}")))
    })
    .await
}

async fn template(scope: &Scope) -> anyhow::Result<()> {
    let selector = "device.driver == 'dra.net' && \
        device.attributes['dranet.io'].?lateBinding.orValue(false)";
    let template: ResourceClaimTemplate = serde_json::from_value(json!({
        "metadata": {"name": "late-nic"},
        "spec": {"spec": {"devices": {
            "requests": [{"name": "nics", "exactly": {
                "deviceClassName": "dranet.net", "count": 1,
                "selectors": [{"cel": {"expression": selector}}],
            }}],
            "config": [{"requests": ["nics"], "opaque": {"driver": "dra.net",
                "parameters": {"lateBinding": {"gpus": 1}}}}],
        }}},
    }))?;
    scope.api().create(&PostParams::default(), &template).await?;
    Ok(())
}

fn pod(name: &str, machine: &Machine) -> anyhow::Result<Pod> {
    let claim = json!({"resourceClaimTemplateName": "late-nic"});
    let mut pod = serde_json::to_value(pods::pod(name, &machine.name, claim)?)?;
    pod["spec"]["containers"][0]["resources"]["limits"] = json!({RESOURCE: "1"});
    Ok(serde_json::from_value(pod)?)
}

/// The GPU and the NIC that a container says it has.
fn given(told: &str, topology: &Topology) -> anyhow::Result<(PciAddress, PciAddress)> {
    let value = |start: &str| told.lines().find_map(|line| line.strip_prefix(start));
    let uuid = value("ENV NVIDIA_VISIBLE_DEVICES=").context("a GPU")?;
    let gpu = topology.gpus().iter().find(|gpu| gpu.uuid.as_deref() == Some(uuid));
    let nic = value("ENV DRANET_PCI_").and_then(|line| line.split_once('=')).context("a NIC")?;
    Ok((gpu.context("a GPU of this machine")?.address, nic.1.parse()?))
}

/// The PCI addresses of the NIC and of the pod's GPUs in the status of the pod's claim.
async fn status(scope: &Scope, pod: &str) -> anyhow::Result<(String, Vec<String>)> {
    let claims: Api<ResourceClaim> = scope.api();
    let mut found = None;
    eventually(SOON, async || {
        let all = claims.list(&ListParams::default()).await?.items.into_iter();
        let mut own = all.filter(|claim| {
            let reserved = claim.status.as_ref().and_then(|it| it.reserved_for.as_ref());
            reserved.into_iter().flatten().any(|user| user.name == pod)
        });
        let claim: Value = serde_json::to_value(own.next())?;
        let data = &claim["status"]["devices"][0]["data"];
        let gpus: Option<Vec<String>> = serde_json::from_value(data["gpus"].clone()).ok();
        found = data["pciBusID"].as_str().map(str::to_owned).zip(gpus);
        Ok(Check::that(found.is_some(), || claim.to_string()))
    })
    .await?;
    found.context("an address")
}
