//! The two pods of a measurement.

use super::{nccl, perftest};
use crate::args::BenchArgs;
use crate::own_pods;
use cluster_model::names::label;
use serde_json::{Value, json};

/// Label of the pods of a measurement, by which they avoid each other's node and leftovers are
/// found.
pub(crate) const LABEL: &str = "bench.dranet.io/run";

/// Placeholder for the server's address in a dry run.
pub(crate) const NO_ADDRESS: &str = "ADDRESS-OF-THE-SERVER";

/// Placeholder for the command of Open MPI's daemon in a dry run.
pub(crate) const NO_COMMAND: &str = "COMMAND-FROM-THE-STATUS-OF-THE-SERVER";

/// Where a pod is to run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Place {
    /// The node that the user named.
    pub(crate) node: Option<String>,
    /// The fabric of the other pod.
    pub(crate) fabric: Option<String>,
    /// The claim that it uses in place of annotations.
    pub(crate) claim: Option<String>,
}

/// What a pod runs.
pub(crate) struct Content {
    pub(crate) script: String,
    pub(crate) flags: Vec<String>,
    /// `EnvVar`s.
    pub(crate) environment: Vec<Value>,
}

/// One of the two pods of a measurement.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Role {
    /// Created first: `ib_write_bw` writes to it, or it runs `mpirun`.
    Server,
    /// Created when the first runs: it writes, or runs the daemon of Open MPI.
    Client,
}

impl Role {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Server => "server",
            Self::Client => "client",
        }
    }
}

/// The pod that is written to.
pub(crate) fn server(args: &BenchArgs, run: &str, place: &Place) -> Value {
    let content = match &args.nccl {
        None => writing(args, ""),
        Some(program) => launching(args, program, run),
    };
    pod(args, run, Role::Server, place, content)
}

/// The pod that writes and measures, given the server's address.
pub(crate) fn client(args: &BenchArgs, run: &str, place: &Place, found: &str) -> Value {
    let content = if args.nccl.is_some() {
        let (script, environment) = nccl::worker(found);
        Content { script, flags: Vec::new(), environment }
    } else {
        writing(args, found)
    };
    pod(args, run, Role::Client, place, content)
}

fn writing(args: &BenchArgs, address: &str) -> Content {
    let memory = args.gpu_memory.then(|| "--use_cuda=0".to_owned());
    Content {
        script: perftest::SCRIPT.to_owned(),
        flags: memory.into_iter().chain(args.flags.iter().cloned()).collect(),
        environment: vec![
            nccl::variable("SERVER", address),
            nccl::variable("BYTES", &args.bytes.unwrap_or(perftest::BYTES).to_string()),
            nccl::variable("SECONDS_LONG", &args.seconds.to_string()),
        ],
    }
}

fn launching(args: &BenchArgs, program: &str, run: &str) -> Content {
    let worker = name(run, Role::Client);
    let bytes = args.bytes.unwrap_or(nccl::BYTES);
    let launcher = nccl::Launcher { program, gpus: args.gpus, bytes, worker: &worker };
    Content {
        script: nccl::Launcher::script(),
        flags: args.flags.clone(),
        environment: launcher.environment(),
    }
}

/// The name of a pod of a run.
pub(crate) fn name(run: &str, role: Role) -> String {
    format!("dranet-bench-{run}-{}", role.name())
}

fn pod(args: &BenchArgs, run: &str, role: Role, place: &Place, content: Content) -> Value {
    let Content { script, flags, environment } = content;
    let shell = ["/bin/sh", "-c", &script, "bench"].map(str::to_owned);
    let name = name(run, role);
    let mut pod = own_pods::pod(&name, &args.image, (args.gpus, args.nics), args.timeout);
    own_pods::choose(&mut pod, args.gpu_class.as_deref());
    pod["metadata"]["labels"][LABEL] = run.into();
    let spec = &mut pod["spec"];
    spec["nodeSelector"] = json!({});
    if let Some(node) = &place.node {
        spec["nodeSelector"]["kubernetes.io/hostname"] = node.as_str().into();
    }
    if let Some(fabric) = &place.fabric {
        spec["nodeSelector"][label::NODE_FABRIC] = fabric.as_str().into();
    }
    if let Some(tolerations) = spec["tolerations"].as_array_mut() {
        tolerations.extend(args.tolerations.iter().map(|key| own_pods::toleration(key)));
    }
    spec["affinity"] = json!({ "podAntiAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution": [{
            "labelSelector": { "matchLabels": { LABEL: run } },
            "topologyKey": "kubernetes.io/hostname",
        }],
    } });
    let container = &mut spec["containers"][0];
    container["command"] = shell.into_iter().chain(flags).collect();
    container["env"] = environment.into();
    container["securityContext"] = json!({ "capabilities": { "add": ["IPC_LOCK"] } });
    if args.nccl.is_some() {
        nccl::complete(&mut pod, matches!(role, Role::Server));
    }
    if let Some(claim) = &place.claim {
        pod["metadata"]["annotations"] = json!({});
        pod["spec"]["resourceClaims"] = json!([{ "name": "devices", "resourceClaimName": claim }]);
        pod["spec"]["containers"][0]["resources"]["claims"] = json!([{ "name": "devices" }]);
    }
    if let Some(name) = &args.scheduler {
        pod["spec"]["schedulerName"] = name.as_str().into();
    }
    pod
}
