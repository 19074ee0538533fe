//! Groups that kube-scheduler places itself: `PodGroup` with a topology constraint, feature
//! gates `GenericWorkload` and `TopologyAwareWorkloadScheduling`.

use std::sync::Arc;

use anyhow::Context;
use k8s_openapi::api::{core::v1::Pod, scheduling::v1beta1::PodGroup};
use kube::api::PostParams;
use serde_json::{Value, json};
use tests::{Check, ControlPlane, Options, Scope, eventually};

use super::site::{SOON, create, fabrics, is_held, placed, pods, template, with_fabrics};

/// The workload API is off by default, so this has a control plane of its own.
pub(super) async fn the_scheduler_places_a_group_with_a_topology_constraint(
    _: Arc<ControlPlane>,
) -> anyhow::Result<()> {
    let gates = ["GenericWorkload=true", "TopologyAwareWorkloadScheduling=true"];
    let options = Options {
        feature_gates: gates.map(str::to_owned).to_vec(),
        apiserver_args: vec!["--runtime-config=scheduling.k8s.io/v1beta1=true".to_owned()],
        ..Options::default()
    };
    let plane = Arc::new(ControlPlane::start(options).await?);
    with_fabrics(plane, (2, 2), 1, &[], async |scope, _| {
        // One node of a fabric is taken, so that the group has room on the other alone.
        let on = fabrics(scope).await?;
        let (taken, first) = on.iter().next().context("nodes have fabrics")?;
        create(scope, &alone(taken)?).await?;
        scope.bound("alone", SOON).await?;

        group(scope, "native", &json!({"topology": [{"key": "topology.dranet.io/fabric"}]}))
            .await?;
        for name in ["native-0", "native-1"] {
            create_member(scope, name, "native").await?;
        }
        let members = pods(scope, "group=native").await?;
        assert!(members.iter().all(|pod| !is_held(pod)), "the scheduler places them: {members:?}");
        let fabric = placed(scope, "group=native", 2).await?;
        assert_ne!(&fabric, first, "there is room for one only");

        // Without the constraint it is for the fabric controller.
        group(scope, "ours", &Value::Null).await?;
        for name in ["ours-0", "ours-1"] {
            create_member(scope, name, "ours").await?;
        }
        let members = pods(scope, "group=ours").await?;
        assert!(members.len() == 2 && members.iter().all(is_held), "{members:?}");
        Ok(())
    })
    .await
}

/// A pod with all GPUs of a node.
fn alone(node: &str) -> anyhow::Result<Pod> {
    let mut pod = template("same", true);
    pod["metadata"] =
        json!({"name": "alone", "annotations": {"dranet.io/aligned-nics": "per-gpu"}});
    pod["spec"]["nodeSelector"] = json!({"kubernetes.io/hostname": node});
    Ok(serde_json::from_value(pod)?)
}

async fn group(scope: &Scope, name: &str, constraints: &Value) -> anyhow::Result<()> {
    let object = serde_json::from_value(json!({
        "metadata": {"name": name},
        "spec": {
            "schedulingPolicy": {"gang": {"minCount": 2}},
            "schedulingConstraints": constraints,
        },
    }))?;
    let group = scope.api::<PodGroup>().create(&PostParams::default(), &object).await?;
    let kept = group.spec.scheduling_constraints.is_some();
    anyhow::ensure!(kept != constraints.is_null(), "the gates are not on: {group:?}");
    Ok(())
}

/// A pod of a group, created again until admission has seen the group.
async fn create_member(scope: &Scope, name: &str, group: &str) -> anyhow::Result<()> {
    let mut pod = template("same", true);
    pod["metadata"]["name"] = name.into();
    pod["metadata"]["labels"] = json!({"group": group});
    pod["spec"]["schedulingGroup"] = json!({"podGroupName": group});
    let pod: Pod = serde_json::from_value(pod)?;
    eventually(SOON, async || match create(scope, &pod).await {
        Ok(()) => Ok(Check::Done(())),
        Err(error) if error.to_string().contains("has not been seen") => {
            Ok(Check::NotYet(error.to_string()))
        }
        Err(error) => Err(error),
    })
    .await
}
