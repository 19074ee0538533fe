//! Mistakes that somebody could make in the order of steps. The search must find them.

use crate::kernel::attach::known::{BeforeAttach, Indices};
use crate::kernel::attach::namespaces::hand_over;
use crate::kernel::attach::netns::NetNs;
use crate::kernel::attach::node_network::NodeNetwork;
use crate::kernel::attach::record::AttachRecord;
use crate::model::checkpoint::Checkpoint;
use crate::model::plan::Plan;
use crate::prepare::error::PrepareError;
use crate::prepare::local::LocalPreparer;
use crate::runtime::hook::{AttachArgs, Container};
use node_files::paths::namespaces_socket;
use std::fs;
use std::path::Path;

/// A mistake.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Mistake {
    /// The claim leaves the checkpoint before its effects are undone.
    ForgetsFirst,
    /// The interfaces move before it is recorded into which namespace.
    RecordsLast,
}

/// [`LocalPreparer::unprepare`] in another order.
pub(super) fn forget_first(driver: &LocalPreparer, uid: &str) -> Result<(), PrepareError> {
    let path = driver.effects.paths.checkpoint();
    let mut checkpoint = Checkpoint::peek(&path).unwrap_or_default();
    let Some(record) = checkpoint.claims.remove(uid) else { return Ok(()) };
    checkpoint.store(&path)?;
    Ok(driver.effects.undo(&record.plan)?)
}

/// [`hook::attach`](crate::runtime::hook::attach) in another order.
pub(super) fn record_last(
    args: &AttachArgs,
    container: &Container,
    network: &dyn NodeNetwork,
) -> anyhow::Result<()> {
    let plan: Plan = serde_json::from_slice(&fs::read(&args.plan)?)?;
    let (host, pod) = (NetNs::current()?, NetNs::open(&container.network)?);
    let uid = &plan.claim.uid;
    drop(hand_over(&namespaces_socket(&args.run_dir), uid, &pod));
    let path = args.run_dir.join(format!("attached/{uid}.json"));
    let mut record = AttachRecord::begin(&path, pod.id()?, None);
    let before = record.clone();
    let known = BeforeAttach {
        leases: &before.leases,
        links: &before.links,
        is_attached: before.is_attached,
        sysctl: Path::new("/proc/sys/net"),
    };
    let given = network.attach(&plan, known, [&host, &pod], &mut |links: &Indices| {
        record.links.clone_from(links);
        Ok(())
    })?;
    Ok(record.attached(given, &path)?)
}
