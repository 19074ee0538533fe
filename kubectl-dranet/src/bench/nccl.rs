//! NCCL tests (`nccl-tests`) over all GPUs and NICs of two pods.
//!
//! Open MPI starts its daemon on another host with a remote shell, for which it runs an "agent"
//! (`plm_rsh_agent`, since 5.0 `plm_ssh_agent`) with the host and the command. Here the agent
//! writes the command to a file. A second container of the first pod ends with it as its
//! termination message, `bench` reads that in the pod's status, and creates the second pod to run
//! the command. So the image needs neither an SSH server nor keys, and the user no right to read
//! logs.

use super::measured::{Measured, OutputError};
use cluster_model::names::annotation;
use serde_json::{Value, json};

/// Size of the data by default, in bytes: large enough that bandwidth counts and not latency.
pub(super) const BYTES: u64 = 1 << 30;

/// The container that ends with the command for the second pod.
const RELAY: &str = "relay";

/// The volume that the containers of the first pod share.
const MEMORY: &str = "memory";

/// Folders of images that have nccl-tests or Open MPI, for images without them in `PATH`.
const FOLDERS: &str = "/opt/nccl_tests/build:/opt/nccl-tests/build:/nccl-tests/build:\
                       /opt/hpcx/ompi/bin:/opt/amazon/openmpi/bin:/usr/local/mpi/bin";

/// The beginning of both scripts. It writes the agent, which ends at once, as a remote shell does
/// when the daemon goes into the background. The daemon wants an agent too, and does not run it.
const PREPARE: &str = r#"PATH=$PATH:$FOLDERS
printf '#!/bin/sh\nshift\necho "$*" > /dev/shm/daemon.new\nmv /dev/shm/daemon.new /dev/shm/daemon\n' > /tmp/dranet-bench-agent
chmod +x /tmp/dranet-bench-agent"#;

/// What the relay runs.
const RELAY_SCRIPT: &str = "until [ -e /dev/shm/daemon ]; do sleep 1; done
cat /dev/shm/daemon > /dev/termination-log";

/// What the first pod runs: one process for each GPU.
const LAUNCHER: &str = r#"result=$(mpirun -np $((2 * GPUS)) -H "$HOSTNAME:$GPUS,$WORKER:$GPUS" --bind-to none \
  "$PROGRAM" -b "$BYTES" -e "$BYTES" -g 1 "$@" 2>&1)
status=$?
printf '%s\n' "$result" | tail -c 4000 | tee /dev/termination-log
exit $status"#;

/// What the second pod runs. The daemon goes into the background, and ends with `mpirun`.
const WORKER: &str = r#"sh -c "$DAEMON" 2>/dev/termination-log || exit
while grep -qxE 'orted|prted' /proc/[0-9]*/comm 2>/dev/null; do sleep 1; done"#;

/// Environment of Open MPI, up to 4 (`OMPI_`) and since 5 (`PRTE_`), and of NCCL, in both pods.
/// Control messages use the pod's own interface; NCCL finds the NICs by itself or by what the
/// driver says. On two nodes only its ring algorithm shows the rate of NICs: others reduce within
/// a node first (NVIDIA/nccl-tests issue 290).
const ENVIRONMENT: [(&str, &str); 13] = [
    ("OMPI_ALLOW_RUN_AS_ROOT", "1"),
    ("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1"),
    ("PRTE_ALLOW_RUN_AS_ROOT", "1"),
    ("PRTE_ALLOW_RUN_AS_ROOT_CONFIRM", "1"),
    ("OMPI_MCA_plm_rsh_agent", "/tmp/dranet-bench-agent"),
    ("PRTE_MCA_plm_ssh_agent", "/tmp/dranet-bench-agent"),
    ("OMPI_MCA_oob_tcp_if_include", "eth0"),
    ("PRTE_MCA_prte_if_include", "eth0"),
    ("OMPI_MCA_pml", "ob1"),
    ("OMPI_MCA_btl", "tcp,self"),
    ("OMPI_MCA_btl_tcp_if_include", "eth0"),
    ("NCCL_SOCKET_IFNAME", "eth0"),
    ("NCCL_ALGO", "RING"),
];

