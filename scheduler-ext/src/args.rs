//! Flags.

use crate::score::Mix;
use process::args::{KubeArgs, LogArgs};
use serve::args::{OperationsArgs, ServerArgs};
use std::path::PathBuf;
use std::time::Duration;

/// Ranks nodes for kube-scheduler: first by the devices that the pod would get, then by what
/// the node and its fabric could still serve.
///
/// Without --tls-cert it listens on loopback only.
#[derive(clap::Parser, Clone, Debug)]
#[command(version, mut_arg("listen", |arg| arg.default_value("127.0.0.1:8443")))]
pub struct Args {
    /// The extender's socket.
    #[command(flatten)]
    pub server: ServerArgs,
    /// The `httpTimeout` of this extender in the scheduler's configuration. An answer takes at most
    /// half of it; nodes that were not scored by then get neutral scores
    #[arg(long, value_name = "SECONDS", default_value = "1", value_parser = seconds)]
    pub timeout: Duration,
    /// Expected pod shapes with their shares, as GPUSxNICS=SHARE or, for gangs of whole nodes,
    /// NODES*GPUSxNICS=SHARE. Counts as much as 100 pods next to the last 200 that got devices
    #[arg(long, value_name = "SHAPES")]
    pub mix: Option<Mix>,
    /// Watch pods too: on nodes that bind NICs late, pods without a claim can have GPUs of the device
    /// plugin, and only their limits say how many
    #[arg(long)]
    pub watch_pods: bool,
    /// File with drivers of accelerators and NICs that are not built in
    #[arg(long, value_name = "FILE")]
    pub drivers: Option<PathBuf>,
    /// File with the token for /debug if the extender does not listen on loopback
    #[arg(long, value_name = "FILE")]
    pub operations_token_file: Option<PathBuf>,
    /// Health and metrics.
    #[command(flatten)]
    pub operations: OperationsArgs,
    /// The cluster.
    #[command(flatten)]
    pub kube: KubeArgs,
    /// Logging.
    #[command(flatten)]
    pub log: LogArgs,
}

/// Checks that the server uses TLS unless it listens on loopback.
///
/// # Errors
/// Says which flags to set.
pub fn check(server: &ServerArgs) -> anyhow::Result<()> {
    let ServerArgs { listen, tls_cert, .. } = server;
    anyhow::ensure!(
        listen.ip().is_loopback() || tls_cert.is_some(),
        "`--listen {listen}` is not loopback and there is no certificate: set --tls-cert and \
         --tls-key, or listen on 127.0.0.1"
    );
    Ok(())
}

/// Parses whole or fractional seconds, as in the scheduler's configuration. Limited to a minute,
/// since the scheduler waits that long for each pod.
fn seconds(text: &str) -> Result<Duration, String> {
    let seconds: f64 = text.parse().map_err(|_| format!("`{text}` is not a number of seconds"))?;
    if !(0.01..=60.0).contains(&seconds) {
        return Err(format!("`{text}` is not between 0.01 and 60 seconds"));
    }
    Ok(Duration::from_secs_f64(seconds))
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser as _;

    #[test]
    fn plain_http_is_for_loopback_only() {
        let tls = ["--tls-cert=cert.pem", "--tls-key=key.pem"];
        for (listen, tls, is_fine) in [
            (None, false, true),
            (Some("--listen=127.0.0.1:0"), false, true),
            (Some("--listen=[::1]:8443"), false, true),
            (Some("--listen=0.0.0.0:8443"), false, false),
            (Some("--listen=10.0.0.1:8443"), false, false),
            (Some("--listen=0.0.0.0:8443"), true, true),
        ]
        .map(|(listen, with, is_fine)| (listen, if with { &tls[..] } else { &[] }, is_fine))
        {
            let flags = ["scheduler-ext"].into_iter().chain(listen).chain(tls.iter().copied());
            let args = Args::try_parse_from(flags).unwrap();
            assert_eq!(check(&args.server).is_ok(), is_fine, "{listen:?} {tls:?}");
        }
    }
}
