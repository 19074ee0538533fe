//! Every answer is what kube-scheduler and the controllers then do. Random clusters and pods, and Jobs on
//! one fabric, are explained, planned, simulated and counted before they are created; afterwards every
//! answer is compared with what happened.
//!
//! `DRANET_ANSWERED_PODS` sets the number of pods (60), `DRANET_ANSWERED_GROUPS` that of Jobs (12), and
//! `DRANET_SEED` the seed of the first case (7); the next has the next seed. A difference is reported with
//! the seed that repeats it, and a snapshot of its cluster is kept.

mod answers;
mod outcome;
mod reasons;

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::PathBuf,
    sync::Arc,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use anyhow::Context;
use k8s_openapi::api::{
    apps::v1::{Deployment, StatefulSet},
    batch::v1::Job,
    core::v1::{Namespace, Node, PersistentVolume, PersistentVolumeClaim, Pod, ResourceQuota},
    resource::v1::ResourceClaim,
};
use kube::{
    Api, ResourceExt,
    api::{DeleteParams, DynamicObject, ListParams, Patch, PatchParams},
};
use serde_json::{Value, json};
use tests::{
    Check, ControlPlane, Extender, SchedulerConfig, Scope, binaries, eventually,
    installation::RunningExtender,
    manifest, metrics,
    random_case::{Case, NAME, NAMESPACE_LABEL, NODE_LABELS},
    setting,
    suite::{Test, report},
};

use self::{
    answers::{Answers, Files},
    outcome::Outcome,
};
use super::fabric::site::with_fabrics;

const SOON: Duration = Duration::from_secs(30);

pub(crate) fn tests() -> Vec<Test> {
    let all = tests::tests![every_answer_is_what_happens];
    all.into_iter().map(Test::alone).collect()
}

async fn every_answer_is_what_happens(plane: Arc<ControlPlane>) -> anyhow::Result<()> {
    let pods: u64 = setting("DRANET_ANSWERED_PODS", 60)?;
    let groups: u64 = setting("DRANET_ANSWERED_GROUPS", 12)?;
    let first: u64 = setting("DRANET_SEED", 7)?;
    with_fabrics(Arc::clone(&plane), (2, 2), 1, &[], async |scope, installation| {
        let url = installation.start_extender_alone().await?;
        let extender = Extender::new(&url, &plane.authority().pem());
        let mut scheduler = SchedulerConfig::with_extenders(vec![extender]);
        scheduler.more.insert("podMaxBackoffSeconds".into(), json!(1));
        plane.restart_scheduler(&scheduler).await?;
        let nodes = Api::<Node>::all(scope.client()).list(&ListParams::default()).await?;
        let campaign = Campaign {
            scope,
            extender: installation.extender()?,
            kubeconfig: plane.kubeconfig(),
            folder: plane.directory().to_owned(),
            nodes: nodes.items.iter().map(ResourceExt::name_any).collect(),
        };
        let labels = json!({"metadata": {"labels": {NAMESPACE_LABEL: "true"}}});
        let namespaces: Api<Namespace> = Api::all(scope.client());
        let labels = Patch::Merge(&labels);
        namespaces.patch(scope.namespace(), &PatchParams::default(), &labels).await?;
        let singles = campaign.run(first, pods, false).await?;
        let jobs = campaign.run(first, groups, true).await?;
        anyhow::ensure!(singles + jobs == 0, "{singles} pods and {jobs} Jobs differ; see above");
        Ok(())
    })
    .await
}

/// The cluster in which cases are tried one after another.
struct Campaign<'s> {
    scope: &'s Scope,
    extender: &'s RunningExtender,
    kubeconfig: PathBuf,
    folder: PathBuf,
    nodes: Vec<String>,
}

