//! Who leaves together: single pods, and gangs as a whole.

use super::decision::{Cluster, PodId, Rules, Victim, VictimPod};
use super::place_score::PlaceLoss;
use super::pods::BoundPod;
use cluster_model::gpu_drivers;
use cluster_model::names::label;
use cluster_model::room::{PodKey, Room, weight};
use cluster_model::view::ObjectKey;
use dra_allocator::DeviceId;
use fabric_controller::Gang;
use k8s_openapi::jiff::Timestamp;
use std::cell::OnceCell;
use std::cmp::{Ordering, Reverse};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ops::Range;

/// Pods that leave together.
#[derive(Debug, Default)]
pub(crate) struct Unit<'a> {
    /// The pods, by importance.
    pub(crate) pods: Vec<Leaver<'a>>,
    /// The job, for people, if they are a gang.
    job: Option<&'a str>,
    /// The highest of their priorities.
    pub(crate) highest: i32,
    /// Whether the rules let all of them leave.
    pub(crate) is_allowed: bool,
    /// What all pods weigh.
    weight: i64,
    /// The earliest start of those with the highest priority.
    start: i64,
    /// The GPUs of the pods, times the seconds since each started.
    gpu_seconds: OnceCell<i64>,
    /// How many evictions violate a budget if it leaves alone.
    violations: OnceCell<usize>,
}

/// A pod that may leave.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Leaver<'a> {
    pub(crate) node: &'a str,
    pub(crate) key: &'a PodKey,
    pub(crate) pod: &'a BoundPod,
}

impl Leaver<'_> {
    /// By which pods are ordered, the most important first (`MoreImportantPod` in `pkg/scheduler/util`).
    fn importance(&self) -> (Reverse<i32>, i64, &PodKey) {
        (Reverse(self.pod.priority), self.start(), self.key)
    }

    /// A pod that has not started lost nothing yet.
    fn start(&self) -> i64 {
        self.pod.started.unwrap_or(i64::MAX)
    }
}

/// All units of a cluster.
#[derive(Debug)]
pub(crate) struct Units<'a> {
    /// The most important first.
    all: Vec<Unit<'a>>,
    /// Those with pods on a node.
    on: HashMap<&'a str, Vec<usize>>,
    cluster: Cluster<'a>,
    now: Timestamp,
}

/// What is lost if units leave, in the order of kube-scheduler (`pickOneNodeForPreemption` in
/// `pkg/scheduler/framework/preemption`), then work that is done in vain, then what others lose by the
/// place that is taken. More units are always worse.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Harm {
    /// How many evictions violate a `PodDisruptionBudget`.
    violations: usize,
    /// The highest priority.
    highest: i32,
    /// What all pods weigh.
    weight: i64,
    /// How many pods.
    pods: usize,
    /// The earliest start of the pods with the highest priority.
    start: Reverse<i64>,
    /// The GPUs of the pods, times the seconds since each started.
    gpu_seconds: i64,
    /// Nothing until the place is known.
    place: PlaceLoss,
}

impl Harm {
    /// The same with what the place takes.
    pub(crate) fn at(self, place: PlaceLoss) -> Self {
        Self { place, ..self }
    }
}

impl<'a> Units<'a> {
    /// The units of a cluster, without pods that leave already.
    pub(crate) fn new(cluster: Cluster<'a>, rules: &Rules, now: Timestamp) -> Self {
        let leaving = cluster.leaving();
        let mut single = Vec::new();
        let mut gangs: HashMap<&Gang, Vec<Leaver<'a>>> = HashMap::new();
        for (node, key, pod) in cluster.pods.bound() {
            let leaver = Leaver { node, key, pod };
            match &pod.gang {
                _ if pod.is_leaving || leaving.contains(&*pod.uid) => {}
                Some(gang) => gangs.entry(gang).or_default().push(leaver),
                None => single.push((None, vec![leaver])),
            }
        }
        let least = least_sizes(cluster);
        for (gang, mut pods) in gangs {
            pods.sort_by(|one, other| one.importance().cmp(&other.importance()));
            let least = least.get(&*gang.key).copied().unwrap_or(usize::MAX).max(1);
            // The gang goes on without those that it has beyond its size.
            let beyond = pods.split_off(least.min(pods.len()));
            single.extend(beyond.into_iter().map(|pod| (None, vec![pod])));
            single.push((Some(&*gang.title), pods));
        }
        let mut all: Vec<_> =
            single.into_iter().map(|(job, pods)| Unit::new(job, pods, rules)).collect();
        all.sort_by(|one, other| one.pods[0].importance().cmp(&other.pods[0].importance()));
        let mut on: HashMap<&str, Vec<usize>> = HashMap::new();
        for (index, unit) in all.iter().enumerate() {
            for Leaver { node, .. } in &unit.pods {
                let here = on.entry(node).or_default();
                // Several pods of a gang may be there.
                if here.last() != Some(&index) {
                    here.push(index);
                }
            }
        }
        Self { all, on, cluster, now }
    }

