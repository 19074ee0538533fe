//! The GPU driver of this machine: a program that `DRANET_GPU_DRIVER` names.

use std::{env, ffi::OsStr, path::PathBuf, time::Duration};

use anyhow::Context;
use k8s_openapi::api::resource::v1::ResourceSlice;
use kube::{Api, api::ListParams};

use crate::{Check, ControlPlane, Process, Program, eventually, node::Machine};

/// The variable with the program's path.
pub const VARIABLE: &str = "DRANET_GPU_DRIVER";

/// Our own driver.
const OURS: &str = "dra.net";

const SOON: Duration = Duration::from_mins(1);

/// Starts it for a machine, and waits until it publishes GPUs. Returns it with its slice.
///
/// The program learns where everything is from the variables of NVIDIA's driver: `KUBECONFIG`,
/// `NODE_NAME`, `CDI_ROOT`, `KUBELET_REGISTRAR_DIRECTORY_PATH` and `KUBELET_PLUGINS_DIRECTORY_PATH`.
/// Programs of other vendors can be started by a script that translates them.
pub async fn start(
    plane: &ControlPlane,
    machine: &Machine,
) -> anyhow::Result<(Process, ResourceSlice)> {
    let path: PathBuf = env::var_os(VARIABLE)
        .with_context(|| format!("${VARIABLE} is not set; it names the machine's GPU driver"))?
        .into();
    let kubelet = machine.kubelet_dir();
    let driver = Program::new(path, plane.logs())
        .named("gpu-driver")
        .env("KUBECONFIG", &text(plane.kubeconfig()))
        .env("NODE_NAME", &machine.name)
        .env("CDI_ROOT", &text(machine.cdi_dir()))
        .env("KUBELET_REGISTRAR_DIRECTORY_PATH", &text(kubelet.join("plugins_registry")))
        .env("KUBELET_PLUGINS_DIRECTORY_PATH", &text(kubelet.join("plugins")))
        .spawn()?;
    let slices: Api<ResourceSlice> = Api::all(plane.client());
    let of_node = ListParams::default().fields(&format!("spec.nodeName={}", machine.name));
    let slice = eventually(SOON, async || {
        anyhow::ensure!(!driver.has_ended(), "the GPU driver ended:\n{}", driver.tail(30));
        let items = slices.list(&of_node).await?.items.into_iter();
        let mut of_gpus = items.filter(|slice| slice.spec.driver != OURS);
        let found = of_gpus.find(|slice| slice.spec.devices.iter().flatten().next().is_some());
        Ok(found.map_or_else(|| Check::NotYet("no GPU is published".to_owned()), Check::Done))
    })
    .await?;
    Ok((driver, slice))
}

fn text(path: impl AsRef<OsStr>) -> String {
    path.as_ref().to_string_lossy().into_owned()
}
