//! Flags of the commands about pods.

use super::form::{Form, ListForm, PlanFormat, Shown};
use super::source::{AdmissionArgs, SourceArgs};
use crate::selector::Selector;
use std::path::PathBuf;

/// The pods that a command is about.
#[derive(clap::Args, Clone, Debug)]
#[group(required = true, multiple = false)]
pub struct SubjectArgs {
    /// Pod in the cluster: NAME, pod/NAME or pod NAME; or a workload whose pods are asked about, such as
    /// job/NAME
    #[arg(value_name = "NAME", num_args = 1..=2)]
    pub names: Vec<String>,
    /// File with pods, or with workloads of any kind that have pod templates (Deployment, Job
    /// and others), and with claims or claim templates that they use; `-` reads standard input
    #[arg(long = "filename", short, value_name = "FILE")]
    pub file: Option<PathBuf>,
}

/// Admission's settings; defaults to those of the cluster's admission.
#[derive(clap::Args, Clone, Debug)]
pub struct PolicyArgs {
    /// DeviceClass of whole GPUs; defaults to the setting of the cluster's admission, otherwise to the
    /// class named like the GPU driver
    #[arg(long, value_name = "NAME")]
    pub gpu_class: Option<String>,
    /// DeviceClass of the NICs; defaults to the setting of the cluster's admission, otherwise dranet.net
    #[arg(long, value_name = "NAME")]
    pub nic_class: Option<String>,
    /// Maximum number of search steps that a claim may cost the scheduler on one node; defaults to the
    /// setting of the cluster's admission, otherwise 10000
    #[arg(long, value_name = "NUMBER")]
    pub max_steps: Option<u64>,
    /// Namespace whose pods may set addresses and routes of NICs, or `*` for all; NAME=FIELD,FIELD
    /// allows only these fields; may be repeated. Defaults to the settings of the cluster's admission
    #[arg(long = "network-namespace", value_name = "NAME", value_parser = cluster_model::network_config::permission)]
    pub network_namespaces: Vec<String>,
    /// Whether to assume that fabric-controller runs; defaults to the setting of the cluster's
    /// admission, otherwise true, as the chart installs it
    #[arg(long, value_name = "BOOL", num_args = 0..=1, default_missing_value = "true")]
    pub fabric_controller: Option<bool>,
}

impl SubjectArgs {
    /// The kind, if one is given, and the name.
    pub(crate) fn named(&self) -> Option<(Option<&str>, &str)> {
        match self.names.as_slice() {
            [] => None,
            [kind, name, ..] => Some((Some(kind), name)),
            [name] => {
                let (kind, name) = name.split_once('/').unzip();
                Some((kind, name.unwrap_or(&self.names[0])))
            }
        }
    }
}

/// Flags of `plan`.
#[derive(clap::Args, Clone, Debug)]
pub struct PlanArgs {
    /// The pods.
    #[command(flatten)]
    pub subject: SubjectArgs,
    /// The cluster.
    #[command(flatten)]
    pub source: SourceArgs,
    /// What else admission knows.
    #[command(flatten)]
    pub admission: AdmissionArgs,
    /// Admission's settings.
    #[command(flatten)]
    pub policy: PolicyArgs,
    /// Also show these, with text output
    #[arg(long, value_enum, value_delimiter = ',', value_name = "PARTS")]
    pub show: Vec<Shown>,
    /// Output format
    #[arg(long, short, value_enum, default_value_t = PlanFormat::Text)]
    pub output: PlanFormat,
}

/// Flags of `explain`.
#[derive(clap::Args, Clone, Debug)]
pub struct ExplainArgs {
    /// The pods.
    #[command(flatten)]
    pub subject: SubjectArgs,
    /// All pods of the namespace that wait for devices, one of each owner
    #[arg(long, group = "SubjectArgs")]
    pub pending: bool,
    /// With --pending: of all namespaces
    #[arg(long, short = 'A', requires = "pending", conflicts_with = "namespace")]
    pub all_namespaces: bool,
    /// The cluster.
    #[command(flatten)]
    pub source: SourceArgs,
    /// What else admission knows.
    #[command(flatten)]
    pub admission: AdmissionArgs,
    /// Admission's settings.
    #[command(flatten)]
    pub policy: PolicyArgs,
    /// Output format
    #[arg(long, short, value_enum, default_value_t = Form::Text)]
    pub output: Form,
}

/// Flags of `verify`.
#[derive(clap::Args, Clone, Debug)]
pub struct VerifyArgs {
    /// Pod: NAME or pod/NAME; by default every pod in the namespace that has GPUs and NICs
    pub pod: Option<String>,
    /// Check the pods of all namespaces
    #[arg(long, short = 'A', conflicts_with_all = ["pod", "namespace"])]
    pub all_namespaces: bool,
    /// Namespace of the pods; defaults to that of the kubeconfig's context
    #[arg(long, short, value_name = "NAME")]
    pub namespace: Option<String>,
    /// Only pods with these labels
    #[arg(long, short = 'l', value_name = "SELECTOR", conflicts_with = "pod")]
    pub selector: Option<Selector>,
    /// Also show for each pair whether GPUDirect RDMA can work and, if not, what to change
    #[arg(long)]
    pub gpudirect: bool,
    /// The cluster.
    #[command(flatten)]
    pub source: SourceArgs,
    /// Output format
    #[arg(long, short, value_enum, default_value_t = ListForm::Text)]
    pub output: ListForm,
}
