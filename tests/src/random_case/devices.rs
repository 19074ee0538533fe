//! Kinds of claims: devices of a driver that only the cases have.

use serde_json::{Value, json};

use super::{Case, annotated};
use crate::random::Random;

const DRIVER: &str = "tests.dranet.io";
/// The class of its devices.
const CLASS: &str = "tests-device";
/// Between the node and the seed in the name of a pool. The scheduler may still know the pool of the case
/// before, and hold its devices for a pod that is gone.
const OF_CASE: &str = "-tests-";
const EXTENDED: &str = "tests.dranet.io/device";

/// Adds the class and a slice of devices on each node.
fn publish(case: &mut Case, nodes: &[String], mut devices: impl FnMut() -> Vec<Value>) {
    let expression = format!("device.driver == \"{DRIVER}\"");
    case.objects.push(json!({
        "apiVersion": "resource.k8s.io/v1", "kind": "DeviceClass", "metadata": {"name": CLASS},
        "spec": {"selectors": [{"cel": {"expression": expression}}]},
    }));
    for node in nodes {
        let slice = slice(case, node, ("devices", 1), &json!({"devices": devices()}));
        case.objects.push(slice);
    }
}

/// The node of a pool of these devices.
pub fn node_of_pool(pool: &str) -> Option<&str> {
    pool.split_once(OF_CASE).map(|(node, _)| node)
}

/// One of the slices of a node's pool.
fn slice(case: &Case, node: &str, (part, parts): (&str, usize), content: &Value) -> Value {
    let pool = format!("{node}{OF_CASE}{}", case.seed);
    let mut slice = json!({
        "apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice",
        "metadata": {"name": format!("{pool}-{part}")},
        "spec": {
            "driver": DRIVER, "nodeName": node,
            "pool": {"name": pool, "generation": 1, "resourceSliceCount": parts},
        },
    });
    for (field, value) in content.as_object().into_iter().flatten() {
        slice["spec"][field] = value.clone();
    }
    slice
}

/// One to three devices of the sizes.
fn plain(random: &mut Random) -> Vec<Value> {
    let count = 1 + random.below(3);
    let sizes = (0..count).map(|_| *random.pick(&["small", "large"]));
    let device = |(number, size): (usize, &str)| json!({"name": format!("d{number}"), "attributes": {"size": {"string": size}}});
    sizes.enumerate().map(device).collect()
}

/// The pod names a claim or a template that is not there.
pub(super) fn missing_claim(case: &mut Case, _: &[String], random: &mut Random) {
    let source = *random.pick(&["resourceClaimName", "resourceClaimTemplateName"]);
    case.pod["metadata"]["annotations"] = Value::Null;
    case.pod["spec"]["resourceClaims"] = json!([{"name": "own", source: "tests-missing"}]);
}

fn request(count: usize) -> Value {
    json!({"deviceClassName": CLASS, "count": count})
}

/// Lets the pod ask for devices by a template of its own instead of annotations, beside a pod that did so
/// before.
fn ask(case: &mut Case, nodes: &[String], request: &Value, random: &mut Random) {
    let mut whole = json!({"name": "own"});
    let form = if request.is_array() { "firstAvailable" } else { "exactly" };
    whole[form] = request.clone();
    case.objects.push(json!({
        "apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaimTemplate",
        "metadata": {"name": "own"}, "spec": {"spec": {"devices": {"requests": [whole]}}},
    }));
    let claim = json!([{"name": "own", "resourceClaimTemplateName": "own"}]);
    case.pod["metadata"]["annotations"] = Value::Null;
    case.pod["spec"]["resourceClaims"] = claim.clone();
    if random.below(2) == 0 {
        let mut earlier = case.pod.clone();
        earlier["metadata"] = json!({"name": "earlier-own"});
        earlier["spec"] = json!({
            "nodeSelector": {"kubernetes.io/hostname": random.pick(nodes)},
            "containers": [{"name": "main", "image": "none"}], "resourceClaims": claim,
        });
        case.earlier.push(super::tolerant(earlier));
    }
}

