//! Installs the chart on the machines as its users do: with helm from outside, from images.

use std::{
    collections::BTreeSet,
    path::{Path, PathBuf},
    time::Instant,
};

use k8s_openapi::api::core::v1::{Event, Pod};
use kube::{Api, Client, api::ListParams};
use tests::{
    ControlPlane,
    chart::{self, Helm, NAMESPACE},
    guest::node::GuestNode,
    images,
};

/// The chart's default driver, except for what is about this cluster: its image, no cloud, and
/// slow, emulated processors. A pod that requests few of them gets nothing next to the kubelet, and
/// a webhook would respond too late. A probe can take more than ten seconds there: with the default
/// values, probes would use most of the machine's time, and fail. Objects of the plain manifests already
/// exist.
const VALUES: [&str; 14] = [
    "--namespace=dranet-system",
    "--take-ownership",
    "--force-conflicts",
    "--wait",
    "--timeout=10m",
    "--set=image.registry=localhost/dranet",
    "--set=nodeDriver.cloud=none",
    "--set=nodeDriver.resources.requests.cpu=500m",
    "--set=nodeDriver.probes.readiness.periodSeconds=20",
    "--set=nodeDriver.probes.readiness.timeoutSeconds=30",
    "--set=nodeDriver.probes.liveness.timeoutSeconds=30",
    "--set=admission.enabled=false",
    "--set=fabricController.enabled=false",
    "--set=cleanup.enabled=false",
];

/// Values of a first deployment: pods share NICs, and the init container loads modules. Of these
/// one was loaded before, one needs others, one has no file, and the last lacks what it needs.
pub(super) const FIRST: [&str; 3] = [
    "--set=nodeDriver.sharing=count",
    "--set=nodeDriver.rdmaHcaMax=4",
    "--set=nodeDriver.modules.load={ib_uverbs,irdma,efa,mlx5_ib}",
];

/// The program in the image.
const DRIVER: &str = "node-driver";

/// The registry of the images in the chart's values.
const REGISTRY: &str = "localhost/dranet";

/// The image as archives for [`import`].
pub(super) async fn archives(folder: &Path) -> anyhow::Result<Vec<PathBuf>> {
    images::archives(folder, &[DRIVER]).await
}

/// Loads the image from the machines' disks.
pub(super) async fn import([one, other]: &[GuestNode; 2]) -> anyhow::Result<()> {
    tokio::try_join!(one.import(REGISTRY, DRIVER), other.import(REGISTRY, DRIVER))?;
    Ok(())
}

/// The chart's release.
pub(super) struct Installed<'a> {
    helm: Helm,
    client: Client,
    pair: &'a [GuestNode; 2],
}

impl<'a> Installed<'a> {
    /// Installs it with these additional values, and checks how the driver is confined.
    pub(super) async fn install(
        plane: &ControlPlane,
        pair: &'a [GuestNode; 2],
        values: &[&str],
    ) -> anyhow::Result<Self> {
        let helm = Helm::on(&plane.kubeconfig())?;
        let release = Self { helm, client: plane.client(), pair };
        release.run(&[&["install", "dranet", "."][..], &VALUES, values].concat()).await?;
        for node in pair {
            confined(node).await?;
        }
        Ok(release)
    }

    /// Sets these values besides those of [`FIRST`].
    pub(super) async fn set(&self, values: &[&str]) -> anyhow::Result<()> {
        let upgrade = ["upgrade", "dranet", "."];
        self.run(&[&upgrade[..], &VALUES, &FIRST, values].concat()).await
    }

    /// Upgrades to the chart's next version, with another flag.
    pub(super) async fn upgrade(&self) -> anyhow::Result<()> {
        let next = chart::next()?;
        let folder = next.path().display().to_string();
        let upgrade = ["upgrade", "dranet", &folder, "--set=log.level=debug"];
        self.replace_drivers(&[&upgrade[..], &VALUES].concat()).await
    }

    /// Rolls back to the version that was installed first.
    pub(super) async fn roll_back(&self) -> anyhow::Result<()> {
        let back = ["rollback", "dranet", "1", VALUES[0]];
        let flags = ["--force-conflicts", "--wait", "--timeout=10m"];
        self.replace_drivers(&[&back[..], &flags].concat()).await
    }

