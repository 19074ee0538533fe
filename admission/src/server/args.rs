//! Flags.

use crate::fabric::FabricPlacement;
use crate::plan::{Policy, QuotaEscape};
use cluster_model::counted::Counted;
use cluster_model::retention::Retention;
use k8s_openapi::jiff::SignedDuration;
use process::args::{KubeArgs, LogArgs};
use serve::args::{LeaseArgs, OperationsArgs, ServerArgs};
use std::path::PathBuf;
use std::time::Duration;

/// Turns the annotation `dranet.io/aligned-nics` of a pod into a ResourceClaimTemplate.
#[derive(clap::Parser, Clone, Debug)]
#[command(version)]
pub struct Args {
    /// The webhook's socket. Without a certificate file, it manages its own certificate.
    #[command(flatten)]
    pub server: ServerArgs,
    /// The webhook's own objects.
    #[command(flatten)]
    pub own: OwnArgs,
    /// Health and metrics.
    #[command(flatten)]
    pub operations: OperationsArgs,
    /// The cluster.
    #[command(flatten)]
    pub kube: KubeArgs,
    /// Logging.
    #[command(flatten)]
    pub log: LogArgs,
    /// Leadership among replicas.
    #[command(flatten)]
    pub lease: LeaseArgs,
    /// Cluster-wide settings.
    #[command(flatten)]
    pub policy: PolicyArgs,
    /// File with drivers of accelerators and NICs that are not built in
    #[arg(long, value_name = "FILE")]
    pub drivers: Option<PathBuf>,
    /// The leader's work.
    #[command(flatten)]
    pub leader: LeaderArgs,
    /// Serve no webhook, but write the authority of the certificate that the other replicas manage into
    /// the webhook configurations, with rights that these do not have
    #[arg(long)]
    pub write_authority: bool,
}

/// The webhook's Service, and the namespace of its own objects.
#[derive(clap::Args, Clone, Debug)]
pub struct OwnArgs {
    /// Namespace of its Service, Lease, Secret and ConfigMap; defaults to the service account's
    #[arg(long, value_name = "NAME")]
    pub namespace: Option<String>,
    /// Its Service, which is the name in its own certificate
    #[arg(long, value_name = "NAME", default_value = "admission")]
    pub service: String,
    /// Additional DNS name or IP address in its own certificate; may be repeated
    #[arg(long = "certificate-name", value_name = "NAME")]
    pub names: Vec<String>,
}

/// The leader's work.
#[derive(clap::Args, Clone, Copy, Debug)]
pub struct LeaderArgs {
    /// Seconds to keep a template that no pod and no claim uses
    #[arg(long, value_name = "SECONDS", default_value_t = 3600)]
    pub keep_unused_seconds: u32,
    /// Days to remember a machine type after its last node is gone
    #[arg(long, value_name = "DAYS", default_value_t = 90)]
    pub forget_machines_days: u32,
    /// Maximum number of machine types to remember; the ones not seen for the longest time are
    /// forgotten first
    #[arg(long, value_name = "NUMBER", default_value_t = 200)]
    pub max_machines: u32,
    /// Maximum number of ComputeDomains to create in a namespace; each is deleted with its job
    #[arg(long, value_name = "NUMBER", default_value_t = 100)]
    pub max_compute_domains: u32,
}

impl LeaderArgs {
    /// How long unused templates are kept.
    pub fn keep_unused(self) -> Duration {
        Duration::from_secs(self.keep_unused_seconds.into())
    }

    /// How long machines are remembered.
    pub fn retention(self) -> Retention {
        Retention {
            forget_after: SignedDuration::from_hours(24 * i64::from(self.forget_machines_days)),
            max: self.max_machines as usize,
        }
    }
}

/// Cluster-wide settings.
#[derive(clap::Args, Clone, Debug)]
pub struct PolicyArgs {
    /// DeviceClass of whole GPUs; defaults to the class named like the GPU driver
    #[arg(long, value_name = "NAME")]
    pub gpu_class: Option<String>,
    /// DeviceClass of the NICs
    #[arg(long, value_name = "NAME", default_value = cluster_model::names::NIC_CLASS)]
    pub nic_class: String,
    /// Maximum number of search steps that a claim may cost the scheduler on one node
    #[arg(long, value_name = "NUMBER", default_value_t = crate::plan::STEPS_MAX)]
    pub max_steps: u64,
    /// Namespace whose pods may set addresses and routes of NICs, or `*` for all; NAME=FIELD,FIELD
    /// allows only these fields; may be repeated
    #[arg(long = "network-namespace", value_name = "NAME", value_parser = cluster_model::network_config::permission)]
    pub network_namespaces: Vec<String>,
    /// Add a scheduling gate to pods with dranet.io/fabric; the fabric controller must run, as it
    /// removes the gates. Without this flag such pods are denied
    #[arg(long)]
    pub fabric_controller: bool,
    /// Put pods with dranet.io/fabric into PodGroups that kube-scheduler places, instead of adding
    /// scheduling gates; the fabric controller must run with the same flag, as it makes the PodGroups.
    /// Pods with a PodGroup of their workload get the gate
    #[arg(long, requires = "fabric_controller")]
    pub pod_groups: bool,
    /// What happens to a pod while no machine is known: none has been seen yet and none is remembered
    #[arg(long, value_enum, default_value_t = UnknownShape::Deny)]
    pub unknown_shape: UnknownShape,
    /// What happens to a pod whose namespace has a quota on GPU limits, or that is in a queue of Kueue;
    /// the claim that replaces the limits would not count against it
    #[arg(long, value_enum, default_value_t = QuotaEscape::Deny)]
    pub quota_escape: QuotaEscape,
    /// Extended resource that pods request for each GPU of their claim, so that quotas count it; for the
    /// DeviceClass of a driver's whole GPUs; may be repeated
    #[arg(long, value_name = "CLASS=RESOURCE")]
    pub counted: Vec<Counted>,
    /// Scheduler for pods that get a claim, if they name none or default-scheduler
    #[arg(long, value_name = "NAME")]
    pub scheduler_name: Option<String>,
}

/// What happens to a pod while no machine is known.
#[derive(clap::ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub enum UnknownShape {
    /// Admit it with a warning, and with a claim on the standard NUMA attribute.
    Admit,
    /// Deny it.
    Deny,
}

impl From<PolicyArgs> for Policy {
    fn from(args: PolicyArgs) -> Self {
        let PolicyArgs {
            gpu_class,
            nic_class,
            max_steps,
            network_namespaces,
            fabric_controller,
            pod_groups,
            unknown_shape,
            quota_escape,
            counted,
            scheduler_name,
        } = args;
        let admit_unknown = unknown_shape == UnknownShape::Admit;
        let fabric = match (fabric_controller, pod_groups) {
            (false, _) => FabricPlacement::Off,
            (true, false) => FabricPlacement::Gates,
            (true, true) => FabricPlacement::PodGroups,
        };
        Self {
            gpu_class,
            nic_class,
            max_steps,
            network_namespaces,
            admit_unknown,
            fabric,
            scheduler_name,
            quota_escape,
            counted,
        }
    }
}
