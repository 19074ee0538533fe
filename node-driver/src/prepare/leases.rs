//! Claims whose interfaces have an address by DHCP: what the hook, or the sandbox, was
//! given is told in the claim's status, and renewed for as long as it is there.

use crate::attach::dhcp::keeper::Kept;
use crate::attach::record::AttachRecord;
use crate::checkpoint::Checkpoint;
use crate::prepare::node::Node;
use crate::prepare::plan::Plan;
use serve::chain::Chain;

impl Node {
    /// The plan of a claim whose interfaces are in the pod now, with what they were
    /// given there.
    pub(super) fn attached(&self, checkpoint: &Checkpoint, uid: &str) -> Option<Plan> {
        let plan = checkpoint.claims.get(uid)?.plan.clone();
        let Some(record) = AttachRecord::load(&self.effects.paths.attached(uid)) else {
            return Some(plan);
        };
        // The hook may have given it to the driver that this one replaces.
        self.hold_recorded(uid, &record);
        self.keep_leases(uid, &record);
        Some(record.complete(plan))
    }

    /// Renews what the claim's interfaces were given for a while.
    pub(super) fn keep_leases(&self, uid: &str, record: &AttachRecord) {
        let namespace = self.effects.namespaces.find(uid, record.namespace);
        let Some(namespace) = namespace.filter(|_| !record.leases.is_empty()) else { return };
        let (leases, record) = (record.leases.clone(), self.effects.paths.attached(uid));
        if let Err(error) = self.effects.leases.keep(uid, Kept { namespace, leases, record }) {
            tracing::warn!(uid, error = %Chain(&error), "Leases not renewed");
        }
    }
}
