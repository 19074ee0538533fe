//! Pods that share NICs: claims never exceed the capacity of a NIC, and no pod waits while near
//! NICs have the capacity that it requests.

use crate::brute_force::{Devices, Near};
use crate::cluster::*;
use admission::admit::{AdmitError, admit};
use admission::plan::{Plan, Policy};
use cluster_model::names::capacity;
use cluster_model::node_devices::NodeDevices;
use cluster_model::predict::hold;
use cluster_model::view::ClusterView;
use dra_allocator::{
    AllocatedState, Claim, ClaimAllocation, ClaimName, Device, FeatureGates, Limits, MinorVersion,
    Outcome, Settings, allocate,
};
use proptest::prelude::*;
use publication::sharing::{Sharing, SharingArgs};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::num::NonZeroU32;
use std::sync::LazyLock;

const NODE: &str = "node-0";

/// The capacities that the operator lets claims divide.
fn by(sharing: Sharing, rdma_hca_max: u32) -> SharingArgs {
    let rdma_hca_max = NonZeroU32::new(rdma_hca_max);
    SharingArgs { sharing, rdma_hca_max, ..SharingArgs::default() }
}

fn sharing(machine: Machine, by: &SharingArgs) -> ClusterView {
    let mut view = cluster(&[]);
    add_shared(&mut view, &[NODE.to_owned()], machine, by);
    view
}

fn planned(view: &ClusterView, gpus: u32, annotations: &[(&str, &str)]) -> Result<Plan, String> {
    match admit(&pod("nvidia.com/gpu", gpus, annotations), view, &Policy::default()) {
        Ok(verdict) => Ok(verdict.planned.unwrap().plan),
        Err(AdmitError::Denied(denial)) => Err(denial.to_string()),
        Err(error) => panic!("{error}"),
    }
}

