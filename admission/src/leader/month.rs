//! A month of a cluster in steps of twenty minutes: pods, namespaces and nodes come and go, three replicas
//! decide on pods and take turns in leading, or nobody leads for hours, one of their clocks is wrong, and
//! Secrets are applied again, empty. The leader's tasks and the requests' part of the program do the work,
//! on an API server in memory.

mod api_server;
mod replica;

use super::*;
use crate::admit::admit;
use crate::cluster::{self, Built, GB300};
use crate::server::authority::Writer;
use crate::server::certificate::{bundle, data};
use api_server::ApiServer;
use cluster_model::names::object;
use cluster_model::remembered::Remembered;
use cluster_model::retention::LAST_SEEN;
use cluster_model::unremembered::present;
use cluster_model::view::{ClusterView, ObjectKey};
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use k8s_openapi::api::resource::v1::{ResourceClaimTemplate, ResourceSlice};
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use proptest::test_runner::Config as ProptestConfig;
use publication::sharing::SharingArgs;
use replica::{NAMESPACE, Replica, names};
use serde_json::{Value, json};
use serve::authority::CertificateBundle;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

const STEP: SignedDuration = SignedDuration::from_mins(20);
const HOUR: usize = 3;
const DAY: usize = 24 * HOUR;
const MONTH: usize = 30 * DAY;
/// Namespaces with pods; each has templates of its own.
const NAMESPACES: usize = 12;
/// Steps with a leader after which an unused template is gone: its hour, twice the wrong clock, and two
/// rounds.
const GONE_AFTER: usize = HOUR + 2 + 2;

/// Repeatable chance (splitmix64).
struct Dice(u64);

impl Dice {
    fn below(&mut self, sides: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        usize::try_from((mixed ^ (mixed >> 31)) % sides as u64).unwrap()
    }

    fn one_in(&mut self, sides: usize) -> bool {
        self.below(sides) == 0
    }
}

/// A pod from its request to its end.
struct Simulated {
    namespace: String,
    name: String,
    template: String,
    is_stored: bool,
    has_claim: bool,
    /// Steps with a leader in which it had no template.
    without_template: usize,
    ends_at: usize,
}

impl Simulated {
    fn pod_path(&self) -> String {
        format!("/api/v1/namespaces/{}/pods/{}", self.namespace, self.name)
    }

    fn claim_path(&self) -> String {
        let Self { namespace, name, .. } = self;
        format!("/apis/resource.k8s.io/v1/namespaces/{namespace}/resourceclaims/{name}")
    }

    fn template_path(&self) -> String {
        template_path(&self.namespace, &self.template)
    }
}

fn template_path(namespace: &str, name: &str) -> String {
    format!("/apis/resource.k8s.io/v1/namespaces/{namespace}/resourceclaimtemplates/{name}")
}

/// The cluster and what has happened.
struct Month {
    server: ApiServer,
    replicas: Vec<Replica>,
    /// The one that leads, or until when nobody does.
    leader: Result<usize, usize>,
    /// Whether it leads since this step.
    is_new_leader: bool,
    writer: Writer,
    dice: Dice,
    step: usize,
    machine: Built,
    nodes: VecDeque<Remembered>,
    namespaces: VecDeque<String>,
    /// What admission has answered in each namespace.
    answers: BTreeMap<String, (Value, ResourceClaimTemplate)>,
    /// A view for these answers.
    plans: ClusterView,
    pods: Vec<Simulated>,
    made: usize,
    /// For each template, the steps with a leader since it was last used.
    unused: BTreeMap<String, usize>,
    /// When each machine was last present, by step.
    present: BTreeMap<String, usize>,
    /// At the end of each step: objects, characters of the machines and of the certificates, and of what
    /// a replica remembers.
    sizes: Vec<[usize; 4]>,
}

