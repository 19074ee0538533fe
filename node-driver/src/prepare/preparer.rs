//! Prepares and unprepares claims: one at a time on a node, over all instances
//! of the driver.
//!
//! [`Node`] is the part without a cluster, on files and interfaces alone;
//! [`Preparer`] adds the claim itself. State is read from the checkpoint at each
//! call, under a file lock: an instance that takes over sees what the other left.

use crate::attach::link::read_host_links;
use crate::attach::namespaces::{Message, Namespaces};
use crate::attach::netns::NetNs;
use crate::attach::rdma::NetnsMode;
use crate::attach::record::AttachRecord;
use crate::attach::{AttachError, namespaces, rdma};
use crate::cdi;
use crate::checkpoint::{Checkpoint, CheckpointError, Loaded, Phase, Record};
use crate::claim_status::{self, Progress};
use crate::cloud;
use crate::host::is_this_machine;
use crate::plugin::metrics::PluginMetrics;
use crate::prepare::addresses;
use crate::prepare::claim::{AllocatedClaim, ClaimError, ClaimRef, base_request, is_safe_uid};
use crate::prepare::durable::{self, FileError};
use crate::prepare::effects::{EffectError, Effects};
use crate::prepare::inventory::Inventory;
use crate::prepare::plan::{Facts, Plan, PlanError, PlannedDevice, plan};
use crate::prepare::published::Published;
use crate::prepare::reconcile::{Step, steps};
use crate::prepare::wiring::wiring;
use k8s_openapi::api::resource::v1::{ResourceClaim, ResourceSlice};
use kube::api::ListParams;
use kube::{Api, Client};
use serve::chain::Chain;
use std::collections::BTreeSet;
use std::fs::{self, File};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use topology_graph::{HostRoot, Overlay, ReadError, Topology};

/// Longest wait for the API server, well below the kubelet's 45 s.
const API_PATIENCE: Duration = Duration::from_secs(15);

/// The same for the slices, which a claim can do without.
const SLICES_PATIENCE: Duration = Duration::from_secs(5);

