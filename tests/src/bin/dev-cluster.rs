//! A development cluster: the tests' control plane, simulated nodes, the chart installed by Helm,
//! and the programs of its pods as processes on this machine. `deploy/dev` builds and starts it.

use std::process::ExitCode;

use anyhow::Context;
use clap::Parser;
use tests::{
    ControlPlane, Options, binaries,
    chart::{self, Helm, NAMESPACE, WITHOUT_PODS},
    figures::{refuse, say},
    gb300,
    installation::Installation,
    machine::{AMD_CLASS, H100, MI300X},
    with_scope,
};

/// Run a development cluster until Ctrl-C.
///
/// Pods are scheduled, but no kubelet starts them. The programs in the chart's pods run as
/// processes on this machine, with the chart's flags.
#[derive(Clone, Debug, Parser)]
struct Args {
    /// Simulated Azure GB300 nodes (4 GPUs and 4 NICs each).
    #[arg(long, default_value_t = 2)]
    gb300: usize,
    /// Simulated Azure MI300X nodes (8 GPUs and 8 NICs each).
    #[arg(long, default_value_t = 1)]
    mi300x: usize,
    /// Simulated Azure H100 nodes (8 GPUs and 8 NICs each).
    #[arg(long, default_value_t = 1)]
    h100: usize,
    /// A value of the chart, as in `helm install --set`; may be repeated.
    #[arg(long = "set", value_name = "NAME=VALUE")]
    values: Vec<String>,
}

#[tokio::main]
async fn main() -> ExitCode {
    match run(Args::parse()).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => refuse(&error),
    }
}

async fn run(args: Args) -> anyhow::Result<()> {
    say("starting etcd, kube-apiserver, kube-controller-manager and kube-scheduler");
    let plane = ControlPlane::start(Options::default()).await?;
    with_scope(plane.client(), async |scope| {
        say("installing the chart");
        install(&plane, &args.values).await?;
        scope.apply(gb300::gpu_class()?).await?;
        scope.apply_yaml(AMD_CLASS).await?;
        let mut installation = Installation::installed(&plane, scope);
        let all = args.gb300 + args.mi300x + args.h100;
        for index in 0..all {
            let name = if index < args.gb300 {
                installation.gb300(&format!("gb300-{index}")).await?
            } else if index < args.gb300 + args.mi300x {
                installation.machine(&format!("mi300x-{index}"), MI300X).await?
            } else {
                installation.machine(&format!("h100-{index}"), H100).await?
            };
            say(&format!("node {} of {all}: {name}", index + 1));
        }
        say("starting admission, fabric-controller and scheduler-ext");
        start(&plane, &mut installation).await?;
        say(&introduction(&plane)?);
        tokio::signal::ctrl_c().await?;
        say("stopping");
        Ok(())
    })
    .await
}

/// Runs `helm install`, with the extender for the cluster's own kube-scheduler.
async fn install(plane: &ControlPlane, values: &[String]) -> anyhow::Result<()> {
    let namespace = format!("--namespace={NAMESPACE}");
    let fixed = ["install", "dranet", ".", "--create-namespace", &namespace];
    let own = ["--set=image.registry=localhost/dranet", "--set=scheduler.extender=kubeadm"];
    let given = values.iter().flat_map(|value| ["--set", value]);
    let words = fixed.into_iter().chain(own).chain(given).chain(WITHOUT_PODS);
    Helm::on(&plane.kubeconfig())?.run(words).await.map(drop)
}

/// Starts the programs of the chart's Deployments, and the extender, as processes.
async fn start(plane: &ControlPlane, installation: &mut Installation<'_>) -> anyhow::Result<()> {
    if let Some(flags) = chart::flags(&plane.client(), "admission").await? {
        installation
            .start_replica(0, &flags.iter().map(String::as_str).collect::<Vec<_>>())
            .await?;
        installation.answers().await?;
    }
    if let Some(flags) = chart::flags(&plane.client(), "fabric-controller").await? {
        let flags: Vec<_> = flags.iter().map(String::as_str).collect();
        installation.start_fabric_controllers(1, &flags).await?;
    }
    installation.start_extender().await
}

/// The text that says what to type next.
fn introduction(plane: &ControlPlane) -> anyhow::Result<String> {
    let kubectl = binaries::kubernetes("kubectl")?;
    let own = std::env::current_exe()?;
    let plugin = own.parent().context("a folder")?;
    Ok(format!(
        "\nready. In another terminal:\n\n\
         export KUBECONFIG={}\n\
         export PATH={}:$PATH\n\
         alias kubectl={}\n\
         kubectl create -f deploy/examples/aks-gb300/2nic-aligned.yaml\n\
         kubectl get pods,resourceclaims,nodetopologies -o wide\n\
         kubectl dranet explain pod/nccl-2nic\n\n\
         The nodes are simulated: a pod gets a node and devices, and stays Pending, since no \
         container runs.\n\
         For the same reason, `kubectl dranet doctor` reports Deployments without ready \
         replicas.\n\n\
         Logs are in {}. Ctrl-C stops and removes everything.",
        plane.kubeconfig().display(),
        plugin.display(),
        kubectl.display(),
        plane.logs().display(),
    ))
}