#[test]
fn what_is_asked_and_what_is_denied() {
    let views = [
        ("whole", by(Sharing::None, 0)),
        ("by bandwidth", by(Sharing::Bandwidth, 0)),
        ("by number", by(Sharing::Count, 8)),
        ("by both", by(Sharing::Bandwidth, 8)),
    ]
    .map(|(name, by)| (name, sharing(H100, &by)));
    let shared = ("nic-sharing", "shared");
    let passthrough = ("nic-config", r#"{"interface":{"type":"passthrough"}}"#);
    let asks: [&[(&str, &str)]; 14] = [
        &[],
        &[("nic-sharing", "exclusive")],
        &[shared],
        &[shared, ("nic-bandwidth", "50G")],
        &[shared, ("nic-bandwidth", "0.4T")],
        &[shared, ("nic-bandwidth", "401G")],
        &[shared, ("nic-bandwidth", "50")],
        &[shared, ("nic-bandwidth", "0")],
        &[shared, ("nic-bandwidth", "-1G")],
        &[shared, ("nic-bandwidth", "50Gbit")],
        &[shared, ("nic-bandwidth", "1n")],
        &[("nic-bandwidth", "50G")],
        &[("nic-sharing", "yes")],
        &[shared, passthrough],
    ];
    let mut text = String::new();
    for (name, view) in &views {
        writeln!(text, "{name}").unwrap();
        for ask in asks {
            let annotations = [&[("aligned-nics", "1")], ask].concat();
            let found = match planned(view, 1, &annotations) {
                Ok(plan) => format!(
                    "{}; takes {}",
                    plan.note("…").split(" (").next().unwrap(),
                    taken(&plan)
                ),
                Err(denial) => format!("denied: {denial}"),
            };
            writeln!(text, "    {ask:?}\n        {found}").unwrap();
        }
    }
    insta::assert_snapshot!(text);
}

/// The capacity that the first request for NICs takes from each NIC.
fn taken(plan: &Plan) -> String {
    let requests = plan.claim.devices.iter().flat_map(|devices| devices.requests.iter().flatten());
    let mut nics = requests.filter(|it| plan.nic_requests.contains(&it.name));
    let nic = nics.next().unwrap();
    let exactly = nic.exactly.as_ref().map(|ask| &ask.capacity);
    let way = nic.first_available.iter().flatten().next().map(|way| &way.capacity);
    let capacity = exactly.or(way).unwrap().as_ref().and_then(|it| it.requests.as_ref());
    capacity.map_or_else(
        || "all".to_owned(),
        |all| {
            let each = all.iter().map(|(name, amount)| format!("{name} {}", amount.0));
            each.collect::<Vec<_>>().join(", ")
        },
    )
}

#[test]
fn without_the_feature_nothing_is_shared() {
    let mut view = sharing(H100, &by(Sharing::Bandwidth, 0));
    let mut gates = FeatureGates::defaults_of(MinorVersion::V1_37);
    assert!(gates.set("DRAConsumableCapacity", false));
    view.set_settings(Settings::with_gates(MinorVersion::V1_37, gates));
    let ask = [("aligned-nics", "1"), ("nic-sharing", "shared"), ("nic-bandwidth", "50G")];
    let denial = planned(&view, 1, &ask).unwrap_err();
    assert!(denial.contains("DRAConsumableCapacity is off"), "{denial}");
}

/// Before 1.37 the scheduler could give one NIC twice for a request of more than two; the claim
/// then has no such request.
#[test]
fn before_1_37_requests_have_at_most_two_shared_nics() {
    for (machine, gpus, nics) in [(A3, 1, "2"), (H100, 1, "4"), (H100, 8, "8"), (H100, 4, "4")] {
        let mut view = sharing(machine, &by(Sharing::Bandwidth, 0));
        view.set_settings(Settings::defaults_of(MinorVersion::V1_36));
        let ask = [("aligned-nics", nics), ("nic-sharing", "shared"), ("nic-bandwidth", "50G")];
        let Ok(plan) = planned(&view, gpus, &ask) else { continue };
        let requests = plan.claim.devices.as_ref().unwrap().requests.as_ref().unwrap();
        for request in requests.iter().filter(|it| plan.nic_requests.contains(&it.name)) {
            let ways = request.first_available.iter().flatten().map(|way| way.count);
            let counts = ways.chain(request.exactly.iter().map(|ask| ask.count));
            assert!(counts.into_iter().all(|count| count.unwrap() <= 2), "{machine:?} {request:?}");
        }
    }
}

/// A pod of a property test: its GPUs, and its share of each NIC; it has as many NICs as GPUs.
type Asked = (u32, Take);

#[derive(Clone, Copy, Debug)]
enum Take {
    All,
    Share,
    Bandwidth(&'static str),
}

const TAKES: [Take; 6] = [
    Take::All,
    Take::Share,
    Take::Bandwidth("50G"),
    Take::Bandwidth("100G"),
    Take::Bandwidth("150G"),
    Take::Bandwidth("400G"),
];

impl Take {
    fn annotations(self) -> Vec<(&'static str, &'static str)> {
        match self {
            Self::All => vec![],
            Self::Share => vec![("nic-sharing", "shared")],
            Self::Bandwidth(it) => vec![("nic-sharing", "shared"), ("nic-bandwidth", it)],
        }
    }

    /// The bandwidth and shares that it takes from a NIC with capacity `whole`.
    fn amounts(self, whole: Amounts) -> Amounts {
        match self {
            Self::All => whole,
            Self::Share => (0, 1),
            Self::Bandwidth(it) => (it.trim_end_matches('G').parse::<i64>().unwrap() * GIGA, 1),
        }
    }
}

/// Bandwidth in bits per second, and claims.
type Amounts = (i64, i64);

const GIGA: i64 = 1_000_000_000;
const RATE: i64 = 400 * GIGA;
const MAX: u32 = 3;

/// Machines whose NICs are each nearest to one GPU, and machines with several per cell.
const MACHINES: [Machine; 3] = [H100, A3, DGX_H100];

/// The plans of pods, by the number of GPUs and the index in [`TAKES`].
type Plans = BTreeMap<(u32, usize), Plan>;

/// The plans for every pod on every machine.
static PLANS: LazyLock<Vec<(ClusterView, Plans)>> = LazyLock::new(|| {
    let of = |machine: &Machine| {
        let view = sharing(*machine, &by(Sharing::Bandwidth, MAX));
        let mut plans = BTreeMap::new();
        for (gpus, take) in (1..=3).flat_map(|gpus| (0..TAKES.len()).map(move |take| (gpus, take)))
        {
            let ask = [vec![("aligned-nics", "per-gpu")], TAKES[take].annotations()].concat();
            plans.insert((gpus, take), planned(&view, gpus, &ask).unwrap());
        }
        (view, plans)
    };
    MACHINES.iter().map(of).collect()
});

fn amount(device: &Device, name: &str) -> i64 {
    let capacity = device.capacity().iter().find(|(known, _)| known.as_str() == name);
    capacity.unwrap().1.value.value()
}

fn consumed(allocation: &ClaimAllocation) -> impl Iterator<Item = (String, Amounts)> {
    let nics = allocation.results.iter().filter(|result| *result.device.driver == *"dra.net");
    nics.map(|result| {
        let of = |name: &str| {
            let found = result.consumed_capacity.iter().find(|(known, _)| known.as_str() == name);
            found.unwrap().1.value()
        };
        (result.device.device.to_string(), (of(capacity::BANDWIDTH), of(capacity::SHARES)))
    })
}

fn claim_of(plan: &Plan) -> Claim {
    Claim::from_spec(ClaimName::new("default", "a"), &plan.claim).unwrap()
}

fn check(machine: usize, asked: &[Asked]) -> Result<(), TestCaseError> {
    let (view, plans) = &PLANS[machine];
    let devices = NodeDevices::new(view, NODE).unwrap();
    // Some machines have slower NICs for storage.
    let whole_of = |nic: &Device| (amount(nic, capacity::BANDWIDTH), amount(nic, capacity::SHARES));
    let by_name: BTreeMap<String, Amounts> =
        devices.nics.values().map(|nic| (nic.id().device.to_string(), whole_of(nic))).collect();
    assert!(by_name.values().any(|whole| *whole == (RATE, i64::from(MAX))), "{by_name:?}");
    let mut state = AllocatedState::new();
    let mut used: BTreeMap<String, Amounts> = BTreeMap::new();
    for (gpus, take) in asked {
        let index = TAKES.iter().position(|it| format!("{it:?}") == format!("{take:?}")).unwrap();
        let plan = &plans[&(*gpus, index)];
        let claim = claim_of(plan);
        let has_room = |nic: &Device| {
            let whole = whole_of(nic);
            let needs = take.amounts(whole);
            let used = used.get(&*nic.id().device).copied().unwrap_or_default();
            used.0 + needs.0 <= whole.0 && used.1 + needs.1 <= whole.1
        };
        let free = Devices {
            gpus: devices
                .gpus
                .iter()
                .filter(|(_, gpu)| !state.contains(gpu.id()))
                .map(|it| *it.0)
                .collect(),
            nics: devices.nics.iter().filter(|(_, nic)| has_room(nic)).map(|it| *it.0).collect(),
        };
        let near = Near::new(devices.topology, plan.nearness);
        let is_possible = near.each(&free, *gpus as usize, 1);
        let limits = Limits::steps(Policy::default().max_steps);
        let attempt = allocate(view.inventory(), NODE, &[claim], &state, view.settings(), limits);
        match attempt.outcome {
            Outcome::NoFit(reason) => {
                prop_assert!(!is_possible, "{gpus} {take:?} waits: {reason}, free {free:?}");
            }
            Outcome::Allocated(allocations) => {
                prop_assert!(is_possible, "{gpus} {take:?} beside {used:?}");
                let mut own = BTreeSet::new();
                for (nic, took) in allocations.iter().flat_map(consumed) {
                    let whole = by_name[&nic];
                    prop_assert_eq!(took, take.amounts(whole), "{} {:?}", gpus, take);
                    prop_assert!(own.insert(nic.clone()), "{nic} is given twice");
                    let used = used.entry(nic).or_default();
                    *used = (used.0 + took.0, used.1 + took.1);
                    prop_assert!(used.0 <= whole.0 && used.1 <= whole.1, "{used:?}");
                }
                prop_assert_eq!(own.len(), *gpus as usize);
                hold(&mut state, &allocations);
            }
            other => return Err(TestCaseError::fail(format!("{other:?}"))),
        }
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]
    #[test]
    fn shares_never_exceed_a_nic_and_no_pod_waits_needlessly(
        machine in 0..MACHINES.len(),
        asked in proptest::collection::vec((1..=3u32, proptest::sample::select(&TAKES[..])), 1..24),
    ) {
        check(machine, &asked)?;
    }
}