impl Month {
    fn new(seed: u64) -> Self {
        let server = ApiServer::default();
        let start: Timestamp = "2026-11-01T00:00:00Z".parse().unwrap();
        // Its authority is due on the twelfth day.
        let made = start - SignedDuration::from_hours(24 * (365 * 2 - 12));
        let old = CertificateBundle::default().renewed(&names(), made).unwrap().unwrap();
        {
            let mut state = server.lock();
            state.now = start;
            state.put(&secret_path(), json!({"kind": "Secret",
                "metadata": {"name": object::CERTIFICATES, "namespace": NAMESPACE}, "data": data(&old)}));
            state.put(
                &machines_path(),
                json!({"kind": "ConfigMap",
                "metadata": {"name": object::MACHINES, "namespace": NAMESPACE}}),
            );
            state.put(
                &format!("/api/v1/namespaces/{NAMESPACE}"),
                json!({"kind": "Namespace", "metadata": {"name": NAMESPACE}}),
            );
            for (path, name) in webhooks() {
                let hook = json!({"name": "pods.dranet.io", "clientConfig": {}});
                state.put(
                    &path,
                    json!({"kind": "Webhook", "metadata": {"name": name}, "webhooks": [hook]}),
                );
            }
        }
        // One clock is right, one ten minutes ahead, and one ten minutes behind.
        let replicas =
            [0, 10, -10].map(|ahead| Replica::new(&server, SignedDuration::from_mins(ahead)));
        let machine = Built::new(GB300, &[], &SharingArgs::default());
        let writer = Writer { client: server.client(), namespace: NAMESPACE.to_owned() };
        Self {
            server,
            replicas: replicas.into(),
            leader: Ok(0),
            is_new_leader: true,
            writer,
            dice: Dice(seed),
            step: 0,
            machine,
            nodes: VecDeque::new(),
            namespaces: (0..NAMESPACES).map(|number| format!("team-{number}")).collect(),
            answers: BTreeMap::new(),
            plans: cluster::cluster(&[GB300]),
            pods: Vec::new(),
            made: 0,
            unused: BTreeMap::new(),
            present: BTreeMap::new(),
            sizes: Vec::new(),
        }
    }

    async fn pass(&mut self) {
        self.step += 1;
        let now = {
            let mut state = self.server.lock();
            state.now += STEP;
            state.now
        };
        for replica in &mut self.replicas {
            replica.view.set_time(now + replica.ahead);
            replica.templates.minutes_pass();
            replica.lags = self.dice.one_in(20);
        }
        self.change_leader();
        if self.step % (3 * HOUR) == 1 {
            self.replace_nodes();
        }
        if self.step.is_multiple_of(DAY / 2) {
            self.namespaces.pop_front();
            self.namespaces.push_back(format!("team-{}", self.step));
        }
        self.apply_again();
        self.end_pods();
        self.follow();
        // Some pods are stored before the leader's round, and some after it.
        let begun = self.pods.len();
        for _ in 0..self.dice.below(4) {
            self.request();
        }
        let stored = begun + self.dice.below(self.pods.len() - begun + 1);
        (begun..stored).for_each(|index| self.store(index));
        self.round(false).await;
        (stored..self.pods.len()).for_each(|index| self.store(index));
        self.round(false).await;
        let is_emptied = self.server.lock().objects[&secret_path()]["data"].is_null();
        self.round(self.step % HOUR == 1 || is_emptied || self.is_new_leader).await;
        self.run_pods();
        self.check();
    }

    fn change_leader(&mut self) {
        self.is_new_leader = false;
        match self.leader {
            Err(until) if self.step < until => {}
            Ok(_) if self.dice.one_in(75) => {
                self.leader = Err(self.step + 1 + self.dice.below(5 * HOUR));
            }
            Ok(_) if !self.dice.one_in(20) => {}
            _ => {
                self.leader = Ok(self.dice.below(self.replicas.len()));
                self.is_new_leader = true;
            }
        }
    }

