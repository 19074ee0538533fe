//! Random cases in the conformance format: small clusters in which much can go wrong.

mod claims;
mod slices;

use serde_json::{Map, Value, json};

use crate::random::Random;

/// A version of Kubernetes that has an oracle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Version {
    V1_36,
    V1_37,
}

impl Version {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::V1_36 => "1.36.3",
            Self::V1_37 => "1.37.1",
        }
    }
}

/// The variant of the allocator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Channel {
    /// Without a defined order.
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

    /// The gates of this variant in a version.
    fn features(self, version: Version) -> Vec<&'static str> {
        let from_1_37 = version == Version::V1_37;
        let mut features = vec![
            "DRAAdminAccess",
            "DRAPrioritizedList",
            "DRAPartitionableDevices",
            "DRADeviceTaints",
        ];
        if self != Self::Stable {
            features.push("DRADeviceBindingConditions+DRAResourceClaimDeviceStatus");
            features.push("DRAConsumableCapacity");
        }
        if self != Self::Stable && from_1_37 {
            features.push("DRAFractionalCapacityRange");
        }
        if self == Self::Experimental {
            features.push("DRAListTypeAttributes");
        }
        if self == Self::Experimental && from_1_37 {
            features.push("DRAOptionalNodeOperations");
            features.push("DRADerivedAttributes");
            features.push("DRADeviceCompatibilityGroups");
        }
        features
    }
}

const DRIVERS: &[&str] = &["a.example.com", "b.example.com"];

/// What a case emphasizes: faults were found where several such things met.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Theme {
    /// A little of everything.
    Mixed,
    /// Pools whose slices disagree on generation or number, or are on other nodes as well, and
    /// requests for all devices.
    BrokenPools,
    /// Equal requests, within one claim and across claims.
    EqualRequests,
    /// Shared devices, and requests with alternatives for them.
    Shares,
    /// Devices that consume counters of pools with the same name, and taints.
    Counters,
}

impl Theme {
    const ALL: &[Self] = &[
        Self::Mixed,
        Self::Mixed,
        Self::BrokenPools,
        Self::EqualRequests,
        Self::Shares,
        Self::Counters,
    ];
}

/// The state of generating one case.
struct Draw<'r> {
    random: &'r mut Random,
    features: Vec<&'static str>,
    channel: Channel,
    version: Version,
    theme: Theme,
    /// The requests so far, without their names.
    asks: Vec<Value>,
}

/// Generates a case.
pub(crate) fn case(random: &mut Random, channel: Channel, version: Version) -> Value {
    let mut features = channel.features(version);
    if random.percent(40) {
        features.retain(|_| random.percent(80));
    }
    let theme = random.pick(Theme::ALL);
    let mut draw = Draw { random, features, channel, version, theme, asks: Vec::new() };
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
    let rules = if version == Version::V1_37 { draw.taint_rules() } else { Vec::new() };
    json!({
        "kubernetes": version.name(),
        "channel": channel.name(),
        "features": draw.features.clone(),
        "node": draw.node(),
        "classes": draw.classes(),
        "claims": draw.claims(),
        "slices": slices,
        "taintRules": rules,
        "allocatedDevices": allocated,
        "allocatedShared": shared,
        "aggregatedCapacity": capacity,
        "results": null,
        "error": "",
        "numAllocateOne": 0,
    })
}

/// The names of all devices, without duplicates, and whether they can be shared.
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

    /// Returns true if the case uses a feature; rarely also one whose gate is off.
    fn uses(&mut self, feature: &str, percent: usize) -> bool {
        let percent = if self.has(feature) { percent } else { percent / 15 };
        self.channel.features(self.version).contains(&feature) && self.percent(percent)
    }

    /// Uses one probability for cases of a theme and another one for all others.
    fn percent_in(&mut self, theme: Theme, percent: usize, otherwise: usize) -> bool {
        self.percent(if self.theme == theme { percent } else { otherwise })
    }

    /// Like [`Draw::uses`], with another probability for cases of a theme.
    fn uses_in(&mut self, theme: Theme, feature: &str, percent: usize, otherwise: usize) -> bool {
        self.uses(feature, if self.theme == theme { percent } else { otherwise })
    }

    /// Rules that add taints, in the names of one another's drivers, pools and devices.
    fn taint_rules(&mut self) -> Vec<Value> {
        let percent = if self.theme == Theme::Counters { 60 } else { 15 };
        let number = if self.percent(percent) { self.between(1, 3) } else { 0 };
        (0..number).map(|number| self.taint_rule(number)).collect()
    }

    fn taint_rule(&mut self, number: usize) -> Value {
        let mut selector = Map::new();
        if self.percent(60) {
            selector.insert("driver".to_owned(), json!(self.random.pick(DRIVERS)));
        }
        if self.percent(30) {
            selector.insert("pool".to_owned(), json!(self.random.pick(&["n1", "pool", "x/y"])));
        }
        if self.percent(60) {
            selector.insert("device".to_owned(), json!(format!("d{}", self.between(0, 3))));
        }
        let effect = self.random.pick(&["NoSchedule", "NoSchedule", "NoExecute", "None"]);
        let taint = json!({"key": "example.com/broken", "value": "yes", "effect": effect});
        let mut spec = json!({"taint": taint});
        if self.percent(90) {
            spec["deviceSelector"] = Value::Object(selector);
        }
        json!({"metadata": {"name": format!("rule-{number}")}, "spec": spec})
    }

    fn node(&mut self) -> Value {
        let zone = self.random.pick(&["a", "b"]);
        let mut node = json!({"metadata": {"name": "n1", "labels": {"zone": zone}}});
        if self.percent(50) {
            node["status"] = json!({"declaredFeatures": ["DRAOptionalNodeOperations"]});
        }
        node
    }
}
