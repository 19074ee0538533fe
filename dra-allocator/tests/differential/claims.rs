//! Random classes and claims.

use serde_json::{Map, Value, json};

use super::{Channel, DRIVERS, Draw, Theme};

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

impl Draw<'_> {
    pub(super) fn classes(&mut self) -> Value {
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

    pub(super) fn claims(&mut self) -> Value {
        // More requests make the search too long, above all where it tries permutations.
        let counts = match self.theme {
            _ if self.channel == Channel::Stable => &[1, 1, 1, 2],
            Theme::Mixed | Theme::BrokenPools => &[1, 1, 1, 2],
            Theme::EqualRequests | Theme::Shares | Theme::Counters => &[1, 1, 2, 2],
        };
        let count = self.random.pick(counts);
        let claims = (0..count).map(|number| self.claim(number));
        claims.collect()
    }

    fn claim(&mut self, number: usize) -> Value {
        let (mut requests, mut names) = (Vec::new(), Vec::new());
        let many = number == 0 && self.channel != Channel::Stable;
        let counts = if many { &[1, 2, 2, 3] } else { &[1, 1, 1, 2] };
        for index in 0..self.random.pick(counts) {
            let name = format!("r{index}");
            names.push(name.clone());
            if self.uses_in(Theme::Shares, "DRAPrioritizedList", 55, 30) {
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

    /// A request, or one similar to an earlier one.
    fn ask(&mut self, exact: bool) -> Value {
        if !self.asks.is_empty() && self.percent_in(Theme::EqualRequests, 60, 10) {
            let mut ask = self.asks[self.random.below(self.asks.len())].clone();
            if !exact && let Value::Object(fields) = &mut ask {
                fields.remove("adminAccess");
            }
            // The same except for the count: it selects devices in the same way.
            if ask["allocationMode"] == json!("ExactCount") && self.percent(30) {
                ask["count"] = json!(self.between(1, 2));
            }
            return ask;
        }
        let ask = self.new_ask(exact);
        self.asks.push(ask.clone());
        ask
    }

    fn new_ask(&mut self, exact: bool) -> Value {
        let class = self.random.pick(&["all", "a", "a", "b"]);
        let mut ask = json!({"deviceClassName": class});
        if self.percent_in(Theme::BrokenPools, 25, 7) {
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
        if self.uses_in(Theme::Shares, "DRAConsumableCapacity", 55, 30) {
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
