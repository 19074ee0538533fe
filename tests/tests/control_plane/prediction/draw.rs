//! Random nodes and claims that an API server accepts.

use k8s_openapi::api::resource::v1::ResourceClaim;
use kube::ResourceExt;
use serde_json::{Map, Value, json};

use super::random::Random;

const GPU: &str = "gpu.example.com";
const NIC: &str = "nic.example.com";
/// The driver of the canary device, which shows what the scheduler has seen.
const CANARY: &str = "canary.example.com";

/// They fail on no device, since an error would end the attempt on all nodes.
const SELECTORS: &[&str] = &[
    "device.attributes[\"std.example.com\"].?numa.orValue(9) == 1",
    "device.attributes[\"gpu.example.com\"].?model.orValue(\"\") != \"small\"",
    "has(device.attributes[\"gpu.example.com\"].version) && device.attributes[\"gpu.example.com\"].version.isGreaterThan(semver(\"1.0.0\"))",
    "\"mem\" in device.capacity[\"gpu.example.com\"] && device.capacity[\"gpu.example.com\"].mem.compareTo(quantity(\"4\")) >= 0",
    "device.attributes[\"std.example.com\"].exists(k, k == \"root\")",
    "!device.allowMultipleAllocations",
];

/// The random choices of a seed.
pub(super) struct Draw {
    random: Random,
}

impl Draw {
    pub(super) fn new(seed: u64) -> Self {
        Self { random: Random::new(seed) }
    }

    /// The classes: one per driver, and one for all devices except the canary.
    pub(super) fn classes() -> Vec<Value> {
        let class = |name: &str, expression: String| {
            json!({
                "apiVersion": "resource.k8s.io/v1", "kind": "DeviceClass",
                "metadata": {"name": name},
                "spec": {"selectors": [{"cel": {"expression": expression}}]},
            })
        };
        let of = |driver: &str| format!("device.driver == \"{driver}\"");
        let mut all = class("any", format!("device.driver != \"{CANARY}\""));
        let opaque = json!({"driver": NIC, "parameters": {"of": "class"}});
        all["spec"]["config"] = json!([{"opaque": opaque}]);
        vec![class("gpu", of(GPU)), class("nic", of(NIC)), all, class("canary", of(CANARY))]
    }

    /// The slices of a node.
    pub(super) fn slices(&mut self, node: &str) -> Vec<Value> {
        let mut slices = Vec::new();
        for driver in [GPU, NIC] {
            let pools = self.random.pick(&[1, 1, 2]);
            for number in 0..pools {
                let pool = format!("{node}-{}", self.random.between(0, 4) * 10 + number);
                self.pool(&mut slices, node, driver, &pool);
            }
        }
        slices
    }

    fn pool(&mut self, slices: &mut Vec<Value>, node: &str, driver: &str, pool: &str) {
        let partitioned = self.random.percent(20);
        let parts = self.random.pick(&[1, 1, 2]);
        let count = parts + usize::from(partitioned);
        let turned = self.random.between(0, 9);
        for part in 0..count {
            let name = format!("{}-{driver}-{pool}-{part}", (part + turned) % 10);
            let mut spec = json!({
                "driver": driver, "nodeName": node,
                "pool": {"name": pool, "generation": 1, "resourceSliceCount": count},
            });
            if part == parts {
                let counters = json!({"c": {"value": "6"}});
                spec["sharedCounters"] = json!([{"name": "set", "counters": counters}]);
            } else {
                let devices = self.random.between(1, 4);
                let devices = (0..devices).map(|d| self.device(driver, 10 * part + d, partitioned));
                spec["devices"] = devices.collect();
            }
            slices.push(json!({
                "apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice",
                "metadata": {"name": name}, "spec": spec,
            }));
        }
    }

    fn device(&mut self, driver: &str, number: usize, partitioned: bool) -> Value {
        let mut attributes = Map::new();
        let (numa, root) = (self.random.between(0, 1), self.random.pick(&["r0", "r1", "r2"]));
        if self.random.percent(90) {
            attributes.insert("std.example.com/numa".to_owned(), json!({"int": numa}));
        }
        if self.random.percent(80) {
            attributes.insert("std.example.com/root".to_owned(), json!({"string": root}));
        }
        if driver == GPU {
            let model = self.random.pick(&["small", "large"]);
            attributes.insert("model".to_owned(), json!({"string": model}));
            let version = self.random.pick(&["1.0.0", "1.2.3"]);
            attributes.insert("version".to_owned(), json!({"version": version}));
        }
        let mut device = json!({"name": format!("d{number}"), "attributes": attributes});
        if self.random.percent(50) {
            device["capacity"] = json!({"mem": {"value": self.random.between(2, 8).to_string()}});
        }
        if self.random.percent(20) {
            let policy = json!({"default": "1", "validRange": {"min": "1", "step": "1"}});
            let value = self.random.between(2, 8).to_string();
            device["capacity"] = json!({"mem": {"value": value, "requestPolicy": policy}});
            device["allowMultipleAllocations"] = json!(true);
        }
        if partitioned {
            let amount = self.random.between(1, 4).to_string();
            let counters = json!({"c": {"value": amount}});
            device["consumesCounters"] = json!([{"counterSet": "set", "counters": counters}]);
        }
        if self.random.percent(10) {
            let effect = self.random.pick(&["NoSchedule", "NoExecute"]);
            device["taints"] = json!([{"key": "broken", "value": "yes", "effect": effect}]);
        }
        device
    }