/// What the first pod runs.
pub(super) struct Launcher<'a> {
    /// The program of nccl-tests.
    pub(super) program: &'a str,
    /// GPUs of each pod.
    pub(super) gpus: u32,
    /// Size of the data.
    pub(super) bytes: u64,
    /// Name of the second pod, which is its host name too.
    pub(super) worker: &'a str,
}

impl Launcher<'_> {
    pub(super) fn script() -> String {
        format!("{PREPARE}\n{LAUNCHER}")
    }

    pub(super) fn environment(&self) -> Vec<Value> {
        let Self { program, gpus, bytes, worker } = self;
        let own = [
            variable("PROGRAM", program),
            variable("GPUS", &gpus.to_string()),
            variable("BYTES", &bytes.to_string()),
            variable("WORKER", worker),
        ];
        own.into_iter().chain(common()).collect()
    }
}

/// The script and environment of the second pod, which runs this command.
pub(super) fn worker(command: &str) -> (String, Vec<Value>) {
    // Kubernetes would replace `$(NAME)`.
    let daemon = variable("DAEMON", &command.replace("$(", "$$("));
    (format!("{PREPARE}\n{WORKER}"), [daemon].into_iter().chain(common()).collect())
}

fn common() -> impl Iterator<Item = Value> {
    let all = ENVIRONMENT.into_iter().chain([("FOLDERS", FOLDERS)]);
    all.map(|(name, value)| variable(name, value))
}

/// An `EnvVar`.
pub(super) fn variable(name: &str, value: &str) -> Value {
    json!({ "name": name, "value": value })
}

/// Completes a pod. Processes of a pod exchange data in memory, of which containers have 64 MiB
/// otherwise. The first pod gets its relay, which needs no devices.
pub(super) fn complete(pod: &mut Value, is_first: bool) {
    let workload = pod["spec"]["containers"][0]["name"].clone();
    pod["metadata"]["annotations"][annotation::CONTAINERS] = workload;
    let spec = &mut pod["spec"];
    spec["volumes"] = json!([{ "name": MEMORY, "emptyDir": { "medium": "Memory" } }]);
    let mounts = json!([{ "name": MEMORY, "mountPath": "/dev/shm" }]);
    let image = spec["containers"][0]["image"].clone();
    spec["containers"][0]["volumeMounts"] = mounts.clone();
    if let (true, Some(containers)) = (is_first, spec["containers"].as_array_mut()) {
        containers.push(json!({
            "name": RELAY,
            "image": image,
            "command": ["/bin/sh", "-c", RELAY_SCRIPT],
            "volumeMounts": mounts,
        }));
    }
}

/// The command for the second pod in the status of the first.
pub(super) fn daemon_command(pod: &Value) -> Option<&str> {
    let mut containers = pod["status"]["containerStatuses"].as_array()?.iter();
    let relay = containers.find(|it| it["name"] == RELAY)?;
    relay["state"]["terminated"]["message"].as_str().map(str::trim).filter(|it| !it.is_empty())
}