/// A claim could not be prepared or unprepared.
#[derive(Debug, thiserror::Error)]
pub enum PrepareError {
    /// It was deleted.
    #[error("claim `{claim}` is not there any more")]
    Absent {
        /// Which claim.
        claim: ClaimRef,
    },
    /// The server refused.
    #[error("failed to get claim `{claim}`: the server says: {message}")]
    Refused {
        /// Which claim.
        claim: ClaimRef,
        /// Its words.
        message: String,
    },
    /// The server did not answer.
    #[error("failed to get claim `{claim}`")]
    Get {
        /// Which claim.
        claim: ClaimRef,
        /// Why not.
        source: Box<kube::Error>,
    },
    /// The server did not answer in time.
    #[error("failed to get claim `{claim}`: no answer within {} s", API_PATIENCE.as_secs())]
    Late {
        /// Which claim.
        claim: ClaimRef,
    },
    /// It is not for this node now.
    #[error(transparent)]
    Claim(#[from] ClaimError),
    /// It cannot have what it asks for.
    #[error("claim `{claim}`")]
    Plan {
        /// Which claim.
        claim: ClaimRef,
        /// Why not.
        source: Box<PlanError>,
    },
    /// The claims' addresses could not be read or written.
    #[error("claim `{claim}`: failed to find an address in its range")]
    Addresses {
        /// Which claim.
        claim: ClaimRef,
        /// Why not.
        source: Box<kube::Error>,
    },
    /// Every address of a range is another claim's.
    #[error(
        "claim `{claim}`: no address of `interface.addressRange` is free; widen it, or delete claims that are not used"
    )]
    RangeFull {
        /// Which claim.
        claim: ClaimRef,
    },
    /// Others were faster each time.
    #[error("claim `{claim}`: other claims took each address that it chose; it is tried again")]
    RangeContended {
        /// Which claim.
        claim: ClaimRef,
    },
    /// The machine could not be read.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// An interface could not be read.
    #[error(transparent)]
    Attach(#[from] AttachError),
    /// An effect failed; what was done is undone, or will be at the next start.
    #[error(transparent)]
    Effect(#[from] EffectError),
    /// The checkpoint could not be read or written.
    #[error(transparent)]
    Checkpoint(#[from] CheckpointError),
    /// A file of the plugin's own.
    #[error(transparent)]
    File(#[from] FileError),
    /// The work was dropped: the driver stops.
    #[error("the driver stops")]
    Stopped,
}

/// A device as the kubelet is told of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PreparedDevice {
    /// The request that it satisfies, without subrequest.
    pub request: String,
    /// Its pool.
    pub pool: String,
    /// Its name.
    pub device: String,
    /// Which share of it.
    pub share_id: Option<String>,
    /// What the runtime is to inject.
    pub cdi_id: String,
}

/// The machine's side: files, interfaces, checkpoint.
#[derive(Debug)]
pub struct Node {
    /// Where the machine is read.
    pub host: HostRoot,
    /// What plans do.
    pub effects: Effects,
    /// What is counted.
    pub metrics: PluginMetrics,
}

impl Node {
    /// The devices of a claim that is prepared already, its files whole again.
    pub fn prepared(&self, uid: &str) -> Result<Option<Vec<PreparedDevice>>, PrepareError> {
        let _turn = self.turn()?;
        let checkpoint = self.load()?;
        let record = checkpoint.claims.get(uid).filter(|record| record.phase == Phase::Prepared);
        let Some(record) = record else { return Ok(None) };
        if !self.effects.is_applied(&record.plan) {
            self.effects.apply(&record.plan)?;
        }
        Ok(Some(self.devices(&record.plan)))
    }

    /// Prepares a claim. What a failed effect leaves is undone.
    pub fn prepare(
        &self,
        claim: &AllocatedClaim,
        published: &Published,
    ) -> Result<Plan, PrepareError> {
        let _turn = self.turn()?;
        let mut checkpoint = self.load()?;
        let uid = claim.claim.uid.clone();
        if let Some(unfinished) = checkpoint.claims.get(&uid).cloned() {
            self.unwind(&mut checkpoint, &uid, &unfinished.plan)?;
        }
        let plan = self.plan(claim, published, &checkpoint)?;
        self.effects.faults.reached("prepare:checkpoint:before");
        self.set(&mut checkpoint, &plan, Phase::Preparing)?;
        self.effects.faults.reached("prepare:checkpoint:after");
        let applied = self.effects.apply(&plan).map_err(PrepareError::from);
        if let Err(error) = applied.and_then(|()| self.set(&mut checkpoint, &plan, Phase::Prepared))
        {
            if let Err(undo) = self.unwind(&mut checkpoint, &uid, &plan) {
                let claim = &plan.claim;
                tracing::warn!(%claim, error = %Chain(&undo), "Not undone until the next try");
            }
            return Err(error);
        }
        self.effects.faults.reached("prepare:done");
        Ok(plan)
    }

    /// Undoes what was prepared; of a claim that is not known nothing is there.
    pub fn unprepare(&self, uid: &str) -> Result<(), PrepareError> {
        let _turn = self.turn()?;
        let mut checkpoint = self.load()?;
        let Some(record) = checkpoint.claims.get(uid).cloned() else { return Ok(()) };
        self.effects.faults.reached("unprepare:checkpoint:before");
        self.set(&mut checkpoint, &record.plan, Phase::Unpreparing)?;
        self.effects.faults.reached("unprepare:checkpoint:after");
        self.unwind(&mut checkpoint, uid, &record.plan)?;
        self.effects.faults.reached("unprepare:done");
        Ok(())
    }

    /// Makes checkpoint and machine agree, after a start.
    pub fn reconcile(&self) -> Result<(), PrepareError> {
        let _turn = self.turn()?;
        self.sweep()?;
        let mut checkpoint = self.load()?;
        let files = self.claims_with_files();
        let is_whole = |uid: &&String| {
            let record = checkpoint.claims.get(*uid);
            record.is_some_and(|record| self.effects.is_applied(&record.plan))
        };
        let whole = files.iter().filter(is_whole).cloned().collect();
        for step in steps(&checkpoint, &whole, &files) {
            tracing::info!(?step, "Reconciling");
            self.take(&step, &mut checkpoint)?;
        }
        self.hold_namespaces(&checkpoint);
        self.count(&checkpoint);
        Ok(())
    }

    /// Runs work that no other instance may do at the same time.
    pub fn alone<T>(&self, work: impl FnOnce() -> T) -> Result<T, PrepareError> {
        let _turn = self.turn()?;
        Ok(work())
    }

    /// What a driver that was killed was writing. Every writer has the turn.
    fn sweep(&self) -> Result<(), FileError> {
        let paths = &self.effects.paths;
        durable::sweep(&paths.plugin(), &durable::temporaries_of(&paths.checkpoint()))?;
        durable::sweep(&paths.cdi, &format!(".{}", paths.cdi_prefix()))?;
        let hook = paths.hook();
        let name = hook.file_name().unwrap_or_default().to_string_lossy();
        hook.parent().map_or(Ok(()), |folder| durable::sweep(folder, &format!("{name}.")))
    }

    fn count(&self, checkpoint: &Checkpoint) {
        let whole = |count: usize| i64::try_from(count).unwrap_or(i64::MAX);
        self.metrics.claims.set(whole(checkpoint.claims.len()));
        self.metrics.namespaces.set(whole(self.effects.namespaces.count()));
    }

    /// Answers one hook: holds its namespace, and takes back what an earlier
    /// sandbox of the same pod still has. Returns the plan of a claim whose
    /// interfaces are in the pod now.
    pub fn answer_hook(&self, stream: &UnixStream) -> Result<Option<Plan>, PrepareError> {
        let message = namespaces::receive(stream)?;
        let _turn = self.turn()?;
        let checkpoint = self.load()?;
        let (uid, namespace) = match message {
            Message::Namespace(uid, namespace) => (uid, namespace),
            Message::Attached(uid) => {
                self.acknowledge(stream)?;
                return Ok(checkpoint.claims.get(&uid).map(|record| record.plan.clone()));
            }
        };
        let Some(record) = checkpoint.claims.get(&uid) else { return Ok(None) };
        let id = namespace.id()?;
        let record_path = self.effects.paths.attached(&uid);
        let before = AttachRecord::load(&record_path);
        if before.is_some_and(|before| before.namespace != id) {
            self.effects.detach(&record.plan)?;
        }
        self.effects.namespaces.hold(&uid, namespace);
        self.count(&checkpoint);
        self.acknowledge(stream)?;
        Ok(None)
    }

    fn acknowledge(&self, stream: &UnixStream) -> Result<(), PrepareError> {
        let socket = self.effects.paths.namespaces_socket();
        let answered = namespaces::acknowledge(stream);
        Ok(answered.map_err(|source| FileError::new("answer on", &socket, source))?)
    }

    fn plan(
        &self,
        claim: &AllocatedClaim,
        published: &Published,
        checkpoint: &Checkpoint,
    ) -> Result<Plan, PrepareError> {
        let snapshot = topology_graph::read(&self.host)?;
        let inventory = Inventory::with(&snapshot, &self.host);
        let netdevs = claim
            .devices
            .iter()
            .filter_map(|device| inventory.devices.get(&device.device)?.netdev.clone())
            .collect();
        let links = read_host_links(&NetNs::current()?, netdevs)?;
        let held: Vec<_> = checkpoint.claims.values().map(|record| &record.plan).collect();
        let netns_mode = self.netns_mode()?;
        let facts = Facts { inventory: &inventory, links: &links, netns_mode, held: &held };
        let wrap =
            |source| PrepareError::Plan { claim: claim.claim.clone(), source: Box::new(source) };
        let plan = plan(claim, &facts).map_err(wrap)?;
        let overlay = self.machine_type().as_deref().and_then(Overlay::built_in);
        let (topology, _) = Topology::build(&snapshot, overlay.as_ref());
        let wiring = wiring(&plan, &self.effects.paths.driver, &topology, published);
        Ok(Plan { wiring, ..plan })
    }

    /// What the cloud calls this machine, where it has said so during this boot.
    fn machine_type(&self) -> Option<String> {
        cloud::source::kept(&self.host)?.machine_type().map(str::to_owned)
    }

    /// A recorded machine has no kernel to ask.
    fn netns_mode(&self) -> Result<NetnsMode, AttachError> {
        if !is_this_machine(&self.host) {
            return Ok(NetnsMode::Shared);
        }
        let wrap = |source| AttachError::System {
            verb: "ask the RDMA subsystem for its mode".to_owned(),
            source,
        };
        rdma::netns_mode().map_err(wrap)
    }

    /// A plan's devices as the kubelet is told of them.
    pub fn devices(&self, plan: &Plan) -> Vec<PreparedDevice> {
        let driver = &self.effects.paths.driver;
        let device = |device: &PlannedDevice| PreparedDevice {
            request: base_request(&device.request).to_owned(),
            pool: device.pool.clone(),
            device: device.device.clone(),
            share_id: device.share_id.clone(),
            cdi_id: cdi::device_id(driver, plan, device),
        };
        plan.devices.iter().map(device).collect()
    }

    fn set(
        &self,
        checkpoint: &mut Checkpoint,
        plan: &Plan,
        phase: Phase,
    ) -> Result<(), PrepareError> {
        let record = Record { phase, plan: plan.clone() };
        checkpoint.claims.insert(plan.claim.uid.clone(), record);
        self.store(checkpoint)
    }

    /// Undoes the effects and forgets the claim, in this order.
    fn unwind(
        &self,
        checkpoint: &mut Checkpoint,
        uid: &str,
        plan: &Plan,
    ) -> Result<(), PrepareError> {
        self.effects.undo(plan)?;
        checkpoint.claims.remove(uid);
        self.store(checkpoint)
    }

    fn store(&self, checkpoint: &Checkpoint) -> Result<(), PrepareError> {
        checkpoint.store(&self.effects.paths.checkpoint())?;
        self.count(checkpoint);
        Ok(())
    }

    /// The exclusive right to change anything, until dropped.
    fn turn(&self) -> Result<File, PrepareError> {
        let path = self.effects.paths.lock();
        let open = || {
            fs::create_dir_all(self.effects.paths.plugin())?;
            let file = File::options().create(true).append(true).open(&path)?;
            file.lock()?;
            Ok(file)
        };
        open().map_err(|source| FileError::new("lock", &path, source).into())
    }

    /// The checkpoint; one that is damaged is rebuilt from the plans that lie
    /// beside it.
    fn load(&self) -> Result<Checkpoint, PrepareError> {
        let path = self.effects.paths.checkpoint();
        match Checkpoint::load(&path)? {
            Loaded::Absent => Ok(Checkpoint::default()),
            Loaded::Read(checkpoint) => Ok(checkpoint),
            Loaded::Damaged { set_aside, problem } => {
                let set_aside = set_aside.display();
                let rebuilt = self.rebuild();
                let claims = rebuilt.claims.len();
                tracing::error!(%set_aside, problem, claims, "Checkpoint damaged, rebuilt");
                rebuilt.store(&path)?;
                Ok(rebuilt)
            }
        }
    }

    /// Every plan whose spec the runtime can see was promised; the others were
    /// on their way in or out.
    fn rebuild(&self) -> Checkpoint {
        let paths = &self.effects.paths;
        let record = |uid: String| {
            let plan: Plan = serde_json::from_slice(&fs::read(paths.plan(&uid)).ok()?).ok()?;
            let phase =
                if paths.cdi_spec(&uid).is_file() { Phase::Prepared } else { Phase::Unpreparing };
            Some((uid, Record { phase, plan }))
        };
        Checkpoint { claims: self.claims_with_files().into_iter().filter_map(record).collect() }
    }

    /// UIDs of claims of which any file is there.
    fn claims_with_files(&self) -> BTreeSet<String> {
        let paths = &self.effects.paths;
        let specs = names_in(&paths.cdi).into_iter().filter_map(|name| {
            let uid = name.strip_prefix(&paths.cdi_prefix())?.strip_suffix(".json")?;
            Some(uid.to_owned())
        });
        let folders = names_in(&paths.claims());
        specs.chain(folders).filter(|uid| is_safe_uid(uid)).collect()
    }

    fn take(&self, step: &Step, checkpoint: &mut Checkpoint) -> Result<(), PrepareError> {
        match step {
            Step::Undo(uid) | Step::Finish(uid) => {
                let Some(record) = checkpoint.claims.get(uid).cloned() else { return Ok(()) };
                self.unwind(checkpoint, uid, &record.plan)
            }
            Step::Repair(uid) => {
                let Some(record) = checkpoint.claims.get(uid) else { return Ok(()) };
                Ok(self.effects.apply(&record.plan)?)
            }
            Step::Remove(uid) => {
                durable::remove(&self.effects.paths.cdi_spec(uid))?;
                Ok(durable::remove_dir(&self.effects.paths.claim(uid))?)
            }
        }
    }

    /// After a restart the namespaces of running pods are found by their names.
    fn hold_namespaces(&self, checkpoint: &Checkpoint) {
        for uid in checkpoint.claims.keys() {
            let record = AttachRecord::load(&self.effects.paths.attached(uid));
            let found =
                record.and_then(|record| self.effects.namespaces.find(uid, record.namespace));
            if let Some(namespace) = found.and_then(Arc::into_inner) {
                self.effects.namespaces.hold(uid, namespace);
            }
        }
    }

    /// The pods' namespaces that are held.
    pub fn namespaces(&self) -> &Arc<Namespaces> {
        &self.effects.namespaces
    }
}

/// A refusal of the server's in its own words, once.
fn refusal(claim: &ClaimRef, error: kube::Error) -> PrepareError {
    let claim = claim.clone();
    match error {
        kube::Error::Api(status) if status.code == 404 => PrepareError::Absent { claim },
        kube::Error::Api(status) => {
            PrepareError::Refused { claim, message: status.message.clone() }
        }
        other => PrepareError::Get { claim, source: Box::new(other) },
    }
}

fn names_in(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().into_string().ok()).collect()
}

/// The machine's side and the claims of the cluster.
#[derive(Clone)]
pub struct Preparer {
    client: Client,
    name: String,
    node: Arc<Node>,
}

impl Preparer {
    /// For the node of this name.
    pub fn new(client: Client, name: impl Into<String>, node: Arc<Node>) -> Self {
        Self { client, name: name.into(), node }
    }

    /// Prepares a claim, or says again what was prepared. Works without the API
    /// server for a claim that is prepared already.
    pub async fn prepare(&self, claim: &ClaimRef) -> Result<Vec<PreparedDevice>, PrepareError> {
        if !claim.has_safe_uid() {
            return Err(ClaimError::MalformedUid { claim: Box::new(claim.clone()) }.into());
        }
        let uid = claim.uid.clone();
        if let Some(devices) = self.on_node(move |node| node.prepared(&uid)).await? {
            return Ok(devices);
        }
        let object = self.get(claim).await?;
        let driver = &self.node.effects.paths.driver;
        let mut allocated = AllocatedClaim::read(&object, claim, driver, &self.name)?;
        addresses::reserve(&self.client, driver, &mut allocated).await?;
        let published = self.published().await;
        let plan = self.on_node(move |node| node.prepare(&allocated, &published)).await?;
        let devices = self.node.devices(&plan);
        self.publish_status(plan, Progress::Prepared);
        Ok(devices)
    }

    /// Writes the claim's status; nobody waits for it.
    pub fn publish_status(&self, plan: Plan, progress: Progress) {
        let driver = self.node.effects.paths.driver.clone();
        let client = self.client.clone();
        tokio::spawn(claim_status::publish(client, driver, plan, progress));
    }

    /// Undoes it. The claim itself may be gone already.
    pub async fn unprepare(&self, claim: &ClaimRef) -> Result<(), PrepareError> {
        let uid = claim.uid.clone();
        self.on_node(move |node| node.unprepare(&uid)).await
    }

    /// The slices of this node. Without them the claim is prepared all the same, and
    /// its files tell less.
    async fn published(&self) -> Published {
        let slices: Api<ResourceSlice> = Api::all(self.client.clone());
        let of_node = ListParams::default().fields(&format!("spec.nodeName={}", self.name));
        match tokio::time::timeout(SLICES_PATIENCE, slices.list(&of_node)).await {
            Ok(Ok(list)) => return Published::of(list.items),
            Ok(Err(error)) => tracing::warn!(%error, "ResourceSlices not read"),
            Err(_) => tracing::warn!("ResourceSlices not read in time"),
        }
        Published::default()
    }

    /// What is counted.
    pub fn metrics(&self) -> &PluginMetrics {
        &self.node.metrics
    }

    async fn get(&self, claim: &ClaimRef) -> Result<ResourceClaim, PrepareError> {
        let claims: Api<ResourceClaim> = Api::namespaced(self.client.clone(), &claim.namespace);
        tokio::time::timeout(API_PATIENCE, claims.get(&claim.name))
            .await
            .map_err(|_| PrepareError::Late { claim: claim.clone() })?
            .map_err(|error| refusal(claim, error))
    }

    /// Files and interfaces block: not on a worker of the runtime.
    async fn on_node<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Node) -> Result<T, PrepareError> + Send + 'static,
    ) -> Result<T, PrepareError> {
        let node = Arc::clone(&self.node);
        let work = tokio::task::spawn_blocking(move || work(&node));
        work.await.unwrap_or(Err(PrepareError::Stopped))
    }
}

impl std::fmt::Debug for Preparer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Preparer").field("name", &self.name).finish_non_exhaustive()
    }
}