    /// Every three hours, a node is replaced by one with a new name; pools are scaled to zero after three days,
    /// and new pools have new names.
    fn replace_nodes(&mut self) {
        if self.nodes.len() > 3 {
            let Some(Remembered { node, slices, topology: _ }) = self.nodes.pop_front() else {
                return;
            };
            let name = node.metadata.name.unwrap();
            let mut state = self.server.lock();
            state.delete(&format!("/api/v1/nodes/{name}"));
            state.delete(&format!("/apis/topology.dranet.io/v1alpha1/nodetopologies/{name}"));
            for slice in slices {
                state.delete(&slice_path(&slice));
            }
        }
        let (pool, name) = (self.step / (3 * DAY), format!("gpu-{}", self.step));
        let mut new = self.machine.remembered(self.step).as_node(&name);
        let labels = new.node.metadata.labels.get_or_insert_default();
        labels.insert("karpenter.sh/nodepool".to_owned(), format!("pool-{pool}"));
        let mut state = self.server.lock();
        state.put(&format!("/api/v1/nodes/{name}"), of_kind("Node", &new.node));
        let topologies = "/apis/topology.dranet.io/v1alpha1/nodetopologies";
        state.put(&format!("{topologies}/{name}"), of_kind("NodeTopology", &new.topology));
        for (index, slice) in new.slices.iter_mut().enumerate() {
            slice.metadata.name = Some(format!("{name}-{index}"));
            state.put(&slice_path(slice), of_kind("ResourceSlice", slice));
        }
        drop(state);
        self.nodes.push_back(new);
    }

    /// A chart is applied again: the Secret and the webhook configurations are as at first.
    fn apply_again(&mut self) {
        let mut state = self.server.lock();
        if self.dice.one_in(250) {
            let mut secret = state.objects[&secret_path()].clone();
            secret["data"] = Value::Null;
            state.put(&secret_path(), secret);
        }
        if self.dice.one_in(150) {
            for (path, _) in webhooks() {
                let mut hooks = state.objects[&path].clone();
                hooks["webhooks"][0]["clientConfig"] = json!({});
                hooks["metadata"]["ownerReferences"] = Value::Null;
                state.put(&path, hooks);
            }
        }
    }

    fn end_pods(&mut self) {
        let mut state = self.server.lock();
        let step = self.step;
        self.pods.retain(|pod| {
            let is_over = pod.ends_at <= step;
            if is_over {
                state.delete(&pod.pod_path());
                state.delete(&pod.claim_path());
            }
            !is_over
        });
    }

    /// Replicas see what has changed, but for those that lag behind.
    fn follow(&mut self) {
        for replica in self.replicas.iter_mut().filter(|replica| !replica.lags) {
            let (seen, changes) = self.server.lock().since(replica.seen);
            replica.seen = seen;
            for change in &changes {
                replica.take(change);
            }
        }
        let seen = self.replicas.iter().map(|replica| replica.seen).min().unwrap_or_default();
        self.server.lock().drop_before(seen);
    }

    /// A replica decides on a pod.
    fn request(&mut self) {
        let namespace = self.namespaces[self.dice.below(self.namespaces.len())].clone();
        let (_, template) = self.answers.entry(namespace.clone()).or_insert_with(|| {
            let mut pod = cluster::pod("nvidia.com/gpu", 4, &[("aligned-nics", "4")]);
            pod["metadata"]["namespace"] = namespace.as_str().into();
            let verdict = admit(&pod, &self.plans, &Policy::default()).unwrap();
            (verdict.pod, verdict.planned.unwrap().template)
        });
        let name = template.metadata.name.clone().unwrap();
        let key = ObjectKey { namespace: namespace.clone(), name: name.clone() };
        let replica = &self.replicas[self.dice.below(self.replicas.len())];
        replica.templates.check(&key, Some(template)).unwrap();
        replica.templates.expect(&key, Some(template));
        if self.dice.one_in(10) {
            // It restarts before the pod is stored.
            replica.templates.minutes_pass();
        }
        self.made += 1;
        self.pods.push(Simulated {
            namespace,
            name: format!("train-{}", self.made),
            template: name,
            is_stored: false,
            has_claim: false,
            without_template: 0,
            ends_at: self.step + 2 + self.dice.below(3 * HOUR),
        });
    }

