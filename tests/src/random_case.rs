//! Random clusters and pods, as values: what a campaign changes in a cluster, which pods run there, and
//! the pod or the workload that it asks about. A seed always gives the same case.

mod devices;
mod kinds;
mod volumes;

use std::collections::BTreeMap;

use serde_json::{Value, json};

pub use self::devices::node_of_pool;
pub use self::kinds::{KINDS, Kind};
use crate::random::Random;

/// The name of the pod or the workload that is asked about.
pub const NAME: &str = "asked";
/// The CPUs of each node.
const CPUS: usize = 128;
/// Labels of nodes that cases set.
pub const NODE_LABELS: [&str; 2] = [ZONE, TIER];
/// The label of the namespace of the cases: claims there may ask for `adminAccess`.
pub const NAMESPACE_LABEL: &str = "resource.kubernetes.io/admin-access";
const ZONE: &str = "tests.dranet.io/zone";
const TIER: &str = "tests.dranet.io/tier";

/// A random cluster with a pod or a workload.
#[derive(Clone, Debug, PartialEq)]
pub struct Case {
    /// The seed that draws the case again.
    pub seed: u64,
    /// The names of its kinds.
    pub kinds: Vec<&'static str>,
    /// Merge patches of nodes, by name.
    pub nodes: BTreeMap<String, Value>,
    /// Objects that exist before the pods.
    pub objects: Vec<Value>,
    /// Pods that run, and those that are scheduled before.
    pub earlier: Vec<Value>,
    /// The pod that is asked about, or one of the workload's.
    pub pod: Value,
    /// The pods of the workload; `None` for a single pod.
    pub group: Option<usize>,
    /// The workload of a group.
    pub workload: Workload,
}

/// What creates the pods of a group.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Workload {
    /// As many pods as it needs.
    Job,
    /// As many pods at a time, and more after them.
    LongJob,
    /// All pods at once.
    StatefulSet,
    /// Pods by a template, of which none has a name of its own.
    Deployment,
}

impl Workload {
    const ALL: [Self; 6] =
        [Self::Job, Self::Job, Self::Job, Self::LongJob, Self::StatefulSet, Self::Deployment];

    /// `apiVersion`, `kind` and `spec` of one with this number of pods.
    fn of(self, pods: usize) -> (&'static str, &'static str, Value) {
        let selector = json!({"matchLabels": {"tests.dranet.io/workload": NAME}});
        match self {
            Self::Job | Self::LongJob => {
                let more = if self == Self::Job { 0 } else { 2 };
                let spec = json!({"parallelism": pods, "completions": pods + more});
                ("batch/v1", "Job", spec)
            }
            Self::StatefulSet => {
                let spec = json!({
                    "replicas": pods, "selector": selector, "serviceName": NAME,
                    "podManagementPolicy": "Parallel",
                });
                ("apps/v1", "StatefulSet", spec)
            }
            Self::Deployment => {
                ("apps/v1", "Deployment", json!({"replicas": pods, "selector": selector}))
            }
        }
    }
}