pub(super) fn shared_claim(case: &mut Case, nodes: &[String], random: &mut Random) {
    publish(case, nodes, || plain(random));
    let exactly = request(1 + random.below(2));
    case.objects.push(json!({
        "apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", "metadata": {"name": "shared"},
        "spec": {"devices": {"requests": [{"name": "own", "exactly": exactly}]}},
    }));
    let claim = json!([{"name": "shared", "resourceClaimName": "shared"}]);
    if random.below(3) > 0 {
        let mut first = annotated("earlier-shared", random);
        first["metadata"]["annotations"] = Value::Null;
        first["spec"]["resourceClaims"] = claim.clone();
        case.earlier.push(super::tolerant(first));
    }
    case.pod["metadata"]["annotations"] = Value::Null;
    case.pod["spec"]["resourceClaims"] = claim;
}

pub(super) fn extended_resource(case: &mut Case, nodes: &[String], random: &mut Random) {
    publish(case, nodes, || plain(random));
    let class = case.objects.iter_mut().find(|it| it["kind"] == "DeviceClass");
    if let Some(class) = class {
        class["spec"]["extendedResourceName"] = json!(EXTENDED);
    }
    let count = 1 + random.below(3);
    case.pod["spec"]["containers"][0]["resources"]["limits"] = json!({EXTENDED: count.to_string()});
}

pub(super) fn prioritized_list(case: &mut Case, nodes: &[String], random: &mut Random) {
    publish(case, nodes, || plain(random));
    let expression = format!("device.attributes[\"{DRIVER}\"].size == \"large\"");
    let mut large = request(1 + random.below(2));
    large["name"] = json!("large");
    large["selectors"] = json!([{"cel": {"expression": expression}}]);
    let mut any = request(1 + random.below(3));
    any["name"] = json!("any");
    ask(case, nodes, &json!([large, any]), random);
}

pub(super) fn counters(case: &mut Case, nodes: &[String], random: &mut Random) {
    publish(case, &[], Vec::new);
    for node in nodes {
        let devices = plain(random).into_iter().map(|mut device| {
            let parts = json!({"parts": {"value": random.pick(&["2", "3"])}});
            device["consumesCounters"] = json!([{"counterSet": "chip", "counters": parts}]);
            device
        });
        let devices: Vec<Value> = devices.collect();
        let counters = json!({"parts": {"value": "4"}});
        let sets = json!({"sharedCounters": [{"name": "chip", "counters": counters}]});
        let counters = slice(case, node, ("counters", 2), &sets);
        let devices = slice(case, node, ("devices", 2), &json!({"devices": devices}));
        case.objects.extend([counters, devices]);
    }
    ask(case, nodes, &request(1 + random.below(2)), random);
}

pub(super) fn consumable_capacity(case: &mut Case, nodes: &[String], random: &mut Random) {
    publish(case, nodes, || {
        let memory = random.pick(&["4", "8"]);
        vec![json!({
            "name": "shared", "allowMultipleAllocations": true,
            "capacity": {"memory": {"value": memory, "requestPolicy": {
                "default": "1", "validRange": {"min": "1", "step": "1"},
            }}},
        })]
    });
    let mut request = request(1);
    request["capacity"] = json!({"requests": {"memory": random.pick(&["3", "5", "9"])}});
    ask(case, nodes, &request, random);
}

pub(super) fn admin_access(case: &mut Case, nodes: &[String], random: &mut Random) {
    publish(case, nodes, || plain(random));
    let mut request = request(1);
    request["adminAccess"] = json!(true);
    ask(case, nodes, &request, random);
}

pub(super) fn binding_conditions(case: &mut Case, nodes: &[String], random: &mut Random) {
    publish(case, nodes, || {
        let mut devices = plain(random);
        for device in &mut devices {
            device["bindingConditions"] = json!(["tests.dranet.io/ready"]);
            device["bindingFailureConditions"] = json!(["tests.dranet.io/failed"]);
        }
        devices
    });
    ask(case, nodes, &request(1), random);
}
