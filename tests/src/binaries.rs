//! Where the executables are: Kubernetes' in the cache that
//! `tests/kubernetes/build` fills, ours beside the test that runs, or those that are
//! shipped in the folder that `DRANET_SHIPPED` names.

use std::{
    env,
    path::{Path, PathBuf},
};

use anyhow::Context;

/// The one place that names versions, `go.mod`.
const GO_MOD: &str = include_str!("../kubernetes/go.mod");
/// The same for the oldest Kubernetes that is supported.
const OLDEST_GO_MOD: &str = include_str!("../kubernetes/oldest/go.mod");
/// `oldest` where the control plane is of that version.
const CHOICE: &str = "DRANET_KUBERNETES";
/// The same for the container runtime.
const NODE_GO_MOD: &str = include_str!("../node/go.mod");

/// The control plane's version here, `v1.37.1`.
pub fn kubernetes_version() -> anyhow::Result<&'static str> {
    let choice = env::var_os(CHOICE).unwrap_or_default();
    let go_mod = match choice.to_str() {
        Some("") => GO_MOD,
        Some("oldest") => OLDEST_GO_MOD,
        _ => anyhow::bail!("`{CHOICE}={}`: allowed is `oldest`", choice.display()),
    };
    version_in(go_mod, "k8s.io/kubernetes")
}

/// A binary of the control plane, by its name: `kube-apiserver`, `etcd`.
pub fn kubernetes(name: &str) -> anyhow::Result<PathBuf> {
    let directory = match name {
        "etcd" => format!("etcd/{}", version_in(GO_MOD, "go.etcd.io/etcd/server/v3")?),
        "kubectl" | "kubelet" => {
            format!("kubernetes/{}", version_in(GO_MOD, "k8s.io/kubernetes")?)
        }
        _ => format!("kubernetes/{}", kubernetes_version()?),
    };
    let remedy = "`tests/kubernetes/build` builds it, or with `--oldest`";
    existing(cache()?.join(directory).join(name), remedy)
}

/// A binary of the container runtime, by its name: `containerd`, `runc`, `bridge`.
pub fn node(name: &str) -> anyhow::Result<PathBuf> {
    let (folder, module) = match name {
        "containerd" | "containerd-shim-runc-v2" | "ctr" => {
            ("containerd", "github.com/containerd/containerd/v2")
        }
        "runc" => ("runc", "github.com/opencontainers/runc"),
        _ => ("cni", "github.com/containernetworking/plugins"),
    };
    let version = version_in(NODE_GO_MOD, module)?;
    let path = cache()?.join(format!("node/{folder}-{version}")).join(name);
    existing(path, "`tests/node/build` builds it")
}

/// The small GPU driver, `tests/kubernetes/gpu-driver`.
pub fn gpu_driver() -> anyhow::Result<PathBuf> {
    existing(cache()?.join("tools/gpu-driver"), "`tests/run guest` builds it")
}

/// The folder that holds QEMU and what it boots.
pub fn guest() -> anyhow::Result<PathBuf> {
    built("DRANET_GUEST", "tests/guest/build")
}

/// What the chart is tried with, by its name: `helm`, `expressions`, `definitions`.
pub fn chart_tool(name: &str) -> anyhow::Result<PathBuf> {
    let path = built("DRANET_CHART", "tests/chart/build")?.join(name);
    anyhow::ensure!(path.exists(), "`{}` is not there", path.display());
    Ok(path)
}

/// The folder that a variable names and a script builds; `tests/run` sets it.
fn built(variable: &str, script: &str) -> anyhow::Result<PathBuf> {
    let folder = env::var_os(variable).map(PathBuf::from);
    folder.with_context(|| format!("${variable} is not set; `{script}` builds and prints it"))
}

/// A binary of this workspace, by its name: `node-driver`.
pub fn ours(name: &str) -> anyhow::Result<PathBuf> {
    let shipped = env::var_os("DRANET_SHIPPED").map(|folder| Path::new(&folder).join(name));
    if let Some(shipped) = shipped.filter(|path| path.is_file()) {
        return Ok(shipped);
    }
    let test = env::current_exe().context("failed to find the running test")?;
    // A test is `target/debug/deps/NAME-HASH`, a binary `target/debug/NAME`.
    let directory = test.ancestors().find(|path| path.join("deps").is_dir());
    let directory = directory
        .with_context(|| format!("`{}` lies in no cargo target directory", test.display()))?;
    existing(directory.join(name), "`cargo build --workspace --bins` builds it")
}

/// A file below the `tests` directory of the checkout.
pub fn in_tests(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

/// The cache that `tests/run` and the scripts below `tests/` use as well.
fn cache() -> anyhow::Result<PathBuf> {
    let variable = |name| env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    variable("DRANET_CACHE")
        .or_else(|| Some(variable("XDG_CACHE_HOME")?.join("dranet")))
        .or_else(|| Some(variable("HOME")?.join(".cache/dranet")))
        .context("none of DRANET_CACHE, XDG_CACHE_HOME and HOME is set")
}

fn existing(path: PathBuf, remedy: &str) -> anyhow::Result<PathBuf> {
    anyhow::ensure!(path.is_file(), "`{}` is not there; {remedy}", path.display());
    Ok(path)
}

fn version_in(go_mod: &'static str, module: &str) -> anyhow::Result<&'static str> {
    go_mod
        .lines()
        .filter_map(|line| line.trim().split_once(' '))
        .find_map(|(name, rest)| (name == module).then(|| rest.split(' ').next()).flatten())
        .with_context(|| format!("no version of `{module}` in its `go.mod`"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_those_of_the_go_module() {
        let go_mod = "require (\n\tk8s.io/kubernetes v1.2.3\n\tk8s.io/api v0.2.3 // indirect\n)";
        assert_eq!(version_in(go_mod, "k8s.io/kubernetes").unwrap(), "v1.2.3");
        assert_eq!(version_in(go_mod, "k8s.io/api").unwrap(), "v0.2.3");
        assert!(version_in(go_mod, "k8s.io").is_err());
    }

    #[test]
    fn a_missing_binary_is_named_with_what_builds_it() {
        let error = ours("no-such-binary").unwrap_err().to_string();
        assert!(error.ends_with("`cargo build --workspace --bins` builds it"), "{error}");
        assert!(error.contains("no-such-binary` is not there"), "{error}");
    }
}
