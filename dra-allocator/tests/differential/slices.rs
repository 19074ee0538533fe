//! Random slices with their devices.

use serde_json::{Map, Value, json};

use super::{DRIVERS, Draw, Theme};

const POOLS: &[&str] = &["n1", "pool", "x/y"];

impl Draw<'_> {
    pub(super) fn slices(&mut self) -> Vec<Value> {
        let mut slices = Vec::new();
        let pools = self.between(1, 3);
        for pool in 0..pools {
            let driver = self.random.pick(DRIVERS);
            let names: &[_] =
                if self.theme == Theme::Counters { &["n1", "n1", "x/y"] } else { POOLS };
            let name = self.random.pick(names);
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
        let partitions = self.uses_in(Theme::Counters, "DRAPartitionableDevices", 80, 25);
        let count = if self.theme == Theme::BrokenPools { 3 } else { 2 };
        let count = self.between(1, count);
        let with_counters = count + usize::from(partitions);
        let declared = if self.percent(3) { with_counters + 1 } else { with_counters };
        let generation = self.between(1, 2);
        let mut next_device = 0;
        for index in 0..with_counters {
            let newer = self.percent_in(Theme::BrokenPools, 15, 4);
            let name = format!("{}-{index}-{driver}-{}", self.between(0, 9), slices.len());
            let mut spec = json!({
                "driver": driver,
                "pool": {
                    "name": pool,
                    "generation": generation + usize::from(newer),
                    "resourceSliceCount": self.slice_count(declared),
                },
            });
            let per_device = self.target(&mut spec);
            if index == count {
                spec["sharedCounters"] = self.counter_sets();
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
        // Kubernetes meets slices in any order.
        if self.percent_in(Theme::BrokenPools, 60, 10) {
            let (first, last) = (slices.len() - with_counters, slices.len() - 1);
            slices.swap(self.between(first, last), last);
        }
    }

    /// The number of slices that a slice declares for its pool.
    fn slice_count(&mut self, declared: usize) -> usize {
        if !self.percent_in(Theme::BrokenPools, 25, 1) {
            return declared;
        }
        self.between(1, declared + 1)
    }

    fn counter_sets(&mut self) -> Value {
        let (c0, c1) = (self.random.pick(&["3", "4", "6"]), self.random.pick(&["1", "2"]));
        let mut sets = vec![json!({
            "name": "set",
            "counters": {"c0": {"value": c0}, "c1": {"value": c1}},
        })];
        if self.percent_in(Theme::Counters, 40, 0) {
            sets.push(json!({"name": "other", "counters": {"c0": {"value": "3"}}}));
        }
        json!(sets)
    }

    /// Sets the nodes of a slice; returns true if its devices name them.
    fn target(&mut self, spec: &mut Value) -> bool {
        match self.between(0, 19) {
            0 if self.percent(50) => spec["nodeName"] = json!("n2"),
            7..=9 if self.theme == Theme::BrokenPools => spec["nodeName"] = json!("n2"),
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
            let mut consumed = vec![self.consumption()];
            if self.percent_in(Theme::Counters, 25, 0) {
                consumed.push(json!({"counterSet": "other", "counters": {"c0": {"value": "1"}}}));
            }
            device["consumesCounters"] = json!(consumed);
        }
        if self.percent(40) {
            let value = self.between(1, 8).to_string();
            device["capacity"] = json!({"mem": {"value": value}});
        }
        if self.uses_in(Theme::Shares, "DRAConsumableCapacity", 75, 30) {
            device["allowMultipleAllocations"] = json!(true);
            device["capacity"] = self.shared_capacity();
        }
        if self.uses_in(Theme::Counters, "DRADeviceTaints", 35, 15) {
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
}
