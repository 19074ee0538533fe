//! Pods that this program creates, watches and deletes.

mod state;

pub(crate) use state::{MAIN, State};

use crate::kinds::Kind;
use crate::live::{Cluster, Signals};
use crate::reply::Verb;
use anyhow::Context as _;
use cluster_model::names::annotation;
use serde_json::{Value, json};
use std::time::{Duration, Instant};

/// Time between two reads of a pod.
pub(crate) const PERIOD: Duration = Duration::from_millis(500);

/// Longest wait for pods to be gone.
const GONE: Duration = Duration::from_mins(1);

/// Seconds that a pod may live beyond the time that this program waits for it.
const DEADLINE_GRACE: u64 = 60;

/// Taints with which GPU operators keep other pods off their nodes.
pub(crate) const TOLERATED: [&str; 2] = ["nvidia.com/gpu", "amd.com/gpu"];

/// A pod with one container that asks for GPUs and aligned NICs. It ends by itself if nobody is left to
/// delete it.
pub(crate) fn pod(
    name: &str,
    image: &str,
    (gpus, nics): (u32, u32),
    seconds: impl Into<u64>,
) -> Value {
    let tolerations = TOLERATED.map(toleration);
    json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "labels": { "app.kubernetes.io/managed-by": "kubectl-dranet" },
            "annotations": {
                annotation::ALIGNED_NICS: nics.to_string(),
                annotation::GPUS: gpus.to_string(),
            },
        },
        "spec": {
            "activeDeadlineSeconds": seconds.into() + DEADLINE_GRACE,
            "restartPolicy": "Never",
            "terminationGracePeriodSeconds": 1,
            "automountServiceAccountToken": false,
            "enableServiceLinks": false,
            "tolerations": tolerations,
            "containers": [{ "name": MAIN, "image": image }],
        },
    })
}

/// Chooses the class of a pod's GPUs, for clusters with GPUs of several drivers.
pub(crate) fn choose(pod: &mut Value, gpu_class: Option<&str>) {
    if let Some(class) = gpu_class {
        pod["metadata"]["annotations"][annotation::GPU_CLASS] = class.into();
    }
}

/// A toleration of a taint with this key.
pub(crate) fn toleration(key: &str) -> Value {
    json!({ "key": key, "operator": "Exists" })
}

/// Deletes objects and waits until they are gone. One whose creation was interrupted may still appear.
///
/// # Errors
/// Says `left` if they may still exist.
pub(crate) fn delete(
    cluster: &Cluster,
    signals: &mut Signals,
    namespace: &str,
    kind: Kind,
    (names, left): (&[String], &str),
) -> anyhow::Result<()> {
    let until = Instant::now() + GONE;
    loop {
        let mut is_gone = true;
        for name in names {
            let there = cluster.request_object(signals, kind, (namespace, name), Verb::Delete);
            is_gone &= there.with_context(|| left.to_owned())?.is_none();
        }
        if is_gone {
            return Ok(());
        }
        anyhow::ensure!(Instant::now() < until, left.to_owned());
        cluster.pause_or_end(signals, PERIOD).with_context(|| left.to_owned())?;
    }
}