impl Campaign<'_> {
    /// Tries some cases; returns how many differ.
    async fn run(&self, first: u64, count: u64, is_group: bool) -> anyhow::Result<usize> {
        let mut different = 0;
        let mut ends = BTreeMap::<&str, usize>::new();
        for seed in first..first + count {
            let case = Case::draw(seed, &self.nodes, is_group);
            let tried = self.try_and_clean_up(&case).await?;
            let (answers, outcome) = match tried {
                Ok(tried) => tried,
                Err(error) => {
                    different += 1;
                    report(&format!("--- DRANET_SEED={seed}: {:?}: {error:#}", case.kinds));
                    continue;
                }
            };
            *ends.entry(outcome.end()).or_default() += 1;
            let differences = answers.differences(&outcome);
            if !differences.is_empty() {
                different += 1;
                self.tell(&case, &answers, &outcome, &differences)?;
            }
        }
        let asked = if is_group { "Jobs" } else { "pods" };
        report(&format!("{count} {asked}: {ends:?}; {different} differ"));
        // Cases that all end in one way would prove little.
        anyhow::ensure!(count < 12 || ends.len() > 1, "all {asked} ended as {ends:?}");
        Ok(different)
    }

    /// Reports a difference, and keeps what repeats it.
    fn tell(
        &self,
        case: &Case,
        answers: &Answers,
        outcome: &Outcome,
        differences: &[String],
    ) -> anyhow::Result<()> {
        let form = if case.group.is_some() { "group" } else { "pod" };
        let kept = binaries::kept("every-answer")?.join(format!("{form}-{}", case.seed));
        fs::create_dir_all(&kept)?;
        for file in ["asked.json", "cluster.gz", "metrics.txt", "scores.json"] {
            fs::copy(self.folder.join(file), kept.join(file))?;
        }
        report(&format!(
            "--- DRANET_SEED={} ({form}): {}\nkinds: {:?}\nasked: {}\nnodes: {:?}\nobjects: {}\n\
             answers: {answers}\nhappened: {outcome:?}\ncluster: {}",
            case.seed,
            differences.join("; "),
            case.kinds,
            case.document(),
            case.nodes,
            json!(case.objects),
            kept.join("cluster.gz").display(),
        ));
        Ok(())
    }

    /// Tries a case; fails only if the cluster is not as before afterwards.
    async fn try_and_clean_up(
        &self,
        case: &Case,
    ) -> anyhow::Result<anyhow::Result<(Answers, Outcome)>> {
        let tried = self.try_case(case).await;
        self.clean_up(case).await.with_context(|| format!("after DRANET_SEED={}", case.seed))?;
        Ok(tried)
    }

    /// Makes the cluster of a case, asks, creates what was asked about, and waits for its end.
    async fn try_case(&self, case: &Case) -> anyhow::Result<(Answers, Outcome)> {
        self.prepare(case).await?;
        let file = self.folder.join("asked.json");
        fs::write(&file, case.document().to_string())?;
        let cluster = self.folder.join("cluster.gz");
        let metrics = self.folder.join("metrics.txt");
        if case.group.is_none() {
            self.extender_has_scanned().await?;
        }
        fs::write(&metrics, metrics::page(self.extender.operations()).await?)?;
        let files = Files { asked: &file, cluster: &cluster, metrics: &metrics };
        let answers = Answers::ask(&self.kubeconfig, self.scope.namespace(), &files, case)?;
        let created = self.scope.apply(serde_json::from_value(case.document())?).await;
        let outcome = match created {
            Err(error) => Outcome::denied(&format!("{error:#}")),
            Ok(_) => Outcome::wait(self.scope, case, answers.placed()).await?,
        };
        let page = format!("explain?pod={}/{NAME}", self.scope.namespace());
        let scores = self.extender.debug(&page).await?.unwrap_or_default();
        fs::write(self.folder.join("scores.json"), scores.to_string())?;
        Ok((answers, outcome))
    }

    async fn prepare(&self, case: &Case) -> anyhow::Result<()> {
        let nodes: Api<Node> = Api::all(self.scope.client());
        for (node, change) in &case.nodes {
            nodes.patch(node, &PatchParams::default(), &Patch::Merge(change)).await?;
        }
        let (rules, others): (Vec<_>, Vec<_>) = case.objects.iter().partition(|it| is_rule(it));
        self.apply_all(&others).await?;
        for pod in &case.earlier {
            self.start(pod).await?;
        }
        self.settle().await?;
        self.apply_all(&rules).await?;
        self.volumes_are_known().await?;
        self.quotas_are_counted().await
    }

    /// Waits until the controllers have seen each volume and each claim that names one.
    async fn volumes_are_known(&self) -> anyhow::Result<()> {
        eventually(SOON, async || {
            let volumes: Api<PersistentVolume> = Api::all(self.scope.client());
            let volumes = volumes.list(&ListParams::default()).await?.items;
            let phases = volumes.iter().map(|it| it.status.as_ref()?.phase.as_deref());
            let new = phases.filter(|it| matches!(it, None | Some("Pending"))).count();
            let claims: Api<PersistentVolumeClaim> = self.scope.api();
            let claims = claims.list(&ListParams::default()).await?.items;
            let named = claims
                .iter()
                .filter(|claim| claim.spec.as_ref().is_some_and(|spec| spec.volume_name.is_some()));
            let phases = named.map(|it| it.status.as_ref()?.phase.as_deref());
            let unbound = phases.filter(|it| matches!(it, None | Some("Pending"))).count();
            Ok(Check::that(new + unbound == 0, || format!("{new} volumes, {unbound} claims")))
        })
        .await
    }

    /// Waits until the extender has scanned the cluster as it is now: nodes are ranked by what the last scan
    /// saw.
    async fn extender_has_scanned(&self) -> anyhow::Result<()> {
        let now = SystemTime::now().duration_since(UNIX_EPOCH)?.as_secs_f64();
        eventually(SOON, async || {
            let metrics = self.extender.metrics().await?;
            let begun = metrics.get("dranet_scheduler_ext_last_scan_timestamp_seconds");
            Ok(Check::that(begun > Some(&now), || format!("the last scan began at {begun:?}")))
        })
        .await
    }

    async fn apply_all(&self, objects: &[&Value]) -> anyhow::Result<()> {
        for object in objects {
            self.scope.apply(serde_json::from_value((*object).clone())?).await?;
        }
        Ok(())
    }

    async fn quotas_are_counted(&self) -> anyhow::Result<()> {
        eventually(SOON, async || {
            let quotas = self.scope.api::<ResourceQuota>().list(&ListParams::default()).await?;
            let uncounted = quotas.iter().find(|quota| {
                quota.status.as_ref().and_then(|status| status.used.as_ref()).is_none()
            });
            Ok(Check::that(uncounted.is_none(), || "a quota is not counted".to_owned()))
        })
        .await
    }

    /// Creates an earlier pod. It is not there if the webhook denies it, and stays pending if there is no
    /// room.
    async fn start(&self, pod: &Value) -> anyhow::Result<()> {
        let object: DynamicObject = serde_json::from_value(pod.clone())?;
        let name = object.name_any();
        if let Err(error) = self.scope.apply(object).await {
            let is_denied = format!("{error:#}").contains("denied the request");
            return if is_denied { Ok(()) } else { Err(error) };
        }
        if let status @ Value::Object(_) = &pod["status"] {
            let status = Patch::Merge(json!({"status": status}));
            let pods: Api<Pod> = self.scope.api();
            pods.patch_status(&name, &PatchParams::default(), &status).await?;
        }
        Ok(())
    }

    /// Waits until each earlier pod has a node or was tried. Those without room would take what the asked pod
    /// is promised: they go, with their claims. Those for which others are evicted stay.
    async fn settle(&self) -> anyhow::Result<()> {
        let pods: Api<Pod> = self.scope.api();
        let (tried, claims) = eventually(SOON, async || {
            let pods = pods.list(&ListParams::default()).await?.items;
            let claims: Api<ResourceClaim> = self.scope.api();
            let claims = claims.list(&ListParams::default()).await?.items;
            let untried = pods.iter().find(|pod| {
                outcome::node_or_held(pod, &claims).is_none()
                    && outcome::scheduler_said(pod).is_none()
            });
            Ok(match untried {
                Some(pod) => Check::NotYet(format!("{} was not tried", pod.name_any())),
                None => Check::Done((pods, claims)),
            })
        })
        .await?;
        let (running, pending): (Vec<_>, Vec<_>) =
            tried.iter().partition(|pod| outcome::node_or_held(pod, &claims).is_some());
        for pod in pending.into_iter().filter(|pod| !outcome::is_nominated(pod)) {
            self.scope.delete_pod(&pod.name_any()).await?;
        }
        let running: BTreeSet<String> = running.into_iter().map(ResourceExt::name_any).collect();
        eventually(SOON, async || {
            let claims = self.scope.api::<ResourceClaim>().list(&ListParams::default()).await?;
            let owners = claims.iter().flat_map(ResourceExt::owner_references);
            let left = owners.filter(|owner| !running.contains(&owner.name)).count();
            Ok(Check::that(left == 0, || format!("{left} claims of pods that are gone")))
        })
        .await
    }

    /// Restores the cluster.
    async fn clean_up(&self, case: &Case) -> anyhow::Result<()> {
        let client = self.scope.client();
        let now = DeleteParams::background().grace_period(0);
        self.scope.api::<Job>().delete_collection(&now, &ListParams::default()).await?;
        self.scope.api::<StatefulSet>().delete_collection(&now, &ListParams::default()).await?;
        self.scope.api::<Deployment>().delete_collection(&now, &ListParams::default()).await?;
        self.scope.api::<Pod>().delete_collection(&now, &ListParams::default()).await?;
        let all = &DeleteParams::default();
        self.scope.api::<ResourceClaim>().delete_collection(all, &ListParams::default()).await?;
        for object in case.objects.iter().rev() {
            let object = serde_json::from_value(object.clone())?;
            manifest::delete(&client, &object, self.scope.namespace(), &now).await?;
        }
        let labels: Value =
            NODE_LABELS.iter().map(|label| ((*label).to_owned(), Value::Null)).collect();
        let clean = json!({
            "metadata": {"labels": labels}, "spec": {"taints": null, "unschedulable": null},
        });
        let nodes: Api<Node> = Api::all(client);
        for node in case.nodes.keys() {
            nodes.patch(node, &PatchParams::default(), &Patch::Merge(&clean)).await?;
        }
        eventually(SOON, async || {
            let pods = self.scope.api::<Pod>().list(&ListParams::default()).await?.items.len();
            let claims: Api<ResourceClaim> = self.scope.api();
            let claims = claims.list(&ListParams::default()).await?.items.len();
            Ok(Check::that(pods + claims == 0, || format!("{pods} pods and {claims} claims")))
        })
        .await
    }
}

/// Whether an object concerns only the pod that is asked about.
fn is_rule(object: &Value) -> bool {
    let kind = object["kind"].as_str();
    matches!(kind, Some("LimitRange" | "ResourceQuota" | "DeviceTaintRule"))
}
