//! Which container gets the devices of a pod without GPU limits, in whatever order other webhooks add
//! containers.

use super::annotated;
use super::cluster::{GB300, cluster};
use admission::admit::admit;
use admission::plan::Policy;
use serde_json::{Value, json};

/// A pod with containers of these names and one GPU by annotation.
fn pod(containers: &[&str]) -> Value {
    let mut pod = annotated(&[("aligned-nics", "1"), ("gpus", "1")]);
    pod["spec"]["containers"] = containers.iter().map(|name| container(name)).collect();
    pod
}

fn container(name: &str) -> Value {
    json!({ "name": name, "image": name })
}

fn admitted(pod: &Value) -> Value {
    admit(pod, &cluster(&[GB300]), &Policy::default()).unwrap().pod
}

/// The containers with the claim.
fn users(pod: &Value) -> Vec<&str> {
    let lists = ["containers", "initContainers"];
    let all = lists.iter().flat_map(|list| pod["spec"][list].as_array().into_iter().flatten());
    let users = all.filter(|container| container["resources"]["claims"][0]["name"] == "dranet");
    users.map(|container| container["name"].as_str().unwrap()).collect()
}

/// Adds a container where a webhook does: before or after all others, or as a sidecar of Kubernetes.
fn add(pod: &mut Value, place: &str, name: &str) {
    let mut added = container(name);
    if place == "native" {
        added["restartPolicy"] = "Always".into();
        pod["spec"]["initContainers"] = json!([added]);
        return;
    }
    let containers = pod["spec"]["containers"].as_array_mut().unwrap();
    let at = if place == "first" { 0 } else { containers.len() };
    containers.insert(at, added);
}

#[test]
fn containers_that_are_added_later_change_nothing() {
    for own in ["main", "envoy"] {
        for added in ["istio-proxy", "agent-that-nobody-knows"] {
            for place in ["first", "last", "native"] {
                let mut pod = admitted(&pod(&[own]));
                assert_eq!(users(&pod), [own]);
                add(&mut pod, place, added);
                // The template is not in the view yet, so the pod is decided on again.
                assert_eq!(admitted(&pod), pod, "{added} is {place} beside {own}");
            }
        }
    }
}

#[test]
fn sidecars_that_are_there_before_get_nothing() {
    for sidecar in ["istio-proxy", "linkerd-proxy", "csql-team-db", "fluent-bit-logs"] {
        for place in ["first", "last", "native"] {
            let mut before = pod(&["main"]);
            add(&mut before, place, sidecar);
            let pod = admitted(&before);
            assert_eq!(users(&pod), ["main"], "{sidecar} is {place}");
            let mut later = admitted(&self::pod(&["main"]));
            add(&mut later, place, sidecar);
            assert_eq!(pod, admitted(&later), "in either order: {sidecar} is {place}");
        }
    }
}

#[test]
fn limits_decide_whichever_containers_are_added() {
    let mut limited = annotated(&[("aligned-nics", "1")]);
    limited["spec"]["containers"][0]["name"] = "istio-proxy".into();
    let mut pod = admitted(&limited);
    add(&mut pod, "first", "main");
    assert_eq!(users(&admitted(&pod)), ["istio-proxy"]);
}
