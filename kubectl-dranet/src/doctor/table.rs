//! The table of checks, in the order in which they are made and printed. A new check is a function in a
//! file of this folder and a row here: its name, the page about what it finds, the kinds that it needs,
//! what to call, what it is about (if that need not be there), and whether it can be made before the
//! project is installed.

use super::checks::{Basis, Check, found, known, live};
use super::{
    annotations, cluster, devices, drivers, extender, fabrics, former_plugins, gpu_direct,
    installation, kubelet, machines, modules, nodes, rdma, rights, selectors, server, waiting,
    webhook,
};
use crate::kinds::{DAEMON_SETS, DEPLOYMENTS, DEVICES, INSTALLATION, NODES, PODS, WITH_PODS};

/// The page about what is not on another page.
const PAGE: &str = "docs/operate/troubleshooting.md";
const CPUS: &str = "docs/guides/cpu-and-memory.md";
const PLUGINS: &str = "docs/operate/device-plugins.md";
const SCHEDULER: &str = "docs/guides/scheduler.md";

pub(super) const CHECKS: [Check; 20] = [
    found("nodes are there and ready", PAGE, &[], &[nodes::examine]).only_with(&[NODES]).early(),
    known(
        "GPUs, NICs, graphs, classes and quotas",
        PAGE,
        &[
            cluster::without_devices,
            cluster::classes,
            selectors::examine,
            cluster::broken_pools,
            cluster::plugins,
            cluster::without_nics,
            cluster::without_gpus,
            cluster::without_gpu_driver,
            cluster::without_graph,
            cluster::quotas,
            cluster::queues,
            cluster::limit_ranges,
        ],
    ),
    known("drivers are known", "docs/reference/drivers.md", &[drivers::examine])
        .on(Basis::Gpus)
        .early(),
    known("every machine type serves a pod", PAGE, &[machines::denied]).on(Basis::Machines),
    known("waiting pods have claims for today's machines", PAGE, &[waiting::examine]),
    found(
        "annotations have an effect",
        "docs/start/pending.md",
        &WITH_PODS,
        &[annotations::examine],
    ),
    known("GPUs have one owner", PLUGINS, &[former_plugins::examine, cluster::offered_twice])
        .on(Basis::Gpus)
        .early(),
    known("sources of fabrics agree", "docs/concepts/fabrics.md", &[fabrics::examine]),
    known("NICs have one owner", PLUGINS, &[devices::plugins]).on(Basis::Nics),
    known("GPUs can be allocated", PAGE, &[devices::addresses, devices::rules, devices::gpus])
        .on(Basis::Gpus)
        .early(),
    known("NICs are up", "docs/operate/nic-down.md", &[devices::nics]).on(Basis::Nics),
    known("GPUDirect RDMA", "docs/guides/nccl-ucx.md", &[gpu_direct::examine]).on(Basis::Graphs),
    known("kernel modules", "docs/guides/modules.md", &[modules::examine]).on(Basis::Graphs),
    known("RDMA subsystem", PAGE, &[rdma::examine]).on(Basis::Graphs),
    found("control plane", PAGE, &[PODS], &[server::version, server::gates, server::claim_speed])
        .on(Basis::ControlPlane)
        .early(),
    found(
        "installation",
        PAGE,
        &INSTALLATION,
        &[
            installation::deployments,
            installation::daemon_sets,
            installation::webhook,
            installation::definition,
            installation::extender,
        ],
    )
    .on(Basis::Project),
    live("the webhook is called", PAGE, &[], webhook::ask).on(Basis::Project),
    live("scheduler-ext answers", SCHEDULER, &[PODS, DEPLOYMENTS, DAEMON_SETS], extender::ask)
        .on(Basis::Extender),
    live("rights of the service accounts", PAGE, &[DEPLOYMENTS, DAEMON_SETS], rights::ask)
        .on(Basis::Project),
    live("kubelets place CPUs and memory", CPUS, &DEVICES, kubelet::ask).on(Basis::Machines),
];

/// The two checks of `--try`.
pub(super) const TRIAL: [(&str, &str); 2] = [
    ("an aligned pod is admitted (dry run)", PAGE),
    ("an aligned pod runs, with the devices that it was promised", "docs/start/pending.md"),
];
