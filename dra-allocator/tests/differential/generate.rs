//! Random cases in the conformance format: small clusters in which much can go wrong.

use serde_json::{Map, Value, json};

use crate::random::Random;

/// The variant of the allocator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Channel {
    /// Without order.
    Stable,
    /// The default.
    Incubating,
    /// With alpha features.
    Experimental,
}

impl Channel {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Stable => "stable",
            Self::Incubating => "incubating",
            Self::Experimental => "experimental",
        }
    }

    fn features(self) -> Vec<&'static str> {
        let mut features = vec![
            "DRAAdminAccess",
            "DRAPrioritizedList",
            "DRAPartitionableDevices",
            "DRADeviceTaints",
        ];
        if self != Self::Stable {
            features.push("DRADeviceBindingConditions+DRAResourceClaimDeviceStatus");
            features.push("DRAConsumableCapacity");
            features.push("DRAFractionalCapacityRange");
        }
        if self == Self::Experimental {
            features.push("DRAListTypeAttributes");
            features.push("DRAOptionalNodeOperations");
            features.push("DRADerivedAttributes");
            features.push("DRADeviceCompatibilityGroups");
        }
        features
    }
}

const DRIVERS: &[&str] = &["a.example.com", "b.example.com"];
const SELECTORS: &[&str] = &[
    "device.driver == \"a.example.com\"",
    "device.driver == \"b.example.com\"",
    "device.driver.endsWith(\"example.com\")",
    "device.attributes[device.driver].?root.orValue(\"\") == \"r0\"",
    "device.attributes[\"std.io\"].?numa.orValue(9) in [0, 1]",
    "has(device.attributes[\"std.io\"].numa) && device.attributes[\"std.io\"].numa != 2",
    "device.attributes[\"a.example.com\"].exists(k, v, k == \"root\")",
    "cel.bind(own, device.attributes[device.driver], has(own.ok) && type(own.ok) == bool && own.ok)",
    "device.attributes[device.driver].?version.hasValue() || device.driver == \"b.example.com\"",
    "\"mem\" in device.capacity[device.driver] && device.capacity[device.driver].mem.compareTo(quantity(\"4\")) >= 0",
    // Fails on devices without the attribute.
    "device.attributes[device.driver].root in [\"r0\", \"r1\"]",
];

/// What may be drawn for a case.
struct Draw<'r> {
    random: &'r mut Random,
    features: Vec<&'static str>,
    channel: Channel,
}

/// Draws a case.
pub(crate) fn case(random: &mut Random, channel: Channel) -> Value {
    let mut features = channel.features();
    if random.percent(40) {
        features.retain(|_| random.percent(80));
    }
    let mut draw = Draw { random, features, channel };
    let slices = draw.slices();
    let devices = devices(&slices);
    let (mut allocated, mut shared, mut capacity) = (Vec::new(), Vec::new(), Map::new());
    for (id, multiple) in devices {
        if multiple && draw.percent(40) {
            shared.push(json!(format!("{id}/{}", "0123-share")));
            if draw.percent(70) {
                capacity.insert(id, json!({"mem": draw.between(1, 3).to_string()}));
            }
        } else if draw.percent(15) {
            allocated.push(json!(id));
        }
    }
    json!({
        "kubernetes": "1.37.1",
        "channel": channel.name(),
        "features": draw.features.clone(),
        "node": draw.node(),
        "classes": draw.classes(),
        "claims": draw.claims(),
        "slices": slices,
        "allocatedDevices": allocated,
        "allocatedShared": shared,
        "aggregatedCapacity": capacity,
        "results": null,
        "error": "",
        "numAllocateOne": 0,
    })
}

/// The names of all devices, once, and whether they can be shared.
fn devices(slices: &[Value]) -> Vec<(String, bool)> {
    let mut devices: Vec<(String, bool)> = Vec::new();
    for slice in slices {
        let spec = &slice["spec"];
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        for device in spec["devices"].as_array().into_iter().flatten() {
            let pool = text(&spec["pool"]["name"]);
            let id = format!("{}/{pool}/{}", text(&spec["driver"]), text(&device["name"]));
            if !devices.iter().any(|(known, _)| *known == id) {
                devices.push((id, device["allowMultipleAllocations"] == json!(true)));
            }
        }
    }
    devices
}

