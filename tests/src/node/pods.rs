//! Pods on the node, and their output.

use std::time::Duration;

use anyhow::Context;
use k8s_openapi::{
    api::{core::v1::Pod, resource::v1::ResourceClaim},
    apimachinery::pkg::apis::meta::v1::Status,
};
use kube::{
    Api,
    api::{DeleteParams, ListParams, Patch, PatchParams, PostParams},
};
use serde_json::{Value, json};

pub use crate::node::image::IMAGE;
use crate::{Check, Scope, eventually, node::Machine};

/// The longest time for a pod to run, or to be gone.
pub const POD: Duration = Duration::from_mins(3);

/// The first output of a container: its devices, variables and interfaces, and the files that
/// describe its devices.
const TELL: &str = "for d in /dev/infiniband/*; do echo DEV ${d##*/}; done; \
    env | while read v; do echo ENV $v; done; ip -o addr | while read a; do echo IP $a; done; \
    ip link | while read l; do echo LINK $l; done; ip route | while read r; do echo ROUTE $r; done; \
    for f in /etc/dranet/* /var/run/kubernetes.io/dra-device-attributes/*/*/*/*; do echo FILE $f; \
    while read l; do echo FILE $l; done < $f; done; echo TOLD; exec sleep 100000";

/// A pod for one node with one claim, from a template or by name.
pub fn pod(name: &str, node: &str, claim: Value) -> anyhow::Result<Pod> {
    Ok(serde_json::from_value(json!({
        "metadata": {"name": name},
        "spec": {
            "nodeSelector": {"kubernetes.io/hostname": node},
            "terminationGracePeriodSeconds": 0,
            "automountServiceAccountToken": false,
            "enableServiceLinks": false,
            "resourceClaims": [merge(json!({"name": "nics"}), claim)],
            "containers": [{
                "name": "main",
                "image": IMAGE,
                "imagePullPolicy": "Never",
                "command": ["/bin/sh", "-c", TELL],
                "resources": {"claims": [{"name": "nics"}]},
            }],
        },
    }))?)
}

fn merge(mut one: Value, other: Value) -> Value {
    if let (Value::Object(one), Value::Object(other)) = (&mut one, other) {
        one.extend(other);
    }
    one
}

/// Creates a claim that is already allocated to this device, as the scheduler would have written
/// it.
pub async fn allocated_claim(
    scope: &Scope,
    name: &str,
    node: &str,
    device: &str,
    parameters: Option<Value>,
) -> anyhow::Result<()> {
    allocated_devices(scope, name, node, &[device], parameters).await
}

/// Creates a claim that is already allocated to several devices.
pub async fn allocated_devices(
    scope: &Scope,
    name: &str,
    node: &str,
    devices: &[&str],
    parameters: Option<Value>,
) -> anyhow::Result<()> {
    let result =
        |device| json!({"driver": "dra.net", "pool": node, "device": device, "request": "nic"});
    allocated(scope, name, node, devices.iter().map(result).collect(), parameters).await
}

/// Creates a claim that is already allocated to a share of the device.
pub async fn allocated_share(
    scope: &Scope,
    name: &str,
    [node, device, share]: [&str; 3],
    parameters: Option<Value>,
) -> anyhow::Result<()> {
    let result = json!({
        "driver": "dra.net", "pool": node, "device": device, "request": "nic", "shareID": share,
    });
    allocated(scope, name, node, vec![result], parameters).await
}