/// Reads the table of nccl-tests: of the last row the bus bandwidth out of place, which does not
/// depend on the number of ranks and so is compared with the rates of links (`PERFORMANCE.md` of
/// nccl-tests). Columns: size, count, type, redop, root, time, algbw, busbw, #wrong, and the same
/// four in place; units are bytes and 10^9 bytes a second.
pub(super) fn parse(text: &str) -> Result<Measured, OutputError> {
    if !text.lines().any(|line| line.contains("busbw")) {
        return Err(OutputError::NoTable);
    }
    let rows = text.lines().filter(|line| !line.starts_with('#'));
    rows.filter_map(|line| {
        let cells: Vec<&str> = line.split_whitespace().collect();
        let bytes = cells.first()?.parse().ok()?;
        // Some tests have no column for the operation or its root.
        let place = cells.len().checked_sub(6).filter(|place| *place >= 3)?;
        let gigabytes: f64 = cells[place].parse().ok()?;
        Some(Measured { bytes, gbps: 8.0 * gigabytes })
    })
    .next_back()
    .ok_or(OutputError::NoResult)?
    .checked()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::process::Command;

    /// As printed on several nodes of 8 GPUs: NVIDIA/nccl issue 1411.
    const ALL_REDUCE: &str = "\
# nThread 1 nGpus 1 minBytes 8 maxBytes 268435456 step: 2(factor) warmup iters: 5 iters: 20
#                                                              out-of-place                       in-place          
#       size         count      type   redop    root     time   algbw   busbw #wrong     time   algbw   busbw #wrong
#        (B)    (elements)                               (us)  (GB/s)  (GB/s)            (us)  (GB/s)  (GB/s)       
   134217728      33554432     float     sum      -1   1724.4   77.83  145.94      0   1703.6   78.78  147.72      0
   268435456      67108864     float     sum      -1   3378.2   79.46  148.99      0   3371.0   79.63  149.31      0
# Out of bounds values : 0 OK
";

    /// Version 2.20 between two machines of one GPU: NVIDIA/dgx-spark-playbooks pull request 103.
    const NEWER: &str = "\
#       size         count      type   redop    root     time   algbw   busbw  #wrong     time   algbw   busbw  #wrong
#        (B)    (elements)                               (us)  (GB/s)  (GB/s)             (us)  (GB/s)  (GB/s)
       65536         16384     float     sum      -1    67.93    0.96    0.96       0    64.71    1.01    1.01       0
";

    #[test]
    fn the_last_row_counts() {
        let last = |text: &str| parse(text).map(|it| (it.bytes, it.gbps));
        assert_eq!(last(ALL_REDUCE), Ok((268_435_456, 8.0 * 148.99)));
        assert_eq!(last(NEWER), Ok((65_536, 8.0 * 0.96)));
        let headings: Vec<&str> = NEWER.lines().filter(|line| line.starts_with('#')).collect();
        assert_eq!(last(&headings.join("\n")), Err(OutputError::NoResult));
        assert_eq!(last("mpirun: not found"), Err(OutputError::NoTable));
        assert_eq!(last(&NEWER.replace("0.96", "0.00")), Err(OutputError::NoResult));
    }

    #[test]
    fn the_command_of_the_daemon_is_found() {
        let pod = |name: &str, state: Value| {
            let main = json!({ "name": "main", "state": { "running": {} } });
            json!({ "status": { "containerStatuses": [main, { "name": name, "state": state }] } })
        };
        let ended = |message: &str| json!({ "terminated": { "exitCode": 0, "message": message } });
        let found = pod("relay", ended("orted -mca ess \"env\"\n"));
        assert_eq!(daemon_command(&found), Some("orted -mca ess \"env\""));
        for none in [
            pod("relay", json!({ "running": {} })),
            pod("relay", ended("")),
            pod("other", ended("orted")),
            json!({}),
        ] {
            assert_eq!(daemon_command(&none), None, "{none}");
        }
    }

    #[test]
    fn kubernetes_replaces_nothing_in_the_command() {
        let (_, environment) = worker("prted --x $(hostname)");
        assert_eq!(environment[0]["value"], "prted --x $$(hostname)");
    }

    /// The agent's own quoting, by a real shell.
    #[test]
    fn the_agent_writes_the_command_without_the_host() {
        let folder = tempfile::tempdir().unwrap();
        let within = |text: &str| {
            // The folder's own path can have either in it.
            let marked = text.replace("/tmp/", "\0/").replace("/dev/shm", "\0");
            marked.replace('\0', folder.path().to_str().unwrap())
        };
        let run = |script: &str| {
            let status = Command::new("sh").args(["-c", script]).status();
            assert!(status.unwrap().success(), "{script}");
        };
        run(&within(PREPARE));
        run(&within("/tmp/dranet-bench-agent host orted -mca ess '\"env\"'"));
        let told = folder.path().join("told");
        run(&within(RELAY_SCRIPT).replace("/dev/termination-log", told.to_str().unwrap()));
        assert_eq!(fs::read_to_string(told).unwrap(), "orted -mca ess \"env\"\n");
    }
}
