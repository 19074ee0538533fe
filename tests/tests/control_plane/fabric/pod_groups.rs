//! Groups that kube-scheduler places itself: a `PodGroup` with a topology constraint (feature gates
//! `GenericWorkload` and `TopologyAwareWorkloadScheduling`). The user creates it, or with
//! `--pod-groups` the fabric controller.

use std::{collections::BTreeSet, fmt::Debug, sync::Arc};

use anyhow::Context;
use k8s_openapi::api::{
    core::v1::{Pod, PodSchedulingGate},
    scheduling::{
        v1alpha3::CompositePodGroup,
        v1beta1::{PodGroup, Workload},
    },
};
use kube::{
    Api, ResourceExt,
    api::{DeleteParams, ListParams, Patch, PatchParams, PostParams},
};
use serde_json::{Value, json};
use tests::{Check, ControlPlane, Options, Scope, eventually};

use super::{
    gangs::{end, job, run},
    site::{
        FABRIC, POD_GROUPS, SOON, create, fabrics, is_held, node, placed, pod, pods, says,
        template, with_fabrics,
    },
};

const WORKLOADS: &str = "GenericWorkload=true";
const TOPOLOGY: &str = "TopologyAwareWorkloadScheduling=true";
/// The Job controller makes a Workload and a PodGroup for each Job.
const JOBS: &str = "WorkloadWithJob=true";
const COMPOSITES: &str = "CompositePodGroup=true";
const KUEUE: &str = "kueue.x-k8s.io/admission";

