//! Random jobs on racks of GB300 nodes, while our programs are killed, nodes die and labels of nodes
//! change. No job is split over domains, no job stays half-running, and nothing is left of their
//! `ComputeDomain`s.
//!
//! `$DRANET_RACK_JOBS` sets the number of jobs (12), `$DRANET_SEED` sets the seed. With more than 50
//! jobs there are 8 NVLink domains of 18 nodes on two placement groups, otherwise 4 of 3.

mod channels;
mod checks;
mod trouble;

use std::{
    collections::BTreeMap,
    sync::Arc,
    time::{Duration, Instant},
};

use k8s_openapi::api::{
    batch::v1::{
        Job, PodFailurePolicy, PodFailurePolicyOnPodConditionsPattern, PodFailurePolicyRule,
    },
    core::v1::Pod,
};
use kube::{ResourceExt, api::ListParams};
use serde_json::json;
use tests::{
    ControlPlane, Extender, SchedulerConfig, Scope, SeededRng, binaries,
    installation::Installation, setting, suite::report,
};

use super::{
    compute_domains::{DEFINITION, install_channels},
    gangs::{end, run},
    levels::levelled,
    site::with_fabrics,
};
use channels::{create_templates, nothing_left};
use checks::Placed;
use trouble::Racks;

/// The number of placement groups.
const FABRICS: usize = 2;
/// More jobs than these need the large cluster.
const FEW: usize = 50;
/// The time between looks at the cluster.
const PERIOD: Duration = Duration::from_millis(300);
/// The longest time without any job that gets all of its pods onto nodes.
const PATIENCE: Duration = Duration::from_mins(3);
/// The number of looks that a job runs after all of its pods have nodes.
const LIFE: usize = 8;
/// The numbers of a campaign.
#[derive(Clone, Copy, Debug)]
struct Size {
    /// NVLink domains of each placement group.
    domains: usize,
    /// Nodes of each domain.
    nodes: usize,
    jobs: usize,
    /// The most jobs at a time.
    together: usize,
}

/// What a job asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ask {
    /// One placement group.
    Fabric,
    /// One NVLink domain.
    Domain,
    /// As few NVLink domains as possible.
    Preferred,
    /// An NVLink domain for each slice of this number of pods.
    Slices(usize),
    /// One NVLink domain, and a `ComputeDomain`.
    Channels,
}

/// A job that runs.
struct Running {
    ask: Ask,
    pods: usize,
    /// The label selector of its pods.
    labels: String,
    /// How many have nodes, and since when that is so.
    bound: usize,
    since: Instant,
    /// The looks until it ends, once all have nodes.
    left: usize,
}

struct Campaign<'c, 'p> {
    plane: &'c ControlPlane,
    scope: &'c Scope,
    installation: &'c mut Installation<'p>,
    size: Size,
    rng: SeededRng,
    racks: Racks,
    running: BTreeMap<String, Running>,
    begun: usize,
    /// The last time that a job had all of its pods on nodes.
    progress: Instant,
}

pub(super) async fn random_jobs_on_racks_stay_whole(
    plane: Arc<ControlPlane>,
) -> anyhow::Result<()> {
    let jobs = setting("DRANET_RACK_JOBS", 12)?;
    let size = if jobs > FEW {
        Size { domains: 4, nodes: 18, jobs, together: 12 }
    } else {
        Size { domains: 2, nodes: 3, jobs, together: 4 }
    };
    let rng = SeededRng::from_environment()?;
    let flags = ["--reserve-seconds=5", "--full-fabric=evict"];
    let own = Arc::clone(&plane);
    with_fabrics(plane, (FABRICS, size.domains * size.nodes), 2, &flags, async |scope, it| {
        it.apply_component("fabric-evict").await?;
        scope.apply_file(&binaries::in_tests(DEFINITION)).await?;
        install_channels(scope).await?;
        it.start_replicas(2, &["--fabric-controller"]).await?;
        let url = it.start_extender_alone().await?;
        own.restart_scheduler(&with_extender(&own, &url)).await?;
        let racks = Racks::label(scope, size).await?;
        let begun = Instant::now();
        let mut campaign = Campaign {
            plane: &own,
            scope,
            installation: it,
            size,
            rng: rng.clone(),
            racks,
            running: BTreeMap::new(),
            begun: 0,
            progress: begun,
        };
        let outcome = campaign.run().await;
        let Racks { deaths, moves, kills, .. } = campaign.racks;
        report(&format!(
            "{} jobs in {:.1?} with {kills} kills, {deaths} deaths of nodes and {moves} changes of \
             labels; {rng}",
            campaign.begun,
            begun.elapsed()
        ));
        outcome
    })
    .await
}

/// A scheduler with a short backoff that calls the extender.
fn with_extender(plane: &ControlPlane, url: &str) -> SchedulerConfig {
    let extender = Extender::new(url, &plane.authority().pem());
    let mut config = SchedulerConfig::with_extenders(vec![extender]);
    config.more.insert("podMaxBackoffSeconds".into(), json!(1));
    config
}

