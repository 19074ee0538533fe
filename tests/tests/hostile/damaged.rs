//! Graphs of nodes that are damaged in any way, and gangs of tenants whose annotations contradict
//! themselves and each other. Whatever the API server accepts of them, the programs go on, and pods
//! of others are placed.

use std::{sync::Arc, time::Duration};

use futures::{StreamExt, TryStreamExt, stream};
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::{
    Api,
    api::{Patch, PatchParams, PostParams},
};
use serde_json::{Map, Value, json};
use tests::{
    ControlPlane, Process, SchedulerConfig, Scope,
    installation::{ControllerReplica, Installation, Replica},
    random::Random,
    suite::Test,
    with_scope,
};
use topology_graph::NodeTopology;

use super::pods::{create, pod};

const SOON: Duration = Duration::from_mins(2);
/// Changed graphs, on so many nodes in turn.
const GRAPHS: usize = 1_500;
const NODES: usize = 10;
const GANGS: usize = 400;
/// The taint of a node for a gang that nothing contradicts.
const KEPT: &str = "tests/kept";
/// The number of parallel requests.
const TOGETHER: usize = 8;

pub(crate) fn tests() -> Vec<Test> {
    let all =
        tests::attempts![damaged_graphs_stop_no_program, contradictory_gangs_stop_no_other_gang,];
    all.into_iter().map(Test::alone).collect()
}

async fn damaged_graphs_stop_no_program(plane: Arc<ControlPlane>) -> anyhow::Result<String> {
    with_all_programs(&plane, async |scope, installation| {
        let healthy = installation.gb300("healthy").await?;
        let mut nodes = Vec::new();
        for number in 0..NODES {
            nodes.push(installation.add_copy(&healthy, &format!("damaged-{number}")).await?);
        }
        let graphs = Api::<NodeTopology>::all(plane.client());
        let original = serde_json::to_value(graphs.get(&healthy).await?.spec)?;
        let write = async |number: usize| {
            let mut spec = original.clone();
            let mut random = Random(number as u64 + 1);
            for _ in 0..=random.below(3) {
                damage(&mut spec, &mut random);
            }
            // Replaced as a whole, since a merge would keep what is missing.
            let replace = json!([{"op": "replace", "path": "/spec", "value": spec}]);
            let patch = Patch::<()>::Json(serde_json::from_value(replace)?);
            let node = &nodes[number % NODES];
            accepted(graphs.patch(node, &PatchParams::default(), &patch).await.map(drop))
        };
        let written = stream::iter(0..GRAPHS).map(write).buffer_unordered(TOGETHER);
        let accepted = written.try_filter(|accepted| std::future::ready(*accepted)).count().await;
        anyhow::ensure!(accepted > GRAPHS / 10, "only {accepted} of {GRAPHS} reached a program");
        let mut pod = pod("honest", &json!({"dranet.io/aligned-nics": "1"}));
        pod["spec"]["nodeSelector"] = json!({"kubernetes.io/hostname": healthy});
        create(scope, &pod).await?;
        scope.bound("honest", SOON).await?;
        Ok(format!("{accepted} of {GRAPHS} were accepted; no program ended; a pod was placed"))
    })
    .await
}

async fn contradictory_gangs_stop_no_other_gang(
    plane: Arc<ControlPlane>,
) -> anyhow::Result<String> {
    with_all_programs(&plane, async |scope, installation| {
        let first = installation.gb300("one").await?;
        installation.add_copy(&first, "two").await?;
        // The others may fill all of these. Their pods do not tolerate this one.
        let kept = installation.gb300_in("kept", "kept").await?;
        let taint = json!({"spec": {"taints": [
            {"key": KEPT, "value": "", "effect": "NoSchedule"},
        ]}});
        let nodes = Api::<Node>::all(plane.client());
        nodes.patch(&kept, &PatchParams::default(), &Patch::Merge(taint)).await?;
        let gang = async |number: usize| {
            let mut random = Random(number as u64 + 1);
            let mut members = 0;
            for member in 0..=random.below(2) {
                let pod = pod(&format!("g{number}-{member}"), &contradictory(&mut random));
                let pod: Pod = serde_json::from_value(pod)?;
                let created = scope.api::<Pod>().create(&PostParams::default(), &pod).await;
                members += usize::from(accepted(created.map(drop))?);
            }
            anyhow::Ok(members)
        };
        let created = stream::iter(0..GANGS).map(gang).buffer_unordered(TOGETHER);
        let created: Vec<usize> = created.try_collect().await?;
        let created = created.into_iter().filter(|members| *members > 0).count();
        anyhow::ensure!(created > GANGS / 10, "only {created} of {GANGS} reached a program");
        let honest = json!({
            "dranet.io/aligned-nics": "per-gpu",
            "dranet.io/fabric": "honest",
            "dranet.io/fabric-size": "2",
        });
        for name in ["honest-0", "honest-1"] {
            let mut pod = pod(name, &honest);
            pod["spec"]["tolerations"] = json!([{"key": KEPT, "operator": "Exists"}]);
            create(scope, &pod).await?;
        }
        for name in ["honest-0", "honest-1"] {
            scope.bound(name, SOON).await?;
        }
        Ok(format!("{created} of {GANGS} were created; no program ended; a gang was placed"))
    })
    .await
}