impl Case {
    /// Draws the case of a seed on these nodes.
    pub fn draw(seed: u64, nodes: &[String], is_group: bool) -> Self {
        // Small seeds differ in few bits, and 0 is none.
        let mut random = Random(seed.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
        random.bits();
        let mut case = Self::with_devices_in_use(seed, nodes, &mut random);
        if is_group {
            case.group = Some(2 + random.below(3));
            case.workload = *random.pick(&Workload::ALL);
            case.pod["metadata"]["annotations"]["dranet.io/fabric"] = json!("same");
        }
        let usable: Vec<&Kind> = KINDS.iter().filter(|kind| kind.may_be_drawn(is_group)).collect();
        for _ in 0..=random.below(3) {
            let kind = random.pick(&usable);
            let is_other_claim = kind.has_claim
                && KINDS.iter().any(|it| it.has_claim && case.kinds.contains(&it.name));
            if !case.kinds.contains(&kind.name) && !is_other_claim {
                case.kinds.push(kind.name);
                (kind.add)(&mut case, nodes, &mut random);
            }
        }
        case
    }

    /// A pod with an annotation, and earlier pods that have devices.
    fn with_devices_in_use(seed: u64, nodes: &[String], random: &mut Random) -> Self {
        let mut case = Self {
            seed,
            kinds: Vec::new(),
            nodes: BTreeMap::new(),
            objects: Vec::new(),
            earlier: Vec::new(),
            pod: annotated(NAME, random),
            group: None,
            workload: Workload::Job,
        };
        for number in 0..random.below(nodes.len() + 1) {
            let mut pod = annotated(&format!("earlier-{number}"), random);
            pod["spec"]["nodeSelector"] = json!({"kubernetes.io/hostname": random.pick(nodes)});
            case.earlier.push(tolerant(pod));
        }
        case
    }

    /// The pod or the workload, as a file has it.
    pub fn document(&self) -> Value {
        let Some(size) = self.group else { return self.pod.clone() };
        let mut template = json!({"metadata": self.pod["metadata"], "spec": self.pod["spec"]});
        template["metadata"]["name"] = Value::Null;
        template["metadata"]["labels"]["tests.dranet.io/workload"] = json!(NAME);
        // Nobody waits for the end of pods that their controller creates once more.
        template["spec"]["terminationGracePeriodSeconds"] = json!(0);
        let (version, kind, mut spec) = self.workload.of(size);
        if kind == "Job" {
            template["spec"]["restartPolicy"] = json!("Never");
        }
        spec["template"] = template;
        json!({"apiVersion": version, "kind": kind, "metadata": {"name": NAME}, "spec": spec})
    }

    /// The shape of a pod that asks for nothing but devices where no taint keeps pods away, as
    /// `capacity --shape` has it.
    pub fn shape(&self) -> Option<String> {
        let annotations = &self.pod["metadata"]["annotations"];
        let is_plain = self.group.is_none() && self.kinds == ["device taint rule"];
        let is_default = annotations.as_object().is_some_and(|all| all.len() == 2);
        let [gpus, nics] =
            ["dranet.io/gpus", "dranet.io/aligned-nics"].map(|name| annotations[name].as_str());
        Some(format!("{}gpu:{}nic", gpus?, nics?)).filter(|_| is_plain && is_default)
    }

    /// Adds a pod that runs on a node.
    fn run(&mut self, node: &str, spec: &Value) -> &mut Value {
        // Other kinds may have removed some.
        let mut names = (self.earlier.len()..).map(|number| format!("running-{number}"));
        let is_free =
            |name: &String| self.earlier.iter().all(|it| it["metadata"]["name"] != **name);
        let name = names.find(is_free);
        let mut pod = json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": name, "labels": {"app": "running"}},
            "spec": spec,
        });
        pod["spec"]["nodeName"] = json!(node);
        self.earlier.push(tolerant(pod));
        let last = self.earlier.len() - 1;
        &mut self.earlier[last]
    }

    /// The merge patch of a node.
    fn node(&mut self, name: &str) -> &mut Value {
        self.nodes.entry(name.to_owned()).or_insert_with(|| json!({}))
    }

    /// Puts nodes into two zones, in turn.
    fn give_zones(&mut self, nodes: &[String]) {
        for (number, node) in nodes.iter().enumerate() {
            self.node(node)["metadata"]["labels"][ZONE] = json!(["a", "b"][number % 2]);
        }
    }
}

/// A pod that asks for GPUs and NICs by annotations.
fn annotated(name: &str, random: &mut Random) -> Value {
    let mut annotations = json!({
        "dranet.io/aligned-nics": random.pick(&[1, 1, 2, 2, 3, 4]).to_string(),
        "dranet.io/gpus": random.pick(&[1, 1, 2, 4]).to_string(),
    });
    if random.below(3) == 0 {
        annotations["dranet.io/alignment-policy"] = json!("preferred");
    }
    if random.below(3) == 0 {
        annotations["dranet.io/pairing"] = json!("group");
    }
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": name, "annotations": annotations},
        "spec": {"containers": [{"name": "main", "image": "none"}]},
    })
}

/// The same pod where no taint evicts it, and nobody waits for its end.
fn tolerant(mut pod: Value) -> Value {
    pod["spec"]["tolerations"] = json!([{"operator": "Exists"}]);
    pod["spec"]["terminationGracePeriodSeconds"] = json!(0);
    pod
}

/// The spec of a pod that requests CPUs.
fn with_cpus(cpus: usize) -> Value {
    let requests = json!({"cpu": cpus.to_string()});
    json!({"containers": [{"name": "main", "image": "none", "resources": {"requests": requests}}]})
}

/// Adds an item to an array, which need not exist.
fn push(array: &mut Value, item: Value) {
    match array {
        Value::Array(items) => items.push(item),
        other => *other = json!([item]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    fn nodes() -> Vec<String> {
        ["a", "b", "c", "d"].map(str::to_owned).to_vec()
    }

    #[test]
    fn a_seed_always_gives_the_same_case() {
        for seed in 0..100 {
            for is_group in [false, true] {
                let draw = || Case::draw(seed, &nodes(), is_group);
                assert_eq!(draw(), draw());
            }
        }
        assert_ne!(Case::draw(1, &nodes(), false).pod, Case::draw(4, &nodes(), false).pod);
    }

    #[test]
    fn every_kind_is_drawn() {
        for is_group in [false, true] {
            let cases = (0..1000).map(|seed| Case::draw(seed, &nodes(), is_group));
            let drawn: BTreeSet<_> = cases.flat_map(|case| case.kinds).collect();
            let all = KINDS.iter().filter(|kind| kind.may_be_drawn(is_group));
            assert_eq!(drawn, all.map(|kind| kind.name).collect());
        }
    }

    #[test]
    fn a_group_is_a_workload_of_its_pods() {
        for seed in 0..50 {
            let case = Case::draw(seed, &nodes(), true);
            let all = case.document();
            let size = ["parallelism", "replicas"].map(|field| all["spec"][field].as_u64());
            assert_eq!(size.into_iter().flatten().next(), case.group.map(|size| size as u64));
            let template = &all["spec"]["template"]["spec"];
            assert_eq!(template["containers"], case.pod["spec"]["containers"]);
        }
    }
}