    /// Runs helm, and waits until each machine has a new pod of the driver.
    async fn replace_drivers(&self, words: &[&str]) -> anyhow::Result<()> {
        let before = self.drivers().await?;
        self.run(words).await?;
        let after = self.drivers().await?;
        let is_replaced = after.len() == self.pair.len() && before.is_disjoint(&after);
        anyhow::ensure!(is_replaced, "drivers {before:?}, after helm {}: {after:?}", words[0]);
        Ok(())
    }

    /// The driver's pods that are not being deleted, by UID.
    async fn drivers(&self) -> anyhow::Result<BTreeSet<String>> {
        let pods: Api<Pod> = Api::namespaced(self.client.clone(), NAMESPACE);
        let of_driver = ListParams::default().labels("app.kubernetes.io/name=node-driver");
        let pods = pods.list(&of_driver).await?.into_iter();
        Ok(pods
            .filter(|pod| pod.metadata.deletion_timestamp.is_none())
            .filter_map(|pod| pod.metadata.uid)
            .collect())
    }

    /// Uninstalls it, and waits until its pods are gone.
    pub(super) async fn uninstall(self) -> anyhow::Result<()> {
        self.run(&["uninstall", "dranet", VALUES[0], "--wait", "--timeout=10m"]).await
    }

    /// Runs helm. If it fails, the error contains the state of the chart's pods.
    async fn run(&self, words: &[&str]) -> anyhow::Result<()> {
        let begin = Instant::now();
        match self.helm.run(words).await {
            Ok(_) => {
                report(&format!("helm {} took {:.0?}", words[0], begin.elapsed()));
                Ok(())
            }
            Err(error) => Err(error.context(format!("helm {}:\n{}", words[0], self.told().await?))),
        }
    }

    async fn told(&self) -> anyhow::Result<String> {
        let mut told = Vec::new();
        let events: Api<Event> = Api::namespaced(self.client.clone(), NAMESPACE);
        for event in events.list(&ListParams::default()).await? {
            let object = event.involved_object.name.unwrap_or_default();
            told.push(format!("{object}: {}", event.message.unwrap_or_default()));
        }
        for node in self.pair {
            let log = node.pod_log(NAMESPACE, "node-driver-*").await?;
            let last = log.lines().rev().take(8).collect::<Vec<_>>();
            told.push(format!("--- driver on {}", node.name));
            told.extend(last.into_iter().rev().map(str::to_owned));
            told.push(format!("--- kubelet on {}\n{}", node.name, node.guest.log("kubelet")));
        }
        Ok(told.join("\n"))
    }
}

/// Checks that the driver's process is confined as its pod specifies: the container runtime's
/// seccomp filter and `AppArmor` profile, the capabilities of the manifest, and a read-only
/// `/proc/sys`, for which it has a mount elsewhere.
async fn confined(node: &GuestNode) -> anyhow::Result<()> {
    let of_driver = "pid=$(pgrep -o -x node-driver)
        cat /proc/$pid/attr/current
        grep -e ^Seccomp: -e ^CapBnd: -e ^NoNewPrivs: /proc/$pid/status
        grep ' /proc/sys proc ro,' /proc/$pid/mounts";
    let told = node.guest.run(of_driver).await?;
    let words: Vec<_> = told.split_whitespace().collect();
    // NET_BIND_SERVICE 10, NET_ADMIN 12, NET_RAW 13, SYS_ADMIN 21.
    let bits = [10, 12, 13, 21].into_iter().fold(0_u64, |bits, bit| bits | 1 << bit);
    let capabilities = format!("{bits:016x}");
    let expected = ["cri-containerd.apparmor.d", "(enforce)", "NoNewPrivs:", "1", "CapBnd:"];
    let expected = expected.into_iter().chain([&*capabilities, "Seccomp:", "2"]);
    // The kernel's order is its own.
    for word in expected {
        assert!(words.contains(&word), "`{word}` is missing in: {told}");
    }
    Ok(())
}

#[expect(clippy::print_stderr, reason = "how long helm took is worth reading")]
fn report(line: &str) {
    eprintln!("{line}");
}
