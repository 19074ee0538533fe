//! Warnings about a pod that is admitted.

use super::{Intent, annotations, is_triggered};
use crate::denial::cut;
use cluster_model::names::annotation;
use cluster_model::pod_containers::main_first;
use k8s_openapi::api::core::v1::{Container, Pod, PodSpec};

/// The maximum edit distance to a known key that is suggested as a correction.
const TYPING_ERRORS_MAX: usize = 3;

/// The maximum number of warnings about annotations.
const WARNINGS_MAX: usize = 8;

/// The longest key that is quoted, and the longest with which known ones are compared, which takes
/// the product of both lengths.
const KEY_MAX: usize = 64;

/// Returns one warning for each annotation in our domain that has no effect, with the most similar
/// known key, up to a limit.
pub fn warnings(pod: &Pod) -> Vec<String> {
    let triggered = is_triggered(pod);
    let ours = annotations(pod).keys().filter(|key| key.starts_with(annotation::DOMAIN));
    let mut found = ours.filter_map(|key| warning(key, triggered));
    let mut warnings: Vec<_> = found.by_ref().take(WARNINGS_MAX).collect();
    if found.next().is_some() {
        warnings.push("more annotations of dranet have no effect".to_owned());
    }
    warnings
}

/// Says that an annotation has no effect, and why, if so.
fn warning(key: &str, triggered: bool) -> Option<String> {
    if !annotation::on_pods().any(|known| known == key) {
        let nearest = nearest(key).map(|known| format!("; did you mean {known}?"));
        let (hint, key) = (nearest.unwrap_or_default(), cut(key, KEY_MAX));
        return Some(format!(
            "annotation {key} is not known to this version of dranet and has no effect{hint}"
        ));
    }
    let is_lonely = !triggered && annotation::asking().any(|asking| asking == key);
    is_lonely
        .then(|| format!("annotation {key} has no effect without {}", annotation::ALIGNED_NICS))
}

/// Warns about containers that may not lock memory. RDMA needs it, and fails late and with unclear
/// errors. Our own driver lifts the limit of locked memory of every container that gets its NICs;
/// this is for pods with NICs of other drivers, which do not.
pub(crate) fn memlock(pod: &Pod, intent: &Intent) -> Vec<String> {
    let Some(spec) = &pod.spec else { return Vec::new() };
    main_first(spec)
        .filter(|container| intent.shares.iter().any(|share| share.container == container.name))
        .filter_map(|container| cannot_lock(spec, container))
        .collect()
}

/// Why the container may not lock memory, if so. Capabilities that are added to a container are not
/// effective for users other than root.
fn cannot_lock(spec: &PodSpec, container: &Container) -> Option<String> {
    let name = &container.name;
    if container.security_context.as_ref().and_then(|it| it.privileged) == Some(true) {
        return None;
    }
    if is_non_root(spec, container) {
        return Some(format!(
            "container `{name}` does not run as root, so a capability IPC_LOCK has no effect: RDMA \
             fails where the runtime's limit of locked memory is low"
        ));
    }
    (!adds_ipc_lock(container)).then(|| {
        format!(
            "container `{name}` has no capability IPC_LOCK: RDMA fails where the runtime's limit \
             of locked memory is low"
        )
    })
}

/// Whether the pod says that the container does not run as root. Otherwise its image says so, which
/// nobody here can read.
fn is_non_root(spec: &PodSpec, container: &Container) -> bool {
    let own = container.security_context.as_ref();
    let pods = spec.security_context.as_ref();
    let user = own.and_then(|it| it.run_as_user).or_else(|| pods?.run_as_user);
    let non_root = own.and_then(|it| it.run_as_non_root);
    let non_root = non_root.or_else(|| pods?.run_as_non_root).unwrap_or(false);
    user.map_or(non_root, |user| user != 0)
}

fn adds_ipc_lock(container: &Container) -> bool {
    let context = container.security_context.as_ref();
    let capabilities = context.and_then(|context| context.capabilities.as_ref());
    let added = capabilities.and_then(|capabilities| capabilities.add.as_deref());
    let mut added = added.unwrap_or_default().iter();
    added.any(|name| matches!(name.as_str(), "IPC_LOCK" | "CAP_IPC_LOCK" | "ALL"))
}

/// Warns that a priority alone does not help a pod to get devices: kube-scheduler evicts pods for CPU
/// and memory, but not for devices of claims (kubernetes/enhancements issue 5690).
pub(crate) fn preemption(pod: &Pod) -> Option<String> {
    let spec = pod.spec.as_ref()?;
    let class = spec.priority_class_name.as_deref().filter(|class| !class.is_empty())?;
    (spec.preemption_policy.as_deref() != Some("Never")).then(|| {
        format!(
            "PriorityClass {class} helps the pod to get devices only where preemptor runs: the \
             scheduler itself evicts no pod for devices of a claim"
        )
    })
}

fn nearest(key: &str) -> Option<&'static str> {
    if key.len() > KEY_MAX {
        return None;
    }
    let key = key.to_lowercase();
    let distances =
        annotation::on_pods().map(|known| (strsim::damerau_levenshtein(&key, known), known));
    let (distance, nearest) = distances.min_by_key(|(distance, _)| *distance)?;
    (distance <= TYPING_ERRORS_MAX).then_some(nearest)
}
