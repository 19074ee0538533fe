//! Answers the hooks that the container runtime starts.

use crate::kernel::attach::AttachError;
use crate::kernel::attach::namespaces::{self, Message};
use crate::kernel::attach::netns::NetNsId;
use crate::kernel::attach::record::AttachRecord;
use crate::model::checkpoint::Phase;
use crate::model::plan::Plan;
use crate::prepare::error::PrepareError;
use crate::prepare::local::LocalPreparer;
use node_files::durable::FileError;
use std::io;
use std::os::unix::net::UnixStream;
use std::sync::Arc;

impl LocalPreparer {
    /// Answers one hook: holds its namespace, and takes back what an earlier sandbox of
    /// the same pod still has. Returns the plan of a claim whose interfaces are now in
    /// the pod.
    pub fn answer_hook(&self, stream: &UnixStream) -> Result<Option<Plan>, PrepareError> {
        let message = namespaces::receive(stream)?;
        let _turn = self.turn()?;
        let mut checkpoint = self.load()?;
        let (uid, namespace) = match message {
            Message::Namespace(uid, namespace) => (uid, namespace),
            Message::Attached(uid) => {
                self.acknowledge(stream)?;
                return Ok(self.attached(&checkpoint, &uid));
            }
        };
        // The hook itself refuses the container; the next one gets the new numbers.
        self.check_numbers(&mut checkpoint, &uid)?;
        let record = checkpoint.claims.get(&uid).filter(|it| it.phase == Phase::Prepared);
        let Some(record) = record else {
            self.wrote(namespaces::refuse_unknown(stream))?;
            return Ok(None);
        };
        if let Err(error) = self.take_back(&record.plan, namespace.id()?) {
            if matches!(error, PrepareError::Attach(AttachError::InUse { .. })) {
                self.wrote(namespaces::refuse(stream))?;
            }
            return Err(error);
        }
        self.effects.namespaces.hold(&uid, Arc::new(namespace));
        self.count(&checkpoint);
        self.acknowledge(stream)?;
        Ok(None)
    }

    /// Takes back to the host what an earlier sandbox of the claim's pod still has. A
    /// sandbox that still runs keeps its interfaces, because another pod would lose them.
    pub(in crate::prepare) fn take_back(
        &self,
        plan: &Plan,
        now: NetNsId,
    ) -> Result<(), PrepareError> {
        let before = AttachRecord::load(&self.effects.paths.attached(&plan.claim.uid));
        let Some(before) = before.filter(|before| !before.namespace.is(&now)) else {
            return Ok(());
        };
        if self.effects.namespaces.is_named(before.namespace) {
            return Err(AttachError::InUse { claim: plan.claim.clone() }.into());
        }
        self.effects.detach(plan)?;
        Ok(())
    }

    fn acknowledge(&self, stream: &UnixStream) -> Result<(), PrepareError> {
        self.wrote(namespaces::acknowledge(stream))
    }

    fn wrote(&self, answered: io::Result<()>) -> Result<(), PrepareError> {
        let socket = self.effects.paths.namespaces_socket();
        Ok(answered.map_err(|source| FileError::new("answer on", &socket, source))?)
    }
}
