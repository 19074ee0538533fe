//! What kube-apiserver itself makes of a pod in a file before any webhook sees it: defaults of
//! `LimitRange`s, and what its `RuntimeClass` and `PriorityClass` stand for (`plugin/pkg/admission` of
//! `limitranger`, `runtimeclass` and `priority`).

use super::Subject;
use crate::source::ReadCluster;
use admission::intent::limit_defaults;
use cluster_model::room::requests;
use dra_allocator::Quantity;
use k8s_openapi::api::core::v1::{Pod, PodSpec};
use serde_json::{Map, Value, json};

/// The lists of containers, and what `LimitRanger` calls their containers.
const CONTAINER_LISTS: [(&str, &str); 2] =
    [("containers", "container"), ("initContainers", "init container")];

/// Fills in pods from files; pods of a cluster are filled in already.
pub(crate) fn fill(subjects: &mut [Subject], seen: &ReadCluster) {
    for Subject { pod, refused, .. } in subjects {
        if !pod["metadata"]["uid"].is_null() {
            continue;
        }
        if !pod["spec"].is_object() {
            continue;
        }
        let conflict = fill_runtime_class(&mut pod["spec"], seen);
        let conflict = conflict.or_else(|| fill_priority(&mut pod["spec"], seen));
        *refused = refused.take().or(conflict);
        let namespace = pod["metadata"]["namespace"].as_str().unwrap_or("default").to_owned();
        for range in seen.of_kind("LimitRange") {
            if range["metadata"]["namespace"] == namespace.as_str() {
                fill_limits(pod, range);
            }
        }
        let spec = &pod["spec"];
        *refused = refused.take().or_else(|| above_limit(spec)).or_else(|| above_pod(spec));
    }
}

fn named<'s>(seen: &'s ReadCluster, kind: &'static str, name: &str) -> Option<&'s Value> {
    seen.of_kind(kind).find(|object| object["metadata"]["name"] == name)
}

/// Overhead, node selector and tolerations of the `RuntimeClass`. Returns why the API server refuses the
/// pod, if it does.
fn fill_runtime_class(spec: &mut Value, seen: &ReadCluster) -> Option<String> {
    let name = spec["runtimeClassName"].as_str()?.to_owned();
    let class = named(seen, "RuntimeClass", &name)?;
    if let Some(overhead) = class["overhead"]["podFixed"].as_object() {
        spec["overhead"] = json!(overhead);
    }
    let scheduling = &class["scheduling"];
    for (key, value) in scheduling["nodeSelector"].as_object().into_iter().flatten() {
        let own = &spec["nodeSelector"][key];
        if !own.is_null() && own != value {
            return Some(format!(
                "is refused by the API server: its nodeSelector has {key}={own}, and its RuntimeClass \
                 {name} requires {value}"
            ));
        }
        spec["nodeSelector"][key] = value.clone();
    }
    let more = scheduling["tolerations"].as_array().cloned().unwrap_or_default();
    if !more.is_empty() {
        let mut tolerations = spec["tolerations"].as_array().cloned().unwrap_or_default();
        tolerations.extend(more);
        spec["tolerations"] = tolerations.into();
    }
    None
}

/// The number of the `PriorityClass`, or of the global default, and whether pods preempt others. Returns why
/// the API server refuses the pod, if it does. It always has classes, so if none is known, they were not read.
fn fill_priority(spec: &mut Value, seen: &ReadCluster) -> Option<String> {
    seen.of_kind("PriorityClass").next()?;
    let name = spec["priorityClassName"].as_str().filter(|name| !name.is_empty());
    let class = match name {
        Some(name) => named(seen, "PriorityClass", name),
        None => seen.of_kind("PriorityClass").find(|class| class["globalDefault"] == true),
    };
    let why = match (name, class) {
        (Some(name), None) => format!("there is no PriorityClass {name}"),
        (_, class) => differing_priority(spec, class)?,
    };
    Some(format!("is refused by the API server: {why}"))
}

/// Fills in what the class says; without one, pods have priority 0 and preempt others. Returns what the pod
/// says otherwise.
fn differing_priority(spec: &mut Value, class: Option<&Value>) -> Option<String> {
    let fields = [
        ("priority", "value", json!(0)),
        ("preemptionPolicy", "preemptionPolicy", json!("PreemptLowerPriority")),
    ];
    for (field, of_class, default) in fields {
        let given = class.map(|class| &class[of_class]).filter(|given| !given.is_null());
        let own = &spec[field];
        let expected = given.unwrap_or(&default);
        if !own.is_null() && own != expected {
            let which = class.map_or("a pod without a PriorityClass", |_| "its PriorityClass");
            return Some(format!("its {field} is {own}, and {which} has {expected}"));
        }
        if let Some(given) = given {
            spec[field] = given.clone();
        }
    }
    None
}

