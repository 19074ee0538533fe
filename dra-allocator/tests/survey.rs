//! Checks that a survey of many nodes gives each node the result of its own search.
#![expect(clippy::unwrap_used, reason = "a test's setup may panic")]

#[path = "differential/random.rs"]
mod random;

use dra_allocator::{
    AllocatedState, Claim, DeviceId, Inventory, Limits, MinorVersion, QualifiedName, Settings,
    allocate, survey,
};
use random::Random;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

const NODES: usize = 12;
const LIMITS: fn() -> Limits<'static> = || Limits::steps(5_000);

const SELECTORS: &[&str] = &[
    "device.driver == \"gpu.example.com\"",
    "device.attributes[\"gpu.example.com\"].?uuid.orValue(\"\") != \"u-3-1\"",
    "device.attributes[\"std.io\"].?numa.orValue(9) == 1",
    "device.attributes[\"std.io\"].exists(k, k == \"numa\")",
    "device.attributes[device.driver].?uuid.orValue(\"\").endsWith(\"1\")",
    "device.attributes[\"gpu.example.com\"].uuid != \"u-1-0\"",
    "device.capacity[\"gpu.example.com\"].?mem.hasValue()",
];

fn of<T: DeserializeOwned>(value: Value) -> T {
    serde_json::from_value(value).unwrap()
}

/// Machines of a few kinds, each with unique names and identities.
struct Cluster<'r> {
    random: &'r mut Random,
    inventory: Inventory,
    /// The percentage of unusual devices.
    odd: usize,
}

impl Cluster<'_> {
    fn slice(&mut self, node: usize, driver: &str, part: usize, pool: &Value, kind: usize) {
        let devices =
            (0..4 - kind).map(|device| self.device(node, driver, 4 * part + device, kind));
        let devices: Vec<_> = devices.collect();
        let turned = usize::from(self.random.percent(self.odd));
        let name = format!("{}-{driver}-{node}", (part + turned) % 3 + 3 * part);
        let mut spec = json!({
            "driver": driver, "pool": pool, "nodeName": format!("n{node}"), "devices": devices,
        });
        // A slice for more than this node.
        if self.odd > 2 && self.random.percent(1) {
            spec["nodeName"] = Value::Null;
            spec["allNodes"] = json!(true);
        }
        let slice = of(json!({"metadata": {"name": name}, "spec": spec}));
        self.inventory.apply_slice(&slice).unwrap();
    }

    fn device(&mut self, node: usize, driver: &str, device: usize, kind: usize) -> Value {
        let name = format!("{driver:.3}-{node}-{device}");
        let numa = if self.random.percent(self.odd) { 2 } else { device % 2 };
        let mut value = json!({"name": name, "attributes": {"std.io/numa": {"int": numa}}});
        value["attributes"]["uuid"] = json!({"string": format!("u-{node}-{device}")});
        if kind == 1 {
            value["allowMultipleAllocations"] = json!(true);
            let written = if self.random.percent(self.odd) { "4000m" } else { "4" };
            value["capacity"] = json!({"mem": {"value": written}});
        }
        if self.random.percent(self.odd) {
            value["taints"] = json!([{"key": "k", "effect": "NoSchedule"}]);
        }
        value
    }

    fn node(&mut self, node: usize) {
        self.inventory.apply_node(&of(json!({"metadata": {"name": format!("n{node}")}}))).unwrap();
        let kind = self.random.between(0, 1);
        let generation = self.random.between(1, 9);
        let parts = if self.random.percent(self.odd) { 3 } else { 1 + kind };
        for driver in ["gpu.example.com", "nic.example.com"] {
            let pool = json!({
                "name": format!("pool-{node}"), "generation": generation,
                "resourceSliceCount": 1 + kind,
            });
            for part in 0..parts {
                let old = self.random.percent(self.odd);
                let mut pool = pool.clone();
                pool["generation"] = json!(generation - usize::from(old));
                self.slice(node, driver, part, &pool, kind);
            }
        }
    }

    fn state(&mut self) -> AllocatedState {
        let mut state = AllocatedState::new();
        let busy = self.random.pick(&[0, 3, 15]);
        for node in 0..NODES {
            for device in 0..4 {
                let id = |driver: &str| {
                    let name = format!("{driver:.3}-{node}-{device}");
                    DeviceId::new(driver, format!("pool-{node}"), name)
                };
                if self.random.percent(busy) {
                    state.insert(id("gpu.example.com"));
                }
                if self.random.percent(busy) {
                    let taken = self.random.pick(&["1", "2"]).parse().unwrap();
                    state
                        .insert_share(id("nic.example.com"), &[(QualifiedName::new("mem"), taken)]);
                }
            }
        }
        state
    }

    fn claim(&mut self) -> Claim {
        let requests = (0..self.random.between(1, 3)).map(|number| {
            let mut ask = json!({"deviceClassName": self.random.pick(&["gpu", "nic", "all"])});
            ask["count"] = json!(self.random.between(1, 2));
            if self.random.percent(40) {
                let expression = self.random.pick(SELECTORS);
                ask["selectors"] = json!([{"cel": {"expression": expression}}]);
            }
            if self.random.percent(30) {
                ask["capacity"] = json!({"requests": {"mem": "2"}});
            }
            json!({"name": format!("r{number}"), "exactly": ask})
        });
        let mut devices = json!({"requests": requests.collect::<Vec<_>>()});
        if self.random.percent(50) {
            let attribute = self.random.pick(&["std.io/numa", "gpu.example.com/uuid"]);
            devices["constraints"] = json!([{"matchAttribute": attribute}]);
        }
        let claim = json!({"metadata": {"name": "c"}, "spec": {"devices": devices}});
        Claim::try_from(&of(claim)).unwrap()
    }
}