    fn store(&mut self, index: usize) {
        let simulated = &mut self.pods[index];
        let mut pod = self.answers[&simulated.namespace].0.clone();
        pod["kind"] = "Pod".into();
        pod["metadata"]["name"] = simulated.name.as_str().into();
        simulated.is_stored = true;
        self.server.lock().put(&simulated.pod_path(), pod);
    }

    /// What all do when something has changed.
    async fn round(&mut self, in_all: bool) {
        self.follow();
        for replica in &self.replicas {
            replica.create().await;
        }
        self.follow();
        if let Ok(leader) = self.leader {
            self.replicas[leader].lead(in_all).await;
        }
        self.follow();
        // The program that writes the authority may be late.
        if self.dice.one_in(3) {
            self.writer.write().await.unwrap();
        }
    }

    /// kube-controller-manager makes claims of templates, and kube-scheduler binds the pods later.
    fn run_pods(&mut self) {
        let has_leader = self.has_leader();
        let mut state = self.server.lock();
        for pod in self.pods.iter_mut().filter(|pod| pod.is_stored) {
            if pod.has_claim {
                let path = pod.pod_path();
                let mut bound = state.objects[&path].clone();
                if bound["spec"]["nodeName"].is_null() {
                    bound["spec"]["nodeName"] = "gpu".into();
                    state.put(&path, bound);
                }
                continue;
            }
            let Some(template) = state.objects.get(&pod.template_path()).cloned() else {
                pod.without_template += usize::from(has_leader);
                continue;
            };
            let claim = json!({"kind": "ResourceClaim", "metadata": {"name": pod.name,
                "namespace": pod.namespace, "labels": template["spec"]["metadata"]["labels"]},
                "spec": template["spec"]["spec"]});
            state.put(&pod.claim_path(), claim);
            pod.has_claim = true;
        }
    }

    /// Whether a replica leads that sees what happens.
    fn has_leader(&self) -> bool {
        self.leader.is_ok_and(|leader| !self.replicas[leader].lags)
    }

    fn check(&mut self) {
        let has_leader = self.has_leader();
        let state = self.server.lock();
        assert!(state.lost.is_empty(), "step {}: {:?} were in use", self.step, state.lost);
        for pod in &self.pods {
            assert_eq!(pod.without_template, 0, "step {}: {} waits", self.step, pod.name);
        }
        self.unused.retain(|path, _| state.objects.contains_key(path));
        let templates =
            state.objects.iter().filter(|(_, it)| it["kind"] == "ResourceClaimTemplate");
        for (path, template) in templates {
            let [namespace, name] =
                ["namespace", "name"].map(|key| template["metadata"][key].as_str().unwrap());
            let unused = self.unused.entry(path.clone()).or_default();
            *unused =
                if state.is_used(namespace, name) { 0 } else { *unused + usize::from(has_leader) };
            assert!(*unused <= GONE_AFTER, "step {}: {path} is not collected", self.step);
        }
        if self.step % HOUR == 1 && self.leader.is_ok() {
            self.check_certificates(&state.objects, state.now);
        }
        let machines = &state.objects[&machines_path()];
        let last_seen =
            machines["metadata"]["annotations"][LAST_SEEN].as_str().unwrap_or_default().len();
        let sizes = [
            state.objects.len(),
            machines.to_string().len() + last_seen,
            state.objects[&secret_path()].to_string().len(),
            self.replicas.iter().map(Replica::size).max().unwrap_or_default(),
        ];
        let machines: ConfigMap = serde_json::from_value(machines.clone()).unwrap();
        drop(state);
        self.sizes.push(sizes);
        if self.step % HOUR == 1 && has_leader {
            self.check_machines(&machines);
        }
    }