    /// The requests and constraints of a pod's claims.
    pub(super) fn claims(&mut self) -> Vec<Value> {
        let count = self.random.pick(&[1, 1, 1, 2]);
        (0..count).map(|_| self.devices()).collect()
    }

    fn devices(&mut self) -> Value {
        let (mut requests, mut names) = (Vec::new(), Vec::new());
        for number in 0..self.random.pick(&[1, 2, 2, 3]) {
            let name = format!("r{number}");
            names.push(name.clone());
            if self.random.percent(25) {
                let subrequests = (0..self.random.between(1, 3)).map(|sub| {
                    names.push(format!("{name}/s{sub}"));
                    let mut ask = self.ask();
                    ask["name"] = json!(format!("s{sub}"));
                    ask
                });
                let subrequests: Vec<_> = subrequests.collect();
                requests.push(json!({"name": name, "firstAvailable": subrequests}));
            } else {
                requests.push(json!({"name": name, "exactly": self.ask()}));
            }
        }
        let mut devices = json!({"requests": requests});
        let constraints = (0..self.random.pick(&[0, 1, 1, 2])).map(|_| self.constraint(&names));
        let constraints: Vec<_> = constraints.collect();
        if !constraints.is_empty() {
            devices["constraints"] = json!(constraints);
        }
        if self.random.percent(25) {
            let opaque = json!({"driver": GPU, "parameters": {"of": "claim"}});
            devices["config"] = json!([{"requests": [names[0]], "opaque": opaque}]);
        }
        devices
    }

    fn ask(&mut self) -> Value {
        let class = self.random.pick(&["gpu", "gpu", "nic", "nic", "any"]);
        let mut ask = json!({"deviceClassName": class});
        if self.random.percent(4) {
            ask["allocationMode"] = json!("All");
        } else {
            ask["count"] = json!(self.random.pick(&[1, 1, 1, 2, 3]));
        }
        if self.random.percent(35) {
            let expression = self.random.pick(SELECTORS);
            ask["selectors"] = json!([{"cel": {"expression": expression}}]);
        }
        if self.random.percent(20) {
            ask["tolerations"] = json!([{"key": "broken", "operator": "Exists"}]);
        }
        if self.random.percent(25) {
            let amount = self.random.pick(&["1", "2", "3"]);
            ask["capacity"] = json!({"requests": {"mem": amount}});
        }
        ask
    }

    fn constraint(&mut self, names: &[String]) -> Value {
        let attribute = self.random.pick(&["std.example.com/numa", "std.example.com/root"]);
        let kind = if self.random.percent(25) { "distinctAttribute" } else { "matchAttribute" };
        let mut constraint = json!({kind: attribute});
        if self.random.percent(60) {
            // A request and its own subrequests are not named together.
            let mut some: Vec<&String> = Vec::new();
            for name in names.iter().filter(|_| self.random.percent(60)) {
                let parent = name.split_once('/').map(|(parent, _)| parent);
                if !some.iter().any(|known| Some(known.as_str()) == parent) {
                    some.push(name);
                }
            }
            if !some.is_empty() {
                constraint["requests"] = json!(some);
            }
        }
        constraint
    }
}

/// The slice that is created last.
pub(super) fn canary(node: &str) -> Value {
    json!({
        "apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice",
        "metadata": {"name": format!("canary-{node}")},
        "spec": {
            "driver": CANARY, "nodeName": node,
            "pool": {"name": node, "generation": 1, "resourceSliceCount": 1},
            "devices": [{"name": "canary"}],
        },
    })
}

/// A claim for its device.
pub(super) fn canary_claim() -> Value {
    json!({"requests": [{"name": "canary", "exactly": {"deviceClassName": "canary"}}]})
}

/// A pod with these claims.
pub(super) fn pod(name: &str, claims: &[ResourceClaim]) -> Value {
    let entry = |claim: &ResourceClaim| json!({"name": claim.name_any(), "resourceClaimName": claim.name_any()});
    let claims: Vec<_> = claims.iter().map(entry).collect();
    json!({
        "metadata": {"name": name},
        "spec": {"containers": [{"name": "main", "image": "none"}], "resourceClaims": claims},
    })
}