async fn allocated(
    scope: &Scope,
    name: &str,
    node: &str,
    results: Vec<Value>,
    parameters: Option<Value>,
) -> anyhow::Result<()> {
    let claims: Api<ResourceClaim> = scope.api();
    let claim = serde_json::from_value(json!({
        "metadata": {"name": name},
        "spec": {"devices": {"requests": [
            {"name": "nic", "exactly": {"deviceClassName": "dranet.net", "count": results.len()}},
        ]}},
    }))?;
    claims.create(&PostParams::default(), &claim).await?;
    let config = parameters.map(|parameters| {
        json!([{"source": "FromClaim", "requests": ["nic"],
            "opaque": {"driver": "dra.net", "parameters": parameters}}])
    });
    let selector = json!({"nodeSelectorTerms": [{"matchFields": [
        {"key": "metadata.name", "operator": "In", "values": [node]},
    ]}]});
    let status = json!({"status": {"allocation": {
        "nodeSelector": selector,
        "devices": {
            "results": results,
            "config": config,
        },
    }}});
    claims.patch_status(name, &PatchParams::default(), &Patch::Merge(status)).await?;
    Ok(())
}

/// Creates a pod without the scheduler, with a claim of the same name that is allocated to this
/// device, and does not wait.
pub async fn create_user(
    scope: &Scope,
    [name, node, device]: [&str; 3],
    parameters: Option<Value>,
) -> anyhow::Result<Pod> {
    allocated_claim(scope, name, node, device, parameters).await?;
    create_bound(scope, pod(name, node, json!({"resourceClaimName": name}))?, node).await
}

/// Marks a claim as one that was made from the template of a pod, as kube-controller-manager does.
pub async fn mark_as_from_template(scope: &Scope, claim: &str) -> anyhow::Result<()> {
    let claims: Api<ResourceClaim> = scope.api();
    let annotation = json!({"resource.kubernetes.io/pod-claim-name": "nics"});
    let mark = Patch::Merge(json!({"metadata": {"annotations": annotation}}));
    claims.patch(claim, &PatchParams::default(), &mark).await?;
    Ok(())
}

/// Creates a pod without the scheduler, as a user of the claim with the same name.
pub async fn create_bound(scope: &Scope, pod: Pod, node: &str) -> anyhow::Result<Pod> {
    let claim = pod.metadata.name.clone().context("a pod has a name")?;
    Box::pin(create_bound_with(scope, pod, &claim, node)).await
}

/// Creates a pod without the scheduler, as the only user of this claim. As with the scheduler, the claim is
/// reserved for the pod before any kubelet sees the pod.
pub async fn create_bound_with(
    scope: &Scope,
    mut pod: Pod,
    claim: &str,
    node: &str,
) -> anyhow::Result<Pod> {
    let name = pod.metadata.name.clone().context("a pod has a name")?;
    let spec = pod.spec.as_mut().context("a pod has a spec")?;
    spec.scheduler_name = Some("none".to_owned());
    let pods: Api<Pod> = scope.api();
    let pod = pods.create(&PostParams::default(), &pod).await?;
    let user = json!({"resource": "pods", "name": name, "uid": pod.metadata.uid});
    let status = json!({"status": {"reservedFor": [user]}});
    let claims: Api<ResourceClaim> = scope.api();
    claims.patch_status(claim, &PatchParams::default(), &Patch::Merge(status)).await?;
    let binding = json!({
        "apiVersion": "v1", "kind": "Binding", "metadata": {"name": name},
        "target": {"kind": "Node", "name": node},
    });
    let _: Status =
        pods.create_subresource("binding", &name, &PostParams::default(), &binding).await?;
    Ok(pods.get(&name).await?)
}

/// Creates a pod.
pub async fn create(scope: &Scope, pod: &Pod) -> anyhow::Result<()> {
    scope.api::<Pod>().create(&PostParams::default(), pod).await?;
    Ok(())
}

/// Waits until it runs.
pub async fn running(scope: &Scope, name: &str) -> anyhow::Result<Pod> {
    let pods: Api<Pod> = scope.api();
    eventually(POD, async || {
        let pod = pods.get(name).await?;
        let status = pod.status.clone().unwrap_or_default();
        if status.phase.as_deref() == Some("Running") {
            return Ok(Check::Done(pod));
        }
        let waiting: Vec<_> = status
            .container_statuses
            .unwrap_or_default()
            .into_iter()
            .filter_map(|status| status.state?.waiting)
            .map(|waiting| format!("{:?}: {:?}", waiting.reason, waiting.message))
            .collect();
        let events = events(scope, name).await?;
        Ok(Check::NotYet(format!("{name} is {:?}, {waiting:?}, events {events:?}", status.phase)))
    })
    .await
}