    /// With a leader, no certificate is due, whichever steps were missed.
    fn check_certificates(&self, objects: &BTreeMap<String, Value>, now: Timestamp) {
        let secret: Secret = serde_json::from_value(objects[&secret_path()].clone()).unwrap();
        let bundle = bundle(&secret);
        assert_eq!(bundle.renewed(&names(), now).unwrap(), None, "step {}", self.step);
        assert!(bundle.authorities.matches("BEGIN").count() <= 2, "{}", bundle.authorities);
    }

    /// A machine that is present is remembered; one that is gone is forgotten in time, and not before.
    fn check_machines(&mut self, map: &ConfigMap) {
        let remembered: BTreeSet<&str> =
            map.binary_data.iter().flat_map(BTreeMap::keys).map(String::as_str).collect();
        let Ok(leader) = self.leader else { return };
        let present = present(&self.replicas[leader].view.read()).keys;
        for key in &present {
            assert!(remembered.contains(key.as_str()), "step {}: {key} is forgotten", self.step);
            self.present.insert(key.clone(), self.step);
        }
        let forget_after = 5 * DAY;
        // Dates are of the last day, and hours may have had no leader.
        let slack = DAY + 6 * HOUR;
        for (key, last) in &self.present {
            let gone = self.step - last;
            let is_remembered = remembered.contains(key.as_str());
            assert!(is_remembered || gone + slack >= forget_after, "step {}: {key}", self.step);
            assert!(!is_remembered || gone <= forget_after + 6 * HOUR, "step {}: {key}", self.step);
        }
    }
}

fn of_kind(kind: &str, object: &impl serde::Serialize) -> Value {
    let mut object = serde_json::to_value(object).unwrap();
    object["kind"] = kind.into();
    object
}

fn slice_path(slice: &ResourceSlice) -> String {
    let name = slice.metadata.name.as_deref().unwrap();
    format!("/apis/resource.k8s.io/v1/resourceslices/{name}")
}

fn secret_path() -> String {
    format!("/api/v1/namespaces/{NAMESPACE}/secrets/{}", object::CERTIFICATES)
}

fn machines_path() -> String {
    format!("/api/v1/namespaces/{NAMESPACE}/configmaps/{}", object::MACHINES)
}

/// The paths and the names of the webhook configurations.
fn webhooks() -> [(String, &'static str); 2] {
    [("mutating", object::WEBHOOK), ("validating", object::LINT_WEBHOOK)].map(|(kind, name)| {
        let collection =
            format!("/apis/admissionregistration.k8s.io/v1/{kind}webhookconfigurations");
        (format!("{collection}/{name}"), name)
    })
}

/// The seeds of the months; `PROPTEST_CASES` gives one more for each thousand.
fn seeds() -> u64 {
    1 + (u64::from(ProptestConfig::default().cases) / 1000).min(100)
}

#[tokio::test]
async fn in_a_month_nothing_grows_and_nothing_needed_is_lost() {
    for seed in 0..seeds() {
        let mut month = Month::new(seed);
        for _ in 0..MONTH {
            month.pass().await;
        }
        let most = |from: usize, to: usize| {
            let sizes = &month.sizes[from * DAY..to * DAY];
            [0, 1, 2, 3].map(|kind| sizes.iter().map(|sizes| sizes[kind]).max().unwrap())
        };
        let (first, last) = (most(6, 16), most(20, 30));
        println!("{} pods, {} nodes: {first:?}, then {last:?}", month.made, MONTH / (3 * HOUR));
        for (first, last) in first.into_iter().zip(last) {
            assert!(last <= first + first / 3, "{first} at first, {last} later");
        }
    }
}
