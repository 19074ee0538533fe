//! Handles claims whose interfaces get addresses by DHCP: the leases are written to the
//! claim's status, and renewed while the interfaces are in the pod.

use crate::kernel::attach::dhcp::keeper::Kept;
use crate::kernel::attach::record::AttachRecord;
use crate::model::checkpoint::Checkpoint;
use crate::model::plan::Plan;
use crate::prepare::error::PrepareError;
use crate::prepare::local::LocalPreparer;
use process::chain::Chain;

impl LocalPreparer {
    /// The plan of a claim whose interfaces are in the pod now, with their leased
    /// addresses.
    pub(super) fn attached(&self, checkpoint: &Checkpoint, uid: &str) -> Option<Plan> {
        let plan = checkpoint.claims.get(uid)?.plan.clone();
        let Some(record) = AttachRecord::load(&self.effects.paths.attached(uid)) else {
            return Some(plan);
        };
        // The hook may have handed the namespace to the driver that this one replaces.
        self.hold_recorded(uid, &record);
        self.keep_leases(&plan, &record);
        Some(record.complete(plan))
    }

    /// The plans of the given claims whose interfaces are in pods, with their leased
    /// addresses.
    pub fn attached_of(
        &self,
        uids: impl IntoIterator<Item = String>,
    ) -> Result<Vec<Plan>, PrepareError> {
        let _turn = self.turn()?;
        let checkpoint = self.load()?;
        Ok(uids
            .into_iter()
            .filter_map(|uid| {
                let record = AttachRecord::load(&self.effects.paths.attached(&uid))?;
                let claim = checkpoint.claims.get(&uid).filter(|_| record.is_attached)?;
                Some(record.complete(claim.plan.clone()))
            })
            .collect())
    }

    /// Renews the leases of the claim's interfaces.
    pub(super) fn keep_leases(&self, plan: &Plan, record: &AttachRecord) {
        let uid = &plan.claim.uid;
        let namespace = self.effects.namespaces.find(uid, record.namespace);
        let Some(namespace) = namespace.filter(|_| !record.leases.is_empty()) else { return };
        let links = plan.devices.iter().filter_map(|device| device.link.clone());
        let kept = Kept {
            uid: uid.clone(),
            namespace,
            links: links.collect(),
            indices: record.links.clone(),
            leases: record.leases.clone(),
            record: self.effects.paths.attached(uid),
        };
        if let Err(error) = self.effects.leases.keep(kept) {
            tracing::warn!(uid, error = %Chain(&error), "Failed to renew leases");
        }
    }
}