    /// Those below a priority, the most important first.
    pub(crate) fn below(&self, priority: i32) -> Range<usize> {
        self.all.partition_point(|unit| unit.highest >= priority)..self.all.len()
    }

    /// A unit.
    pub(crate) fn get(&self, index: usize) -> &Unit<'a> {
        &self.all[index]
    }

    /// The units with pods on a node, the most important first.
    pub(crate) fn on(&self, node: &str) -> &[usize] {
        self.on.get(node).map(Vec::as_slice).unwrap_or_default()
    }

    /// The unit that is this pod alone, if the rules let it leave.
    pub(crate) fn single(&self, node: &str, uid: &str) -> Option<usize> {
        let mut here = self.on(node).iter().copied();
        here.find(|unit| {
            let Unit { pods, is_allowed, .. } = &self.all[*unit];
            *is_allowed && matches!(&**pods, [leaver] if *leaver.pod.uid == *uid)
        })
    }

    /// Lets a unit leave a room, or stay.
    pub(crate) fn set(&self, room: &mut Room<'_>, unit: usize, leaves: bool) {
        for Leaver { node, key, .. } in &self.all[unit].pods {
            if leaves {
                room.let_leave(node, key);
            } else {
                room.let_stay(node, key);
            }
        }
    }

    /// The budgets that are violated if these units leave, pod by pod.
    pub(crate) fn violated(&self, units: &[usize]) -> Vec<Option<ObjectKey>> {
        let pods = units.iter().flat_map(|unit| &self.all[*unit].pods);
        let pods = pods.map(|leaver| (leaver.key, leaver.pod));
        self.cluster.budgets.violated(pods, self.cluster.view)
    }

    /// What is lost if these units leave.
    pub(crate) fn harm(&self, units: &[usize]) -> Harm {
        let all = || units.iter().map(|unit| &self.all[*unit]);
        let highest = all().map(|unit| unit.highest).max().unwrap_or(i32::MIN);
        let first = all().filter(|unit| unit.highest == highest);
        let gpu_seconds = units.iter().map(|unit| self.gpu_seconds(*unit));
        Harm {
            violations: self.violated(units).iter().flatten().count(),
            highest,
            weight: all().map(|unit| unit.weight).sum(),
            pods: all().map(|unit| unit.pods.len()).sum(),
            start: Reverse(first.map(|unit| unit.start).min().unwrap_or(i64::MAX)),
            gpu_seconds: gpu_seconds.fold(0, i64::saturating_add),
            place: PlaceLoss::default(),
        }
    }

    /// How many evictions violate a budget if a unit leaves alone.
    pub(crate) fn violations(&self, unit: usize) -> usize {
        let known = &self.all[unit].violations;
        *known.get_or_init(|| self.violated(&[unit]).iter().flatten().count())
    }

    /// Compares what is lost if one of two units leaves, as [`Self::harm`] does.
    pub(crate) fn compare(&self, one: usize, other: usize) -> Ordering {
        let without_work = self.harm_without_work(one).cmp(&self.harm_without_work(other));
        without_work.then_with(|| self.gpu_seconds(one).cmp(&self.gpu_seconds(other)))
    }

    /// What is lost if a unit leaves, in the order of [`Harm`], up to the work.
    fn harm_without_work(&self, unit: usize) -> (usize, i32, i64, usize, Reverse<i64>) {
        let Unit { pods, highest, weight, start, .. } = &self.all[unit];
        (self.violations(unit), *highest, *weight, pods.len(), Reverse(*start))
    }

    fn gpu_seconds(&self, unit: usize) -> i64 {
        let unit = &self.all[unit];
        *unit.gpu_seconds.get_or_init(|| {
            let pods = unit.pods.iter().map(|leaver| {
                let started = leaver.pod.started.unwrap_or_else(|| self.now.as_second());
                let seconds = self.now.as_second().saturating_sub(started).max(0);
                seconds.saturating_mul(self.gpus(leaver))
            });
            pods.fold(0, i64::saturating_add)
        })
    }

    /// How many GPUs a pod has: by its claims, and of a device plugin.
    fn gpus(&self, Leaver { node, key, .. }: &Leaver<'_>) -> i64 {
        let Cluster { view, nodes, .. } = self.cluster;
        let claims = nodes.claims_of(node, key);
        let by_claims = claims.flat_map(|(claim, _)| view.inventory().held_by(&claim));
        let by_claims =
            by_claims.filter(|device| gpu_drivers::by_name(&device.driver).is_some()).count();
        let pod = ObjectKey::from(*key);
        let resources = gpu_drivers::all().iter().flat_map(|driver| driver.extended_resources);
        let by_plugin = resources.flat_map(|resource| view.plugin_pods(node, resource));
        let by_plugin: u64 =
            by_plugin.filter(|(user, _)| **user == pod).map(|(_, units)| units).sum();
        i64::try_from(by_claims).unwrap_or(i64::MAX).saturating_add_unsigned(by_plugin)
    }

    /// These units for who evicts them: the lowest priority first.
    pub(crate) fn victims(&self, units: &[usize]) -> Vec<Victim> {
        let mut violated = self.violated(units).into_iter();
        let mut victims = Vec::new();
        for unit in units {
            let unit = &self.all[*unit];
            let pods =
                unit.pods.iter().zip(violated.by_ref()).map(|(leaver, violates)| VictimPod {
                    pod: PodId { key: leaver.key.into(), uid: leaver.pod.uid.to_string() },
                    node: leaver.node.to_owned(),
                    priority: leaver.pod.priority,
                    violates,
                });
            let mut pods: Vec<_> = pods.collect();
            pods.sort_by(|one, other| one.pod.cmp(&other.pod));
            victims.push((unit.highest, Victim { job: unit.job.map(str::to_owned), pods }));
        }
        victims.sort_by(|(one, a), (other, b)| (one, &a.pods[0].pod).cmp(&(other, &b.pods[0].pod)));
        victims.into_iter().map(|(_, victim)| victim).collect()
    }

    /// The devices that the pods of these units have.
    pub(crate) fn devices(&self, units: &[usize]) -> BTreeSet<DeviceId> {
        let pods = units.iter().flat_map(|unit| &self.all[*unit].pods);
        let Cluster { nodes, view, .. } = self.cluster;
        let claims = pods.flat_map(|leaver| nodes.claims_of(leaver.node, leaver.key));
        claims.flat_map(|(claim, _)| view.inventory().held_by(&claim)).cloned().collect()
    }
}

impl<'a> Unit<'a> {
    fn new(job: Option<&'a str>, pods: Vec<Leaver<'a>>, rules: &Rules) -> Self {
        let is_allowed = pods.iter().all(|Leaver { key, pod, .. }| {
            rules.victims.has(&key.namespace, pod.priority_class.as_deref())
        });
        let highest = pods.iter().map(|leaver| leaver.pod.priority).max().unwrap_or(i32::MAX);
        let weight = pods.iter().map(|leaver| weight(leaver.pod.priority)).sum();
        let first = pods.iter().filter(|leaver| leaver.pod.priority == highest);
        let start = first.map(Leaver::start).min().unwrap_or(i64::MAX);
        Self { pods, job, highest, is_allowed, weight, start, ..Self::default() }
    }
}

/// How many pods each gang of a fabric needs, by its identity: other pods of it can leave one by one.
fn least_sizes(cluster: Cluster<'_>) -> BTreeMap<String, usize> {
    let sized = cluster.groups.iter().filter_map(|group| {
        let size = group.size.or_else(|| group.said_size())?;
        let key = &group.key;
        Some((format!("{}/{}/{}", key.namespace, label::FABRIC_GROUP, key.label), size.pods))
    });
    sized.collect()
}