/// Compares a survey with separate searches; returns the number of shared results.
fn compare(seed: u64, version: MinorVersion) -> usize {
    let mut random = Random::new(seed);
    let odd = random.pick(&[0, 0, 1, 3]);
    let mut cluster = Cluster { random: &mut random, inventory: Inventory::new(), odd };
    for (class, selectors) in [("gpu", &SELECTORS[..1]), ("nic", &[]), ("all", &[])] {
        let selectors = selectors.iter().map(|text| json!({"cel": {"expression": text}}));
        let spec = json!({"selectors": selectors.collect::<Vec<_>>()});
        let class = of(json!({"metadata": {"name": class}, "spec": spec}));
        cluster.inventory.apply_class(&class).unwrap();
    }
    (0..NODES).for_each(|node| cluster.node(node));
    let (state, claims) = (cluster.state(), [cluster.claim()]);
    let inventory = cluster.inventory;
    let settings = Settings::defaults_of(version);
    let names: Vec<_> = (0..=NODES).map(|node| format!("n{node}")).collect();
    let nodes = names.iter().map(String::as_str);
    let answers = survey(&inventory, nodes, &claims, &state, &settings, LIMITS());
    assert_eq!(answers.attempts().count(), names.len());
    for (node, attempt) in answers.attempts() {
        let direct = allocate(&inventory, node, &claims, &state, &settings, LIMITS());
        assert_eq!(
            format!("{attempt:?}"),
            format!("{direct:?}"),
            "seed {seed}, {version}, node {node}, claims {claims:?}"
        );
    }
    names.len() - answers.groups().len()
}

#[test]
fn a_shared_result_equals_a_separate_search() {
    let (mut shared, mut nodes) = (0, 0);
    for seed in 0..500 {
        for version in [MinorVersion::V1_35, MinorVersion::V1_36, MinorVersion::V1_37] {
            shared += compare(seed, version);
            nodes += NODES + 1;
        }
    }
    // Otherwise nothing was tested.
    assert!(shared * 10 > nodes, "only {shared} of {nodes} answers were shared");
}