impl Draw<'_> {
    fn percent(&mut self, percent: usize) -> bool {
        self.random.percent(percent)
    }

    fn between(&mut self, from: usize, to: usize) -> usize {
        self.random.between(from, to)
    }

    fn has(&self, feature: &str) -> bool {
        self.features.contains(&feature)
    }

    /// Rarely also what the gates do not allow.
    fn uses(&mut self, feature: &str, percent: usize) -> bool {
        let percent = if self.has(feature) { percent } else { percent / 15 };
        self.channel.features().contains(&feature) && self.percent(percent)
    }

    fn node(&mut self) -> Value {
        let zone = self.random.pick(&["a", "b"]);
        let mut node = json!({"metadata": {"name": "n1", "labels": {"zone": zone}}});
        if self.percent(50) {
            node["status"] = json!({"declaredFeatures": ["DRAOptionalNodeOperations"]});
        }
        node
    }

    fn slices(&mut self) -> Vec<Value> {
        let mut slices = Vec::new();
        let pools = self.between(1, 3);
        for pool in 0..pools {
            let driver = self.random.pick(DRIVERS);
            let name = self.random.pick(&["n1", "pool", "x/y"]);
            let name = if slices.iter().any(|slice: &Value| {
                slice["spec"]["driver"] == driver && slice["spec"]["pool"]["name"] == name
            }) {
                format!("{name}{pool}")
            } else {
                name.to_owned()
            };
            self.pool(&mut slices, driver, &name);
        }
        slices
    }

    fn pool(&mut self, slices: &mut Vec<Value>, driver: &str, pool: &str) {
        let partitions = self.uses("DRAPartitionableDevices", 25);
        let count = self.between(1, 2);
        let with_counters = count + usize::from(partitions);
        let declared = if self.percent(3) { with_counters + 1 } else { with_counters };
        let generation = self.between(1, 2);
        let mut next_device = 0;
        for index in 0..with_counters {
            let generation = if self.percent(4) { generation + 1 } else { generation };
            let name = format!("{}-{index}-{driver}-{}", self.between(0, 9), slices.len());
            let mut spec = json!({
                "driver": driver,
                "pool": {"name": pool, "generation": generation, "resourceSliceCount": declared},
            });
            let per_device = self.target(&mut spec);
            if index == count {
                let counters = json!({"c0": {"value": "4"}, "c1": {"value": "2"}});
                spec["sharedCounters"] = json!([{"name": "set", "counters": counters}]);
            } else {
                let devices = self.between(1, 5);
                let first = if self.percent(3) { 0 } else { next_device };
                next_device += devices;
                let devices = (first..first + devices)
                    .map(|device| self.device(device, partitions, per_device));
                spec["devices"] = devices.collect();
            }
            if self.uses("DRAOptionalNodeOperations", 15) {
                spec["skipNodeOperations"] = json!(["NodePrepareResources"]);
            }
            slices.push(json!({"metadata": {"name": name}, "spec": spec}));
        }
    }

    /// Whom a slice is for; true where its devices say it.
    fn target(&mut self, spec: &mut Value) -> bool {
        match self.between(0, 19) {
            0 if self.percent(50) => spec["nodeName"] = json!("n2"),
            1 | 2 => spec["allNodes"] = json!(true),
            3 | 4 => spec["nodeSelector"] = self.node_selector(),
            5 | 6 if self.has("DRAPartitionableDevices") => {
                spec["perDeviceNodeSelection"] = json!(true);
                return true;
            }
            _ => spec["nodeName"] = json!("n1"),
        }
        false
    }

    fn node_selector(&mut self) -> Value {
        let requirement = match self.between(0, 3) {
            0 => json!({"key": "zone", "operator": "In", "values": ["a"]}),
            1 => json!({"key": "zone", "operator": "NotIn", "values": ["b"]}),
            2 => json!({"key": "zone", "operator": "Exists"}),
            _ => json!({"key": "gone", "operator": "DoesNotExist"}),
        };
        json!({"nodeSelectorTerms": [{"matchExpressions": [requirement]}]})
    }

    fn device(&mut self, number: usize, partitions: bool, per_device: bool) -> Value {
        let mut device = json!({"name": format!("d{number}"), "attributes": self.attributes()});
        if per_device {
            match self.between(0, 3) {
                0 => device["nodeName"] = json!("n1"),
                1 => device["nodeName"] = json!("n2"),
                2 => device["allNodes"] = json!(true),
                _ => device["nodeSelector"] = self.node_selector(),
            }
        }
        if partitions && self.percent(70) {
            device["consumesCounters"] = json!([self.consumption()]);
        }
        if self.percent(40) {
            let value = self.between(1, 8).to_string();
            device["capacity"] = json!({"mem": {"value": value}});
        }
        if self.uses("DRAConsumableCapacity", 30) {
            device["allowMultipleAllocations"] = json!(true);
            device["capacity"] = self.shared_capacity();
        }
        if self.uses("DRADeviceTaints", 15) {
            let effect = self.random.pick(&["NoSchedule", "NoExecute", "None"]);
            device["taints"] = json!([{"key": "k", "value": "v", "effect": effect}]);
        }
        if self.uses("DRADeviceBindingConditions+DRAResourceClaimDeviceStatus", 10) {
            device["bindingConditions"] = json!(["ready"]);
            device["bindingFailureConditions"] = json!(["broken"]);
            device["bindsToNode"] = json!(self.percent(50));
        }
        device
    }

    fn attributes(&mut self) -> Value {
        let mut attributes = Map::new();
        let lists = self.has("DRAListTypeAttributes");
        if self.percent(90) {
            let root = self.random.pick(&["r0", "r1", "r2"]);
            let name = self.random.pick(&["root", "root", "a.example.com/root"]);
            let other = self.random.pick(&["r0", "r1", "r2"]);
            let list = lists && self.percent(40);
            let value =
                if list { json!({"strings": [root, other]}) } else { json!({"string": root}) };
            attributes.insert(name.to_owned(), value);
        }
        if self.percent(85) {
            let (numa, other) = (self.between(0, 2), self.between(0, 2));
            let list = lists && self.percent(30);
            let value = if list { json!({"ints": [numa, other]}) } else { json!({"int": numa}) };
            attributes.insert("std.io/numa".to_owned(), value);
        }
        if self.percent(40) {
            attributes.insert("ok".to_owned(), json!({"bool": self.percent(50)}));
        }
        if self.percent(30) {
            let version = self.random.pick(&["1.0.0", "1.2.3"]);
            attributes.insert("version".to_owned(), json!({"version": version}));
        }
        Value::Object(attributes)
    }

    fn consumption(&mut self) -> Value {
        let mut counters = Map::new();
        counters.insert("c0".to_owned(), json!({"value": self.between(1, 3).to_string()}));
        if self.percent(50) {
            counters.insert("c1".to_owned(), json!({"value": "1"}));
        }
        let set = if self.percent(2) { "unknown" } else { "set" };
        let mut consumption = json!({"counterSet": set, "counters": counters});
        if self.has("DRADeviceCompatibilityGroups") && self.percent(60) {
            let groups: &[&[&str]] = &[&["g"], &["h"], &["g", "h"]];
            consumption["compatibilityGroups"] = json!(self.random.pick(groups));
        }
        consumption
    }

    fn shared_capacity(&mut self) -> Value {
        let policy = match self.between(0, 4) {
            0 => json!({"default": "1", "validValues": ["1", "2", "4"]}),
            1 => json!({"default": "2", "validRange": {"min": "1", "max": "6", "step": "1"}}),
            2 => json!({"default": "1", "validRange": {"min": "1", "step": "2"}}),
            3 => json!({"default": "500m", "validRange": {"min": "500m", "step": "250m"}}),
            _ => return json!({"mem": {"value": self.between(2, 8).to_string()}}),
        };
        json!({"mem": {"value": self.between(2, 8).to_string(), "requestPolicy": policy}})
    }

    fn classes(&mut self) -> Value {
        let classes = ["all", "a", "b"].iter().enumerate().map(|(index, name)| {
            let mut spec = Map::new();
            if index > 0 {
                let expression = SELECTORS[index - 1];
                spec.insert("selectors".to_owned(), json!([{"cel": {"expression": expression}}]));
            }
            if self.percent(30) {
                let opaque = json!({"driver": DRIVERS[0], "parameters": {"of": name}});
                spec.insert("config".to_owned(), json!([{"opaque": opaque}]));
            }
            json!({"metadata": {"name": name}, "spec": spec})
        });
        classes.collect()
    }

    fn claims(&mut self) -> Value {
        let count = self.random.pick(&[1, 1, 1, 2]);
        let claims = (0..count).map(|number| self.claim(number));
        claims.collect()
    }

    fn claim(&mut self, number: usize) -> Value {
        let (mut requests, mut names) = (Vec::new(), Vec::new());
        for index in 0..self.random.pick(&[1, 2, 2, 3]) {
            let name = format!("r{index}");
            names.push(name.clone());
            if self.uses("DRAPrioritizedList", 30) {
                let count = self.between(1, 3);
                let subrequests = (0..count).map(|sub| {
                    let sub = format!("s{sub}");
                    names.push(format!("{name}/{sub}"));
                    let mut ask = self.ask(false);
                    ask["name"] = json!(sub);
                    ask
                });
                let subrequests: Vec<_> = subrequests.collect();
                requests.push(json!({"name": name, "firstAvailable": subrequests}));
            } else {
                requests.push(json!({"name": name, "exactly": self.ask(true)}));
            }
        }
        let mut devices = json!({"requests": requests});
        let constraints: Vec<_> =
            (0..self.random.pick(&[0, 0, 1, 1, 2])).map(|_| self.constraint(&names)).collect();
        if !constraints.is_empty() {
            devices["constraints"] = json!(constraints);
        }
        if self.percent(25) {
            let opaque = json!({"driver": DRIVERS[1], "parameters": {"claim": number}});
            let mut config = json!({"opaque": opaque});
            if self.percent(60) {
                config["requests"] = json!(self.some_of(&names));
            }
            devices["config"] = json!([config]);
        }
        json!({"metadata": {"name": format!("c{number}")}, "spec": {"devices": devices}})
    }

    fn some_of(&mut self, names: &[String]) -> Vec<String> {
        let mut some: Vec<_> = names.iter().filter(|_| self.percent(50)).cloned().collect();
        if some.is_empty() {
            some.extend(names.first().cloned());
        }
        some
    }

    fn constraint(&mut self, names: &[String]) -> Value {
        let attribute = self.random.pick(&[
            "std.io/numa",
            "std.io/numa",
            "a.example.com/root",
            "b.example.com/ok",
        ]);
        let distinct = self.channel != Channel::Stable && self.percent(30);
        let kind = if distinct { "distinctAttribute" } else { "matchAttribute" };
        let mut constraint = json!({kind: attribute});
        if self.percent(60) {
            constraint["requests"] = json!(self.some_of(names));
        }
        constraint
    }

    fn ask(&mut self, exact: bool) -> Value {
        let class = self.random.pick(&["all", "a", "a", "b"]);
        let mut ask = json!({"deviceClassName": class});
        if self.percent(7) {
            ask["allocationMode"] = json!("All");
        } else {
            ask["allocationMode"] = json!("ExactCount");
            ask["count"] = json!(self.random.pick(&[1, 1, 1, 1, 2, 3]));
        }
        if self.percent(35) {
            let expression = self.random.pick(SELECTORS);
            ask["selectors"] = json!([{"cel": {"expression": expression}}]);
        }
        if exact && self.uses("DRAAdminAccess", 8) {
            ask["adminAccess"] = json!(true);
        }
        if self.percent(15) {
            let effect = self.random.pick(&["NoSchedule", "NoExecute"]);
            let tolerations = [
                json!({"key": "k", "operator": "Exists"}),
                json!({"value": "v", "effect": effect}),
            ];
            ask["tolerations"] = json!([tolerations[self.between(0, 1)]]);
        }
        if self.uses("DRAConsumableCapacity", 30) {
            let amount = self.random.pick(&["1", "2", "3", "700m"]);
            ask["capacity"] = json!({"requests": {"mem": amount}});
        }
        if self.uses("DRADerivedAttributes", 15) {
            let expression = self.random.pick(&[
                "device.attributes[\"std.io\"].?numa.orValue(7)",
                "device.driver",
                "device.attributes[\"std.io\"].numa",
            ]);
            let derived = json!({"name": "std.io/numa", "expression": expression});
            ask["derivedAttributes"] = json!([derived]);
        }
        ask
    }
}