/// A test with admission, the fabric controller and the extender, none of which may end.
async fn with_all_programs(
    plane: &Arc<ControlPlane>,
    test: impl AsyncFnOnce(&Scope, &Installation<'_>) -> anyhow::Result<String>,
) -> anyhow::Result<String> {
    let outcome = with_scope(plane.client(), async |scope| {
        let mut installation = Installation::install(plane, scope).await?;
        installation.start_replicas(1, &["--fabric-controller"]).await?;
        installation.start_fabric_controllers(1, &[]).await?;
        installation.start_extender().await?;
        let seen = test(scope, &installation).await;
        let admission = installation.replicas().iter().map(Replica::process);
        let fabric = installation.fabric_controllers().iter().map(ControllerReplica::process);
        let mut all = admission.chain(fabric).chain([installation.extender()?.process()]);
        if let Some(ended) = all.find(|process| process.has_ended()) {
            anyhow::bail!("{} has ended: {}", Process::name(ended), ended.tail(20));
        }
        seen
    })
    .await;
    plane.restart_scheduler(&SchedulerConfig::default()).await?;
    outcome
}

/// Whether the API server and admission took the object. Other failures are errors.
fn accepted(written: kube::Result<()>) -> anyhow::Result<bool> {
    match written {
        Ok(()) => Ok(true),
        Err(kube::Error::Api(status)) if matches!(status.code, 400 | 403 | 422) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// Changes one value at any depth: removes it, doubles it, or gives it another type or size.
fn damage(value: &mut Value, random: &mut Random) {
    match value {
        Value::Object(fields) if !fields.is_empty() => damage_object(fields, random),
        Value::Array(items) if !items.is_empty() => {
            let at = random.below(items.len());
            match random.below(8) {
                0 => drop(items.remove(at)),
                1 => items.push(items[at].clone()),
                2 => items.reverse(),
                _ => damage(&mut items[at], random),
            }
        }
        leaf => *leaf = odd(leaf, random),
    }
}

fn damage_object(fields: &mut Map<String, Value>, random: &mut Random) {
    let keys: Vec<_> = fields.keys().cloned().collect();
    let key = random.pick(&keys);
    if random.below(8) == 0 {
        fields.remove(key);
    } else if let Some(value) = fields.get_mut(key) {
        damage(value, random);
    }
}

/// A value that does not belong there, mostly of the same type, so that the schema accepts it.
fn odd(value: &Value, random: &mut Random) -> Value {
    match (value, random.below(8)) {
        (_, 0) => Value::Null,
        (_, 1) => json!({}),
        (Value::Number(_), _) => {
            random.pick(&[json!(0), json!(-1), json!(7), json!(65_535), json!(i64::MAX)]).clone()
        }
        (Value::Bool(it), _) => json!(!it),
        (Value::String(it), 2) => json!(it.repeat(100)),
        (Value::String(_), _) => {
            let odd = ["", "0000:00:00.0", "pci0000:00", "0-", "ü", "ffff:ff:1f.7", "1x1", "\0"];
            json!(random.pick(&odd))
        }
        (other, _) => other.clone(),
    }
}

/// Annotations of a gang that hardly fit each other. They share a few groups.
fn contradictory(random: &mut Random) -> Value {
    const VALUES: [(&str, &[&str]); 9] = [
        ("dranet.io/fabric-size", &["2", "2", "3", "400", "0", "-1", "4294967296", "two"]),
        ("dranet.io/fabric-level", &["nvlink", "block=preferred", "nvlink,block", "nvlink,nvlink"]),
        ("dranet.io/domain-size", &["2", "3", "1000000", "0"]),
        ("dranet.io/fabric-wait", &["1", "0", "18446744073709551615"]),
        ("dranet.io/rail", &["same", "other"]),
        ("dranet.io/alignment", &["switch", "socket", "none"]),
        ("dranet.io/alignment-policy", &["required", "preferred"]),
        ("dranet.io/fabric-chosen", &["group-1", "{}"]),
        ("dranet.io/request-hash", &["0", "00000000000000000000000000000000"]),
    ];
    let mut annotations = Map::new();
    let nics = *random.pick(&["1", "1", "per-gpu", "31"]);
    annotations.insert("dranet.io/aligned-nics".to_owned(), nics.into());
    let group = match random.below(16) {
        0 => "same".to_owned(),
        1 => "a".repeat(300),
        number => format!("group-{number}"),
    };
    annotations.insert("dranet.io/fabric".to_owned(), group.into());
    for (name, values) in VALUES {
        // A gang needs a size, which also separates those that share a group.
        let is_rare = name != "dranet.io/fabric-size";
        if random.below(if is_rare { 8 } else { 1 }) == 0 {
            annotations.insert(name.to_owned(), (*random.pick(values)).into());
        }
    }
    Value::Object(annotations)
}