/// Limits and requests of containers that set none, and the annotation that lists them. A limit without
/// a request is the request too, which the API server fills in before.
fn fill_limits(pod: &mut Value, range: &Value) {
    let items = range["spec"]["limits"].as_array().into_iter().flatten();
    let items: Vec<[Map<String, Value>; 2]> =
        items.filter(|item| item["type"] == "Container").map(defaults).collect();
    let mut set = Vec::new();
    for (field, list) in CONTAINER_LISTS {
        for container in pod["spec"][field].as_array_mut().into_iter().flatten() {
            let own = &container["resources"];
            let limits = amounts(&own["limits"]);
            let mut requests = limits.clone();
            requests.extend(amounts(&own["requests"]));
            for (at, kind, mut amounts) in [(1, "request", requests), (0, "limit", limits)] {
                let missing = items.iter().flat_map(|item| &item[at]);
                let missing = missing.filter(|(name, _)| !amounts.contains_key(*name));
                let missing: Map<String, Value> =
                    missing.map(|(name, amount)| (name.clone(), amount.clone())).collect();
                if !missing.is_empty() {
                    let mut names: Vec<&str> = missing.keys().map(String::as_str).collect();
                    names.sort_unstable();
                    let container = word(&container["name"]);
                    set.push(format!("{} {kind} for {list} {container}", names.join(", ")));
                }
                amounts.extend(missing);
                if !amounts.is_empty() {
                    container["resources"][format!("{kind}s")] = amounts.into();
                }
            }
        }
    }
    if !set.is_empty() {
        let text = format!("{}{}", limit_defaults::START, set.join("; "));
        pod["metadata"]["annotations"][limit_defaults::ANNOTATION] = text.into();
    }
}

/// The limits and requests that an item sets (`SetDefaults_LimitRangeItem` of `pkg/apis/core/v1`): a
/// maximum is the limit, a limit is the request, and otherwise a minimum is the request.
fn defaults(item: &Value) -> [Map<String, Value>; 2] {
    let mut limits = amounts(&item["max"]);
    limits.extend(amounts(&item["default"]));
    let mut requests = amounts(&item["min"]);
    requests.extend(limits.clone());
    requests.extend(amounts(&item["defaultRequest"]));
    [limits, requests]
}

/// Why the API server refuses a container that requests more than its limit, which may be that of a
/// `LimitRange` (`ValidateContainerResourceRequirements` in `pkg/apis/core/validation`).
fn above_limit(spec: &Value) -> Option<String> {
    let fields = ["containers", "initContainers"].into_iter();
    let mut containers = fields.flat_map(|field| spec[field].as_array().into_iter().flatten());
    containers.find_map(|container| {
        let resources = &container["resources"];
        let limits = amounts(&resources["limits"]);
        amounts(&resources["requests"]).into_iter().find_map(|(name, request)| {
            let limit = limits.get(&name)?;
            (parsed(&request)? > parsed(limit)?).then(|| {
                format!(
                    "is refused by the API server: its container {} requests {} of {name}, more than \
                     its limit of {}",
                    word(&container["name"]),
                    word(&request),
                    word(limit)
                )
            })
        })
    })
}

/// Why the API server refuses a pod whose containers request more than the pod itself requests or may have,
/// together, or have a higher limit. Init containers and sidecars count as `AggregateContainerRequests` of
/// `k8s.io/component-helpers/resource` counts them: where the pod has a limit alone, this is its request
/// (`setDefaultPodLevelRequests`).
fn above_pod(spec: &Value) -> Option<String> {
    let own = &spec["resources"];
    let (requested, limits) = (amounts(&own["requests"]), amounts(&own["limits"]));
    let mut of_containers: PodSpec = serde_json::from_value(spec.clone()).ok()?;
    (of_containers.resources, of_containers.overhead) = (None, None);
    let of_containers = requests(&Pod { spec: Some(of_containers), ..Pod::default() });
    let request =
        requested.iter().find(|(name, request)| is_below(request, of_containers.get(name)));
    let request = request.map(|(name, request)| {
        format!("it requests {} of {name}, less than its containers together", word(request))
    });
    let why = request.or_else(|| {
        let mut alone = limits.iter().filter(|(name, _)| !requested.contains_key(*name));
        let (name, limit) = alone.find(|(name, limit)| is_below(limit, of_containers.get(name)))?;
        Some(format!(
            "its containers together request more of {name} than its limit of {}",
            word(limit)
        ))
    });
    let why = why.or_else(|| container_above_pod(spec, &limits))?;
    Some(format!("is refused by the API server: {why}"))
}

/// Whether an amount is less than this many thousandths.
fn is_below(amount: &Value, milli: i64) -> bool {
    parsed(amount).is_some_and(|amount| amount.milli_value() < milli)
}

/// A container with a higher limit than its pod. Init containers are not looked at
/// (`validatePodResourceConsistency`).
fn container_above_pod(spec: &Value, limits: &Map<String, Value>) -> Option<String> {
    let mut containers = spec["containers"].as_array().into_iter().flatten();
    containers.find_map(|container| {
        amounts(&container["resources"]["limits"]).into_iter().find_map(|(name, own)| {
            let limit = limits.get(&name)?;
            (parsed(&own)? > parsed(limit)?).then(|| {
                format!(
                    "its container {} has a limit of {} of {name}, more than the pod's limit of {}",
                    word(&container["name"]),
                    word(&own),
                    word(limit)
                )
            })
        })
    })
}

/// A text, or a number as it is written.
fn word(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

fn parsed(amount: &Value) -> Option<Quantity> {
    word(amount).parse().ok()
}

fn amounts(list: &Value) -> Map<String, Value> {
    list.as_object().cloned().unwrap_or_default()
}
