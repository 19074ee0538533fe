//! The two pods of a measurement.

use crate::args::BenchArgs;
use cluster_model::names::{annotation, label};
use serde_json::{Value, json};

/// Label by which the pods of one measurement find each other, and by which what is left of any is
/// found.
pub(crate) const LABEL: &str = "bench.dranet.io/run";

/// What a client stands for until its server has an address.
pub(crate) const NO_ADDRESS: &str = "ADDRESS-OF-THE-SERVER";

/// Seconds that the pods may live beyond the time that `bench` waits for them.
const DEADLINE_GRACE: u64 = 60;

/// Taints by which the operators of GPUs keep other pods from their nodes.
const TOLERATED: [&str; 2] = ["nvidia.com/gpu", "amd.com/gpu"];

/// What either container does. The first RDMA device of the claim, as the driver tells it, takes
/// part. A server serves whoever comes until it is deleted; a client tries for as long as its
/// server may be starting. The result goes where the kubelet reads it into the pod's status, so
/// that nobody needs the right to read logs.
const SCRIPT: &str = r#"device=${UCX_NET_DEVICES%%:*}
[ -n "$device" ] || device=$(ls /sys/class/infiniband | head -n 1)
measure() { ib_write_bw -d "$device" -s "$BYTES" -D "$SECONDS_LONG" -F --report_gbits $MORE "$@" 2>&1; }
if [ -z "$SERVER" ]; then while :; do measure; sleep 1; done; fi
for attempt in 1 2 3 4 5 6 7 8 9 10; do
  result=$(measure "$SERVER") && status=0 && break
  status=1; sleep 3
done
printf '%s\n' "$result" | tail -c 4000 | tee /dev/termination-log
exit $status"#;

/// Where a pod is to run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Place {
    /// The node that was asked for.
    pub(crate) node: Option<String>,
    /// The fabric of the other pod.
    pub(crate) fabric: Option<String>,
}

/// The one that is written to.
pub(crate) fn server(args: &BenchArgs, run: &str, place: &Place) -> Value {
    pod(args, run, "server", place, "")
}

/// The one that writes, and measures.
pub(crate) fn client(args: &BenchArgs, run: &str, place: &Place, address: &str) -> Value {
    pod(args, run, "client", place, address)
}

/// The name of a pod of a run.
pub(crate) fn name(run: &str, role: &str) -> String {
    format!("dranet-bench-{run}-{role}")
}

fn pod(args: &BenchArgs, run: &str, role: &str, place: &Place, address: &str) -> Value {
    let more = if args.gpu_memory { "--use_cuda=0" } else { "" };
    let mut selector = json!({});
    if let Some(node) = &place.node {
        selector["kubernetes.io/hostname"] = node.as_str().into();
    }
    if let Some(fabric) = &place.fabric {
        selector[label::NODE_FABRIC] = fabric.as_str().into();
    }
    let keys = TOLERATED.into_iter().chain(args.tolerations.iter().map(String::as_str));
    let tolerations = keys.map(|key| json!({ "key": key, "operator": "Exists" }));
    let variable = |name: &str, value: &str| json!({ "name": name, "value": value });
    let mut pod = json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name(run, role),
            "labels": { LABEL: run, "app.kubernetes.io/managed-by": "kubectl-dranet" },
            "annotations": { annotation::ALIGNED_NICS: "1", annotation::GPUS: "1" },
        },
        "spec": {
            // Where nobody is left to delete it, it ends by itself.
            "activeDeadlineSeconds": u64::from(args.timeout) + DEADLINE_GRACE,
            "restartPolicy": "Never",
            "terminationGracePeriodSeconds": 1,
            "automountServiceAccountToken": false,
            "enableServiceLinks": false,
            "nodeSelector": selector,
            "tolerations": tolerations.collect::<Vec<_>>(),
            "affinity": { "podAntiAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": [{
                    "labelSelector": { "matchLabels": { LABEL: run } },
                    "topologyKey": "kubernetes.io/hostname",
                }],
            } },
            "containers": [{
                "name": "main",
                "image": args.image,
                "command": ["/bin/sh", "-c", SCRIPT],
                "env": [
                    variable("SERVER", address),
                    variable("BYTES", &args.bytes.to_string()),
                    variable("SECONDS_LONG", &args.seconds.to_string()),
                    variable("MORE", more),
                ],
                "securityContext": { "capabilities": { "add": ["IPC_LOCK"] } },
            }],
        },
    });
    if let Some(name) = &args.scheduler {
        pod["spec"]["schedulerName"] = name.as_str().into();
    }
    pod
}