impl Campaign<'_, '_> {
    async fn run(&mut self) -> anyhow::Result<()> {
        while self.begun < self.size.jobs || !self.running.is_empty() {
            while self.begun < self.size.jobs && self.running.len() < self.size.together {
                self.begin().await?;
            }
            self.look().await?;
            self.trouble().await?;
            tokio::time::sleep(PERIOD).await;
        }
        nothing_left(self.scope).await
    }

    /// Creates a job.
    async fn begin(&mut self) -> anyhow::Result<()> {
        let Size { domains, nodes, .. } = self.size;
        let rng = &mut self.rng;
        let whole = 1 + rng.index(nodes);
        let (ask, pods) = match rng.index(5) {
            0 => (Ask::Fabric, 1 + rng.index(domains * nodes / 2)),
            1 => (Ask::Domain, whole),
            2 => (Ask::Preferred, 1 + rng.index(domains * nodes / 2)),
            3 => {
                let slice = 2 + rng.index(nodes / 2);
                (Ask::Slices(slice), slice * (1 + rng.index(domains)))
            }
            _ => (Ask::Channels, whole),
        };
        let name = format!("job-{}", self.begun);
        let labels = run(self.scope, &job(&name, pods, ask)).await?;
        let since = Instant::now();
        let running = Running { ask, pods, labels, bound: 0, since, left: LIFE };
        self.running.insert(name, running);
        self.begun += 1;
        Ok(())
    }

    /// Plays the kubelets and NVIDIA's driver, checks every job, and ends those that have run.
    async fn look(&mut self) -> anyhow::Result<()> {
        create_templates(self.scope).await?;
        let pods = self.scope.api::<Pod>().list(&ListParams::default()).await?.items;
        for pod in pods.iter().filter(|pod| trouble::is_ending(pod)) {
            trouble::bury(self.scope, pod).await?;
        }
        let mut ended = Vec::new();
        for (name, job) in &mut self.running {
            let of_job = pods.iter().filter(|pod| is_of(pod, &job.labels));
            let placed = Placed::new(of_job, &self.racks);
            placed.check(name, job.ask)?;
            if placed.bound != job.bound {
                (job.bound, job.since) = (placed.bound, Instant::now());
            }
            if placed.bound == job.pods {
                self.progress = Instant::now();
                job.left = job.left.saturating_sub(1);
                ended.extend((job.left == 0).then(|| name.clone()));
            }
            let is_half = job.bound > 0 && job.bound < job.pods;
            anyhow::ensure!(
                !is_half || job.since.elapsed() < PATIENCE,
                "{name} ({:?}) stays with {} of {} pods: {}",
                job.ask,
                job.bound,
                job.pods,
                placed.text
            );
        }
        anyhow::ensure!(
            self.progress.elapsed() < PATIENCE,
            "no job runs: {}",
            self.waiting(&pods).join("; ")
        );
        for name in ended {
            end(self.scope, &name).await?;
            self.running.remove(&name);
        }
        Ok(())
    }

    /// What is known of each job.
    fn waiting(&self, pods: &[Pod]) -> Vec<String> {
        let text = |(name, job): (&String, &Running)| {
            let of_job = pods.iter().filter(|pod| is_of(pod, &job.labels));
            let placed = Placed::new(of_job, &self.racks);
            format!("{name} {:?} {} of {}: {}", job.ask, job.bound, job.pods, placed.text)
        };
        self.running.iter().map(text).collect()
    }
}

/// Whether a pod has the label of a selector `KEY=VALUE`.
fn is_of(pod: &Pod, labels: &str) -> bool {
    let (key, value) = labels.split_once('=').unwrap_or_default();
    pod.labels().get(key).is_some_and(|it| it == value)
}

fn job(name: &str, pods: usize, ask: Ask) -> Job {
    let slice = match ask {
        Ask::Slices(slice) => slice.to_string(),
        _ => String::new(),
    };
    let annotations: &[(&str, &str)] = match ask {
        Ask::Fabric => &[],
        Ask::Domain => &[("fabric-level", "nvlink")],
        Ask::Preferred => &[("fabric-level", "nvlink=preferred")],
        Ask::Slices(_) => &[("fabric-level", "nvlink"), ("domain-size", &slice)],
        Ask::Channels => &[("fabric-level", "nvlink"), ("compute-domain", "auto")],
    };
    let mut job = levelled(name, pods, annotations);
    // As docs/guides/jobs.md says for gangs that may move.
    let spec = job.spec.get_or_insert_default();
    spec.backoff_limit_per_index = Some(3);
    spec.pod_failure_policy = Some(PodFailurePolicy {
        rules: vec![PodFailurePolicyRule {
            action: "Ignore".to_owned(),
            on_pod_conditions: Some(vec![PodFailurePolicyOnPodConditionsPattern {
                type_: "DisruptionTarget".to_owned(),
                ..PodFailurePolicyOnPodConditionsPattern::default()
            }]),
            ..PodFailurePolicyRule::default()
        }],
    });
    job
}
