//! Requests of the extended resource that counts the GPUs of claims.

use super::containers;
use crate::alignment::Share;
use serde_json::Value;

/// The lists of amounts in a container's resources.
const AMOUNTS: [&str; 2] = ["limits", "requests"];

/// Makes the pod request one of the resource for each GPU of its claim, whatever it requested of it before.
/// Containers that share GPUs request them once.
pub(crate) fn count(pod: &mut Value, shares: &[Share], resource: &str) {
    for container in containers(pod) {
        let name = container["name"].as_str().unwrap_or_default();
        let gpus = own_gpus(shares, name);
        if gpus > 0 {
            for list in AMOUNTS {
                container["resources"][list][resource] = gpus.to_string().into();
            }
        } else if let Some(resources) = container.get_mut("resources") {
            for list in AMOUNTS {
                if let Some(amounts) = resources.get_mut(list).and_then(Value::as_object_mut) {
                    amounts.remove(resource);
                }
            }
        }
    }
}

/// How many GPUs a container has that no container before it has and keeps.
fn own_gpus(shares: &[Share], container: &str) -> u32 {
    let mut kept = 0;
    for share in shares {
        if share.container == container {
            return share.gpus.end.saturating_sub(share.gpus.start.max(kept));
        }
        if share.stays {
            kept = kept.max(share.gpus.end);
        }
    }
    0
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    const RESOURCE: &str = "example.org/gpus";

    #[test]
    fn each_gpu_is_requested_once() {
        let share =
            |container: &str, gpus, stays| Share { container: container.to_owned(), gpus, stays };
        for (case, shares, requested) in [
            ("NICs only", vec![share("a", 0..0, true)], [None, None, None]),
            ("one container", vec![share("a", 0..4, true)], [None, Some("4"), None]),
            (
                "a part each",
                vec![share("a", 0..3, true), share("b", 3..4, true)],
                [None, Some("3"), Some("1")],
            ),
            (
                "both have all",
                vec![share("a", 0..4, true), share("b", 0..4, true)],
                [None, Some("4"), None],
            ),
            // Kubernetes takes the larger of an init container and those that run after it.
            (
                "handed on",
                vec![share("init", 0..2, false), share("a", 0..4, true)],
                [Some("2"), Some("4"), None],
            ),
            (
                "listed later",
                vec![share("a", 0..4, true), share("init", 0..4, false)],
                [None, Some("4"), None],
            ),
        ] {
            let mut pod = json!({ "spec": {
                "initContainers": [{ "name": "init" }],
                "containers": [{ "name": "a" }, { "name": "b", "resources": {
                    "limits": { RESOURCE: "9", "cpu": "1" }, "requests": { RESOURCE: "9" },
                } }],
            } });
            count(&mut pod, &shares, RESOURCE);
            let spec = &pod["spec"];
            let all = [&spec["initContainers"][0], &spec["containers"][0], &spec["containers"][1]];
            for list in AMOUNTS {
                let seen = all.map(|container| container["resources"][list][RESOURCE].as_str());
                assert_eq!(seen, requested, "{case}: {list}");
            }
            assert_eq!(spec["containers"][1]["resources"]["limits"]["cpu"], "1", "{case}");
        }
    }
}