pub(super) async fn the_scheduler_places_a_group_with_a_topology_constraint(
    _: Arc<ControlPlane>,
) -> anyhow::Result<()> {
    let plane = plane_with(&[WORKLOADS, TOPOLOGY]).await?;
    with_fabrics(plane, (2, 2), 1, &[], async |scope, _| {
        // One node of a fabric is taken, so that the group has room only on the other.
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

        // Without the constraint, the fabric controller places the group.
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

/// Two pods of a named group and a Job, with room for one of them at a time.
pub(super) async fn the_scheduler_places_groups_by_the_controllers_pod_groups(
    _: Arc<ControlPlane>,
) -> anyhow::Result<()> {
    let plane = plane_with(&[WORKLOADS, TOPOLOGY]).await?;
    with_fabrics(plane, (2, 2), 1, &[POD_GROUPS], async |scope, installation| {
        let on = fabrics(scope).await?;
        let (taken, first) = on.iter().next().context("nodes have fabrics")?;
        create(scope, &alone(taken)?).await?;
        scope.bound("alone", SOON).await?;

        // The PodGroup is created with the first pod, and the scheduler waits for the second.
        create(scope, &named_member("named-0")?).await?;
        let made = made_for(scope, "gang=named").await?;
        let gang = made.spec.scheduling_policy.gang.as_ref();
        assert_eq!(gang.map(|it| it.min_count), Some(2));
        says(scope, "gang=named", 1, "GroupNotWhole").await?;
        let held = scope.api::<Pod>().get("named-0").await?;
        assert!(!is_held(&held) && node(&held).is_none(), "the scheduler holds it: {held:?}");

        // The gate of another controller is left to that controller.
        let mut gated = named_member("named-1")?;
        let spec = gated.spec.as_mut().context("a specification")?;
        spec.scheduling_gates = Some(vec![PodSchedulingGate { name: KUEUE.to_owned() }]);
        create(scope, &gated).await?;
        let job = run(scope, &job("job", 2, true)).await?;
        let fabric = placed(scope, &job, 2).await?;
        assert_ne!(&fabric, first, "one fabric alone has room for the Job");
        assert!(pods(scope, "gang=named").await?.iter().all(|pod| node(pod).is_none()));

        // Without the gate the group is complete, and no fabric has room for all of it.
        let admitted = json!({"spec": {"schedulingGates": [{"name": KUEUE, "$patch": "delete"}]}});
        let admitted = Patch::Strategic(admitted);
        scope.api::<Pod>().patch("named-1", &PatchParams::default(), &admitted).await?;
        says_unschedulable(scope, "named-0").await?;
        says(scope, "gang=named", 1, "PodGroupCreated").await?;
        assert!(pods(scope, "gang=named").await?.iter().all(|pod| node(pod).is_none()));
        let of_job = made_for(scope, &job).await?.name_any();
        end(scope, "job").await?;
        assert_eq!(placed(scope, "gang=named", 2).await?, fabric);

        // The PodGroup of the Job is deleted with its pods, and no other one is.
        let names = async || {
            let all = scope.api::<PodGroup>().list(&ListParams::default()).await?;
            anyhow::Ok(all.iter().map(ResourceExt::name_any).collect::<Vec<_>>())
        };
        eventually(SOON, async || {
            let there = names().await?;
            let is_done = there == [made.name_any()];
            Ok(Check::that(is_done, || format!("{there:?} are there, {of_job} among them?")))
        })
        .await?;

        // The controller has no more permissions than it uses.
        group(scope, "theirs", &Value::Null).await?;
        let client = installation.client_as("fabric-controller").await?;
        let groups: Api<PodGroup> = Api::namespaced(client, scope.namespace());
        let deleted = groups.delete("theirs", &DeleteParams::default()).await;
        forbidden(deleted, "writes only PodGroups of its own groups");
        Ok(())
    })
    .await
}

/// The constraint of an existing PodGroup cannot be changed, so these groups are placed by gates. The
/// scheduler places each PodGroup as a gang all the same.
pub(super) async fn groups_with_pod_groups_of_their_workload_are_joined(
    _: Arc<ControlPlane>,
) -> anyhow::Result<()> {
    let plane = plane_with(&[WORKLOADS, TOPOLOGY, JOBS, COMPOSITES]).await?;
    with_fabrics(plane, (2, 2), 1, &[POD_GROUPS], async |scope, _| {
        let on = fabrics(scope).await?;
        let (taken, first) = on.iter().next().context("nodes have fabrics")?;
        create(scope, &alone(taken)?).await?;
        scope.bound("alone", SOON).await?;

        // The Job controller makes a PodGroup for its pods.
        let indexed = run(scope, &job("indexed", 2, true)).await?;
        assert_ne!(&placed(scope, &indexed, 2).await?, first, "there is room for one only");
        let members = pods(scope, &indexed).await?;
        let groups: BTreeSet<_> = members.iter().filter_map(pod_group_of).collect();
        assert_eq!(groups.len(), 1, "{groups:?}");
        assert!(groups.iter().all(|name| !name.starts_with("dranet-")), "{groups:?}");
        end(scope, "indexed").await?;

        group(scope, "theirs", &Value::Null).await?;
        for name in ["theirs-0", "theirs-1"] {
            create_member(scope, name, "theirs").await?;
        }
        assert_ne!(&placed(scope, "group=theirs", 2).await?, first);
        remove(scope, "group=theirs").await?;

        // Two PodGroups of one pod each, in a CompositePodGroup: one job.
        composite(scope, "whole", &["half-0", "half-1"]).await?;
        for half in ["half-0", "half-1"] {
            let mut pod = member(half, half)?;
            pod.metadata.labels.get_or_insert_default().insert("job".into(), "whole".into());
            let annotations = pod.metadata.annotations.get_or_insert_default();
            annotations.insert("dranet.io/fabric-size".into(), "2".into());
            create_when_known(scope, &pod).await?;
        }
        let fabric = placed(scope, "job=whole", 2).await?;
        assert_ne!(&fabric, first, "the halves are one group");
        Ok(())
    })
    .await
}

/// `TopologyAwareWorkloadScheduling` is off, and kube-apiserver silently drops the field.
pub(super) async fn no_group_is_placed_where_the_constraint_is_dropped(
    _: Arc<ControlPlane>,
) -> anyhow::Result<()> {
    let plane = plane_with(&[WORKLOADS]).await?;
    with_fabrics(plane, (1, 2), 1, &[POD_GROUPS], async |scope, _| {
        for name in ["named-0", "named-1"] {
            create(scope, &named_member(name)?).await?;
        }
        says(scope, "gang=named", 2, "ConstraintDropped").await?;
        let made = scope.api::<PodGroup>().list(&ListParams::default()).await?.items;
        assert!(made.is_empty(), "{made:?}");
        assert!(pods(scope, "gang=named").await?.iter().all(|pod| node(pod).is_none()));
        Ok(())
    })
    .await
}

/// Starts a separate control plane, since the workload API is off by default.
async fn plane_with(gates: &[&str]) -> anyhow::Result<Arc<ControlPlane>> {
    let options = Options {
        feature_gates: gates.iter().map(|gate| (*gate).to_owned()).collect(),
        apiserver_args: vec![
            "--runtime-config=scheduling.k8s.io/v1beta1=true,scheduling.k8s.io/v1alpha3=true"
                .to_owned(),
        ],
        ..Options::default()
    };
    Ok(Arc::new(ControlPlane::start(options).await?))
}

fn forbidden<T: Debug>(answer: kube::Result<T>, why: &str) {
    match answer {
        Err(kube::Error::Api(status)) if status.code == 403 => {
            assert!(status.message.contains(why), "{}", status.message);
        }
        other => panic!("it is not forbidden: {other:?}"),
    }
}

/// A pod of a named group of two.
fn named_member(name: &str) -> anyhow::Result<Pod> {
    let mut pod = serde_json::to_value(pod(name, "named", 2, true))?;
    pod["metadata"]["labels"] = json!({"gang": "named"});
    Ok(serde_json::from_value(pod)?)
}

/// The PodGroup that pods name, as soon as it exists.
async fn made_for(scope: &Scope, labels: &str) -> anyhow::Result<PodGroup> {
    let pods = pods(scope, labels).await?;
    let pod = pods.first().context("a pod")?;
    let named = pod.spec.as_ref().and_then(|spec| spec.scheduling_group.as_ref());
    let name = named.and_then(|it| it.pod_group_name.clone()).context("the pod names its group")?;
    let made = eventually(SOON, async || {
        let made = scope.api::<PodGroup>().get_opt(&name).await?;
        Ok(made.map_or_else(|| Check::NotYet(format!("no PodGroup `{name}`")), Check::Done))
    })
    .await?;
    let topology = made.spec.scheduling_constraints.clone().and_then(|it| it.topology);
    let keys: Vec<_> = topology.into_iter().flatten().map(|it| it.key).collect();
    assert_eq!(keys, [FABRIC]);
    Ok(made)
}

/// Waits until the scheduler reports that it finds no place for a pod.
async fn says_unschedulable(scope: &Scope, pod: &str) -> anyhow::Result<()> {
    eventually(SOON, async || {
        let status = scope.api::<Pod>().get(pod).await?.status.unwrap_or_default();
        let conditions = status.conditions.unwrap_or_default();
        let is_said = conditions
            .iter()
            .any(|it| it.type_ == "PodScheduled" && it.reason.as_deref() == Some("Unschedulable"));
        Ok(Check::that(is_said, || format!("{conditions:?}")))
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

fn member(name: &str, group: &str) -> anyhow::Result<Pod> {
    let mut pod = template("same", true);
    pod["metadata"]["name"] = name.into();
    pod["metadata"]["labels"] = json!({"group": group});
    pod["spec"]["schedulingGroup"] = json!({"podGroupName": group});
    Ok(serde_json::from_value(pod)?)
}

/// A pod of a group, created again until admission has seen the group.
async fn create_member(scope: &Scope, name: &str, group: &str) -> anyhow::Result<()> {
    create_when_known(scope, &member(name, group)?).await
}

async fn create_when_known(scope: &Scope, pod: &Pod) -> anyhow::Result<()> {
    eventually(SOON, async || match create(scope, pod).await {
        Ok(()) => Ok(Check::Done(())),
        Err(error) if error.to_string().contains("is not known yet") => {
            Ok(Check::NotYet(error.to_string()))
        }
        Err(error) => Err(error),
    })
    .await
}

/// The name of the PodGroup of a pod.
fn pod_group_of(pod: &Pod) -> Option<String> {
    pod.spec.as_ref()?.scheduling_group.as_ref()?.pod_group_name.clone()
}

/// Deletes pods at once.
async fn remove(scope: &Scope, labels: &str) -> anyhow::Result<()> {
    let now = DeleteParams::default().grace_period(0);
    let of_label = ListParams::default().labels(labels);
    scope.api::<Pod>().delete_collection(&now, &of_label).await?;
    eventually(SOON, async || {
        let left = pods(scope, labels).await?.len();
        Ok(Check::that(left == 0, || format!("{left} pods are left")))
    })
    .await
}

/// A `CompositePodGroup` with `PodGroup`s of one pod each, and their Workload.
async fn composite(scope: &Scope, name: &str, halves: &[&str]) -> anyhow::Result<()> {
    let gang = json!({"gang": {"minCount": 1}});
    let templates: Vec<_> =
        halves.iter().map(|half| json!({"name": half, "schedulingPolicy": gang})).collect();
    let workload = json!({
        "metadata": {"name": name},
        "spec": {"compositePodGroupTemplates": [{
            "name": name, "schedulingPolicy": {"basic": {}}, "podGroupTemplates": templates,
        }]},
    });
    let workload = serde_json::from_value(workload)?;
    scope.api::<Workload>().create(&PostParams::default(), &workload).await?;
    let reference = |template: &str| json!({"workloadName": name, "templateName": template});
    let outer = serde_json::from_value(json!({
        "metadata": {"name": name},
        "spec": {"schedulingPolicy": {"basic": {}}, "workloadRef": reference(name)},
    }))?;
    scope.api::<CompositePodGroup>().create(&PostParams::default(), &outer).await?;
    for half in halves {
        let inner = serde_json::from_value(json!({
            "metadata": {"name": half},
            "spec": {
                "schedulingPolicy": gang,
                "workloadRef": reference(half),
                "parentCompositePodGroupName": name,
            },
        }))?;
        let made = scope.api::<PodGroup>().create(&PostParams::default(), &inner).await?;
        let kept = made.spec.parent_composite_pod_group_name.is_some();
        anyhow::ensure!(kept, "the gates are not on: {made:?}");
    }
    Ok(())
}
