//! The two pods of a measurement.

use crate::args::BenchArgs;
use cluster_model::names::{annotation, label};
use serde_json::{Value, json};

/// Label of the pods of a measurement, by which they avoid each other's node and leftovers are
/// found.
pub(crate) const LABEL: &str = "bench.dranet.io/run";

/// Placeholder for the server's address in a dry run.
pub(crate) const NO_ADDRESS: &str = "ADDRESS-OF-THE-SERVER";

/// Seconds that the pods may live beyond the time that `bench` waits for them.
const DEADLINE_GRACE: u64 = 60;

/// Taints with which GPU operators keep other pods off their nodes.
const TOLERATED: [&str; 2] = ["nvidia.com/gpu", "amd.com/gpu"];

/// The script of both containers. It uses the first RDMA device of the claim, which the driver
/// names in `UCX_NET_DEVICES`. A server serves until it is deleted; a client tries again while its
/// server may still be starting. The result is the termination message, so that the user needs no
/// right to read logs.
const SCRIPT: &str = r#"device=${UCX_NET_DEVICES%%:*}
[ -n "$device" ] || device=$(ls /sys/class/infiniband | head -n 1)
measure() { ib_write_bw -d "$device" -s "$BYTES" -D "$SECONDS_LONG" -F --report_gbits "$@" 2>&1; }
if [ -z "$SERVER" ]; then while :; do measure "$@"; sleep 1; done; fi
for attempt in 1 2 3 4 5 6 7 8 9 10; do
  result=$(measure "$@" "$SERVER") && status=0 && break
  status=1; sleep 3
done
printf '%s\n' "$result" | tail -c 4000 | tee /dev/termination-log
exit $status"#;

/// Where a pod is to run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Place {
    /// The node that the user named.
    pub(crate) node: Option<String>,
    /// The fabric of the other pod.
    pub(crate) fabric: Option<String>,
}

/// The pod that is written to.
pub(crate) fn server(args: &BenchArgs, run: &str, place: &Place) -> Value {
    pod(args, run, "server", place, "")
}

/// The pod that writes and measures.
pub(crate) fn client(args: &BenchArgs, run: &str, place: &Place, address: &str) -> Value {
    pod(args, run, "client", place, address)
}

/// The name of a pod of a run.
pub(crate) fn name(run: &str, role: &str) -> String {
    format!("dranet-bench-{run}-{role}")
}

fn pod(args: &BenchArgs, run: &str, role: &str, place: &Place, address: &str) -> Value {
    let memory = args.gpu_memory.then_some("--use_cuda=0");
    let flags = memory.into_iter().chain(args.perftest.iter().map(String::as_str));
    let shell = ["/bin/sh", "-c", SCRIPT, "bench"];
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
            // It ends by itself if nobody is left to delete it.
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
                "command": shell.into_iter().chain(flags).collect::<Vec<_>>(),
                "env": [
                    variable("SERVER", address),
                    variable("BYTES", &args.bytes.to_string()),
                    variable("SECONDS_LONG", &args.seconds.to_string()),
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
