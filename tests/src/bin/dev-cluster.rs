//! A cluster to try things on: the tests' control plane, simulated nodes, and our programs
//! as processes on this machine. `deploy/dev` builds and starts it.

use std::process::ExitCode;

use clap::Parser;
use tests::{
    ControlPlane, Options, binaries,
    figures::{refuse, say},
    machine::{H100, MI300X},
    rig::Rig,
    with_scope,
};

/// Run a development cluster until Ctrl-C.
///
/// Nothing runs in its pods: they are scheduled, and no kubelet starts them.
#[derive(Clone, Copy, Debug, Parser)]
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
        let mut rig = Rig::install(&plane, scope).await?;
        let all = args.gb300 + args.mi300x + args.h100;
        for index in 0..all {
            let name = if index < args.gb300 {
                rig.gb300(&format!("gb300-{index}")).await?
            } else if index < args.gb300 + args.mi300x {
                rig.machine(&format!("mi300x-{index}"), MI300X).await?
            } else {
                rig.machine(&format!("h100-{index}"), H100).await?
            };
            say(&format!("node {} of {all}: {name}", index + 1));
        }
        say("starting admission, fabric-controller and scheduler-ext");
        rig.start_replicas(1, &["--fabric-controller"]).await?;
        rig.start_fabric_controllers(1, &[]).await?;
        rig.start_extender().await?;
        say(&introduction(&plane)?);
        tokio::signal::ctrl_c().await?;
        say("stopping");
        Ok(())
    })
    .await
}

/// What to type next.
fn introduction(plane: &ControlPlane) -> anyhow::Result<String> {
    let kubectl = binaries::kubernetes("kubectl")?;
    Ok(format!(
        "\nready. In another terminal:\n\n\
         export KUBECONFIG={}\n\
         alias kubectl={}\n\
         kubectl create -f deploy/examples/aks-gb300/2nic-aligned.yaml\n\
         kubectl get pods,resourceclaims,nodetopologies -o wide\n\n\
         Logs are in {}. Ctrl-C stops and removes everything.",
        plane.kubeconfig().display(),
        kubectl.display(),
        plane.logs().display(),
    ))
}
