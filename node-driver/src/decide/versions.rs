//! Compares a node's kernel, container runtime and kubelet with the oldest versions that the driver
//! supports (`docs/reference/versions.md`). Distributions add features to old kernels, so an older
//! version is told of, and nothing is refused. Pure.

use k8s_openapi::api::core::v1::NodeSystemInfo;

/// Major and minor number.
type Version = (u32, u32);

/// The oldest kernel. Since 5.14 it names the PCI device of an interface (`IFLA_PARENT_DEV_NAME`), and
/// gives each network namespace a number that is never used again (`SO_NETNS_COOKIE`).
const KERNEL: Version = (5, 14);
/// The oldest kubelet: `resource.k8s.io/v1`.
const KUBELET: Version = (1, 34);
/// The oldest runtimes, by their name in the Node: with CDI and NRI.
const RUNTIMES: [(&str, Version); 2] = [("containerd", (1, 7)), ("cri-o", (1, 28))];

/// What is too old, as text.
pub fn too_old(node: &NodeSystemInfo) -> Vec<String> {
    let kernel = complaint(
        "Linux",
        &node.kernel_version,
        KERNEL,
        "interfaces in pods may not be recognised when they return; update the node's kernel",
    );
    let kubelet = complaint(
        "kubelet",
        &node.kubelet_version,
        KUBELET,
        "it does not prepare claims of resource.k8s.io/v1; update the node",
    );
    let runtime = node.container_runtime_version.split_once("://").and_then(|(name, version)| {
        let (_, oldest) = RUNTIMES.iter().find(|(known, _)| *known == name)?;
        complaint(name, version, *oldest, "containers may not get their devices; update it")
    });
    [kernel, kubelet, runtime].into_iter().flatten().collect()
}

/// `None` if the version is new enough, or is no version.
fn complaint(what: &str, version: &str, oldest: Version, harm: &str) -> Option<String> {
    let (major, minor) = parse(version).filter(|found| *found < oldest).map(|_| oldest)?;
    Some(format!("{what} {version} is older than {major}.{minor}: {harm}"))
}

/// Parses `5.14.0-503.el9.x86_64` and `v1.37.1`.
fn parse(text: &str) -> Option<Version> {
    let mut numbers = text.trim_start_matches('v').split(|c: char| !c.is_ascii_digit());
    Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(kernel: &str, kubelet: &str, runtime: &str) -> Vec<String> {
        too_old(&NodeSystemInfo {
            kernel_version: kernel.to_owned(),
            kubelet_version: kubelet.to_owned(),
            container_runtime_version: runtime.to_owned(),
            ..NodeSystemInfo::default()
        })
    }

    #[test]
    fn what_is_too_old_is_named() {
        assert!(told("5.14.0-503.el9.x86_64", "v1.34.0", "containerd://1.7.0").is_empty());
        assert!(told("6.18.0", "v1.37.1", "containerd://2.4.2").is_empty());
        assert!(told("", "", "other://0.1").is_empty(), "unknown is not too old");
        assert_eq!(
            told("5.4.0-200-generic", "v1.33.9", "cri-o://1.27.4"),
            [
                "Linux 5.4.0-200-generic is older than 5.14: interfaces in pods may not be \
                 recognised when they return; update the node's kernel",
                "kubelet v1.33.9 is older than 1.34: it does not prepare claims of \
                 resource.k8s.io/v1; update the node",
                "cri-o 1.27.4 is older than 1.28: containers may not get their devices; update it",
            ]
        );
    }
}
