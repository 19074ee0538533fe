//! Interfaces that are on the host although a running pod has their claim: the NIC's kernel driver was
//! loaded again, or the NIC was reset. The kernel then makes a new interface, on the host.

use crate::kernel::attach::netns::NetNs;
use crate::kernel::attach::record::AttachRecord;
use crate::model::checkpoint::{Checkpoint, Phase};
use crate::model::host_link::HostLink;
use crate::model::plan::Plan;
use crate::prepare::error::PrepareError;
use crate::prepare::local::LocalPreparer;
use crate::prepare::notices::Subject;

impl LocalPreparer {
    /// Reports the interfaces that have left their pods. The next container of the pod gets them
    /// again.
    pub(super) fn tell_strayed(&self, checkpoint: &Checkpoint) -> Result<(), PrepareError> {
        let attached: Vec<&Plan> = self.attached_plans(checkpoint).collect();
        let links: Vec<(&Plan, &HostLink)> =
            attached.iter().flat_map(|plan| moved(plan).map(|link| (*plan, link))).collect();
        if links.is_empty() {
            return Ok(());
        }
        let wanted: Vec<&HostLink> = links.iter().map(|(_, link)| *link).collect();
        let are_home = self.effects.network.are_home(&NetNs::current()?, &wanted)?;
        for ((plan, link), is_home) in links.into_iter().zip(are_home) {
            let (claim, name) = (&plan.claim, &link.name);
            let about = format!("interface {name} of {}", claim.uid);
            if !is_home {
                self.effects.notices.settle(&about);
                continue;
            }
            let text = format!(
                "interface `{name}` of claim `{claim}` is on the host, and no longer in the pod: its \
                 kernel driver was loaded again, or the NIC was reset; the next container of the pod \
                 gets it again, or delete the pod"
            );
            if self.effects.notices.add_new(Subject::LeftPod, &about, text) {
                tracing::warn!(%claim, name, "Interface left its pod");
            }
        }
        Ok(())
    }

    /// The plans whose interfaces were moved into pods that still run.
    fn attached_plans<'c>(&self, checkpoint: &'c Checkpoint) -> impl Iterator<Item = &'c Plan> {
        let records = checkpoint.claims.iter().filter(|(_, it)| it.phase == Phase::Prepared);
        records
            .filter(|(uid, _)| {
                let record = AttachRecord::load(&self.effects.paths.attached(uid));
                record.is_some_and(|record| {
                    record.is_attached && self.effects.namespaces.is_named(record.namespace)
                })
            })
            .map(|(_, record)| &record.plan)
    }
}

/// The interfaces of the host that the plan moves.
fn moved(plan: &Plan) -> impl Iterator<Item = &HostLink> {
    plan.links().filter(|link| link.child.is_none()).map(|link| &link.host)
}