/// The output of its container, as soon as it is complete.
pub async fn told(scope: &Scope, machine: &Machine, name: &str) -> anyhow::Result<String> {
    eventually(POD, async || {
        let log = machine.pod_log(scope.namespace(), name)?;
        let status = log.clone();
        Ok(if log.contains("\nTOLD\n") { Check::Done(log) } else { Check::NotYet(status) })
    })
    .await
}

/// The events of the pod, last first.
pub async fn events(scope: &Scope, name: &str) -> anyhow::Result<Vec<String>> {
    use k8s_openapi::api::core::v1::Event;
    let events = scope.api::<Event>().list(&ListParams::default()).await?;
    let of_pod =
        events.items.into_iter().filter(|e| e.involved_object.name.as_deref() == Some(name));
    Ok(of_pod
        .map(|e| format!("{}: {}", e.reason.unwrap_or_default(), e.message.unwrap_or_default()))
        .collect())
}

/// The events of a node with this reason, as soon as there are any.
pub async fn node_events(scope: &Scope, node: &str, reason: &str) -> anyhow::Result<String> {
    use k8s_openapi::api::core::v1::Event;
    let events: Api<Event> = Api::namespaced(scope.client(), "default");
    eventually(POD, async || {
        let all = events.list(&ListParams::default()).await?.items.into_iter();
        let of_node = all.filter(|it| it.involved_object.name.as_deref() == Some(node));
        let said = of_node.filter(|it| it.reason.as_deref() == Some(reason));
        let said: Vec<_> = said.filter_map(|it| it.message).collect();
        Ok(if said.is_empty() {
            Check::NotYet(format!("no event `{reason}` of node `{node}`"))
        } else {
            Check::Done(said.join("\n"))
        })
    })
    .await
}

/// Deletes it and waits until it is gone.
pub async fn delete(scope: &Scope, name: &str) -> anyhow::Result<()> {
    delete_soon(scope, name).await?;
    gone(scope, name).await
}

/// Deletes it without waiting.
pub async fn delete_soon(scope: &Scope, name: &str) -> anyhow::Result<()> {
    scope.api::<Pod>().delete(name, &DeleteParams::default()).await?;
    Ok(())
}

/// Waits until it is gone.
pub async fn gone(scope: &Scope, name: &str) -> anyhow::Result<()> {
    let pods: Api<Pod> = scope.api();
    eventually(POD, async || {
        let pod = pods.get_opt(name).await?;
        Ok(Check::that(pod.is_none(), || format!("{name} is still there")))
    })
    .await
}

/// Deletes a claim and waits until it is gone.
pub async fn delete_claim(scope: &Scope, name: &str) -> anyhow::Result<()> {
    let claims: Api<ResourceClaim> = scope.api();
    claims.delete(name, &DeleteParams::default()).await?;
    eventually(POD, async || {
        let claim = claims.get_opt(name).await?;
        Ok(Check::that(claim.is_none(), || format!("claim {name} is still there")))
    })
    .await
}

/// The network data of the single device in the claim's status, as soon as the device is ready.
pub async fn network_data(scope: &Scope, claim: &str) -> anyhow::Result<Value> {
    let claims: Api<ResourceClaim> = scope.api();
    eventually(POD, async || {
        let devices = claims.get(claim).await?.status.and_then(|status| status.devices);
        let device = devices.and_then(|mut devices| devices.pop());
        let conditions = device.iter().flat_map(|device| device.conditions.iter().flatten());
        let ready = conditions.filter(|condition| condition.status == "True").count();
        let status = format!("{device:?}");
        let data = device.and_then(|device| device.network_data).filter(|_| ready == 2);
        Ok(match data {
            Some(data) => Check::Done(serde_json::to_value(data)?),
            None => Check::NotYet(status),
        })
    })
    .await
}
