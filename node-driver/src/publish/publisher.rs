//! Writes the decided objects to the API server. Every write follows a comparison with
//! what is there, so a run without changes writes nothing.

use cluster_model::names::DRIVER;
use k8s_openapi::api::resource::v1::{Device, ResourceSlice};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;
use kube::api::{DeleteParams, ListParams, ObjectMeta, PostParams};
use kube::core::Status;
use kube::{Api, Client};
use publication::node::NodeIdentity;
use publication::slices::{self, Memory, SlicePlan};
use std::fmt;
use topology_graph::{
    HostCondition, NodeTopology, NodeTopologySpec, NodeTopologyStatus, conditions,
};

/// How often a publication starts again after somebody else has written in between.
const ATTEMPTS: u32 = 5;

/// The number of requests that changed something on the server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Published {
    /// Creations, updates and deletions.
    pub writes: usize,
}

/// A publication failed.
#[derive(Debug, thiserror::Error)]
pub enum PublishError {
    /// The server refused, or did not answer.
    #[error("failed to {verb} {what}")]
    Request {
        /// The request: `list`, `get`, `create`, `update`, `delete`.
        verb: Verb,
        /// The object or collection.
        what: String,
        /// The cause.
        source: Box<kube::Error>,
    },
    /// The custom resource is not installed.
    #[error(
        "the cluster has no NodeTopology resource (topology.dranet.io/v1alpha1); \
         install its CustomResourceDefinition"
    )]
    NoTopologyResource,
}

/// A request to the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verb {
    /// Reads many objects.
    List,
    /// Reads an object.
    Get,
    /// Creates an object.
    Create,
    /// Changes an object.
    Update,
    /// Removes an object.
    Delete,
}

impl fmt::Display for Verb {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::List => "list",
            Self::Get => "get",
            Self::Create => "create",
            Self::Update => "update",
            Self::Delete => "delete",
        })
    }
}

impl PublishError {
    fn request(verb: Verb, what: impl Into<String>) -> impl FnOnce(kube::Error) -> Self {
        let what = what.into();
        move |source| Self::Request { verb, what, source: Box::new(source) }
    }

    /// Whether somebody else wrote in between, so that a retry may help.
    fn is_race(&self) -> bool {
        let Self::Request { verb, source, .. } = self else { return false };
        let kube::Error::Api(status) = &**source else { return false };
        *verb != Verb::List && (status.code == 409 || (status.code == 404 && *verb == Verb::Update))
    }
}

/// Publishes for one node.
#[derive(Clone, Debug)]
pub struct Publisher {
    node: NodeIdentity,
    slices: Api<ResourceSlice>,
    topologies: Api<NodeTopology>,
    memory: Memory,
}

impl Publisher {
    /// Publishes as a client for a node.
    pub fn new(client: &Client, node: NodeIdentity) -> Self {
        Self {
            node,
            slices: Api::all(client.clone()),
            topologies: Api::all(client.clone()),
            memory: Memory::default(),
        }
    }

    /// The node.
    pub fn node(&self) -> &NodeIdentity {
        &self.node
    }

    /// Publishes for the node as it is now: a Node that was deleted and created again has another
    /// UID, and the server collects objects of the former one.
    pub fn set_node(&mut self, node: NodeIdentity) {
        self.node = node;
    }

    /// Makes the node's slices contain these devices.
    pub async fn slices(&mut self, devices: &[Device]) -> Result<Published, PublishError> {
        let mut published = Published::default();
        let mut attempt = 1;
        loop {
            let existing = self.list().await?;
            self.memory.saw(&self.node, &existing);
            let plan = slices::plan(&self.node, devices, &existing, &self.memory);
            match self.carry_out(plan, &mut published).await {
                Err(error) if error.is_race() && attempt < ATTEMPTS => {
                    tracing::debug!(node = self.node.name, attempt, "Slices changed meanwhile");
                }
                outcome => return outcome.map(|()| published),
            }
            attempt += 1;
        }
    }

    /// Whether these slices of the server contain these devices.
    pub fn slices_say(&self, existing: &[ResourceSlice], devices: &[Device]) -> bool {
        slices::plan(&self.node, devices, existing, &self.memory).writes() == 0
    }

    /// Whether this NodeTopology of the server has this content.
    pub fn topology_says(
        &self,
        there: &NodeTopology,
        spec: &NodeTopologySpec,
        host: &[HostCondition],
    ) -> bool {
        self.spec_says(there, spec) && new_status(there, spec, host).is_none()
    }

    fn spec_says(&self, there: &NodeTopology, spec: &NodeTopologySpec) -> bool {
        let owners = there.metadata.owner_references.as_deref().unwrap_or_default();
        there.spec == *spec && *owners == [self.node.owner_reference()]
    }

    /// Removes what was published for the node.
    pub async fn remove(&self) -> Result<Published, PublishError> {
        let mut published = Published::default();
        for slice in self.list().await? {
            let Some(name) = slice.metadata.name else { continue };
            let failed = PublishError::request(Verb::Delete, format!("ResourceSlice `{name}`"));
            let deleted = self.slices.delete(&name, &DeleteParams::default()).await;
            published.writes += usize::from(was_there(deleted.map(drop)).map_err(failed)?);
        }
        let name = &self.node.name;
        let failed = PublishError::request(Verb::Delete, format!("NodeTopology `{name}`"));
        let deleted = self.topologies.delete(name, &DeleteParams::default()).await;
        published.writes += usize::from(was_there(deleted.map(drop)).map_err(failed)?);
        Ok(published)
    }

    /// This driver's slices for this node.
    async fn list(&self) -> Result<Vec<ResourceSlice>, PublishError> {
        let selector = format!("spec.driver={DRIVER},spec.nodeName={}", self.node.name);
        let params = ListParams::default().fields(&selector);
        let list = self.slices.list(&params).await;
        Ok(list
            .map_err(PublishError::request(
                Verb::List,
                format!("the ResourceSlices of node `{}`", self.node.name),
            ))?
            .items)
    }

    async fn carry_out(
        &mut self,
        plan: SlicePlan,
        published: &mut Published,
    ) -> Result<(), PublishError> {
        let SlicePlan { delete, update, create } = plan;
        for name in delete {
            let failed = PublishError::request(Verb::Delete, format!("ResourceSlice `{name}`"));
            let deleted = self.slices.delete(&name, &DeleteParams::default()).await;
            published.writes += usize::from(was_there(deleted.map(drop)).map_err(failed)?);
        }
        for slice in update {
            let name = slice.metadata.name.clone().unwrap_or_default();
            let failed = PublishError::request(Verb::Update, format!("ResourceSlice `{name}`"));
            let params = PostParams::default();
            let kept = self.slices.replace(&name, &params, &slice).await.map_err(failed)?;
            self.wrote(&slice, &kept, published);
        }
        for slice in create {
            let what = format!("a ResourceSlice of node `{}`", self.node.name);
            let failed = PublishError::request(Verb::Create, what);
            let params = PostParams::default();
            let kept = self.slices.create(&params, &slice).await.map_err(failed)?;
            self.wrote(&slice, &kept, published);
        }
        Ok(())
    }

    fn wrote(&mut self, sent: &ResourceSlice, kept: &ResourceSlice, published: &mut Published) {
        if self.memory.wrote(&sent.spec, &kept.spec) {
            let slice = kept.metadata.name.as_deref().unwrap_or_default();
            tracing::warn!(slice, "The API server dropped fields that it does not know");
        }
        published.writes += 1;
    }

    /// Gives the node's NodeTopology this content.
    pub async fn topology(
        &self,
        spec: &NodeTopologySpec,
        host: &[HostCondition],
    ) -> Result<Published, PublishError> {
        let mut attempt = 1;
        loop {
            match self.write_topology(spec, host).await {
                Err(error) if error.is_race() && attempt < ATTEMPTS => {
                    tracing::debug!(
                        node = self.node.name,
                        attempt,
                        "NodeTopology changed meanwhile"
                    );
                }
                outcome => return outcome,
            }
            attempt += 1;
        }
    }

    /// Writes the object, then its status, which the server accepts only in a separate request.
    async fn write_topology(
        &self,
        spec: &NodeTopologySpec,
        host: &[HostCondition],
    ) -> Result<Published, PublishError> {
        let (there, wrote_spec) = self.write_spec(spec).await?;
        let wrote_status = self.write_status(there, spec, host).await?;
        Ok(Published { writes: usize::from(wrote_spec) + usize::from(wrote_status) })
    }

    /// Writes the spec if it differs. Returns the resulting object, and whether it was written.
    async fn write_spec(
        &self,
        spec: &NodeTopologySpec,
    ) -> Result<(NodeTopology, bool), PublishError> {
        let name = &self.node.name;
        let owners = Some(vec![self.node.owner_reference()]);
        let params = PostParams::default();
        match self.topologies.get(name).await {
            Ok(there) if self.spec_says(&there, spec) => Ok((there, false)),
            Ok(mut there) => {
                there.metadata.owner_references = owners;
                there.metadata.managed_fields = None;
                there.spec = spec.clone();
                let written = self.topologies.replace(name, &params, &there).await;
                Ok((written.map_err(self.topology_failed(Verb::Update))?, true))
            }
            Err(kube::Error::Api(status)) if is_object_absent(&status) => {
                let mut topology = NodeTopology::new(name, spec.clone());
                topology.metadata = ObjectMeta { owner_references: owners, ..topology.metadata };
                let written = self.topologies.create(&params, &topology).await;
                Ok((written.map_err(self.topology_failed(Verb::Create))?, true))
            }
            Err(kube::Error::Api(status)) if status.code == 404 => {
                Err(PublishError::NoTopologyResource)
            }
            Err(error) => Err(self.topology_failed(Verb::Get)(error)),
        }
    }

    fn topology_failed(&self, verb: Verb) -> impl FnOnce(kube::Error) -> PublishError {
        PublishError::request(verb, format!("NodeTopology `{}`", self.node.name))
    }

    /// Writes the status if it differs. Returns whether it was written.
    async fn write_status(
        &self,
        mut there: NodeTopology,
        spec: &NodeTopologySpec,
        host: &[HostCondition],
    ) -> Result<bool, PublishError> {
        let Some(status) = new_status(&there, spec, host) else { return Ok(false) };
        let name = &self.node.name;
        let failed =
            PublishError::request(Verb::Update, format!("the status of NodeTopology `{name}`"));
        there.metadata.managed_fields = None;
        there.status = Some(status);
        let written = self.topologies.replace_status(name, &PostParams::default(), &there).await;
        written.map(|_| true).map_err(failed)
    }
}

/// The status that an object should have; `None` if it has it already.
fn new_status(
    there: &NodeTopology,
    spec: &NodeTopologySpec,
    host: &[HostCondition],
) -> Option<NodeTopologyStatus> {
    let before = there.status.clone().unwrap_or_default();
    let conditions = conditions(spec, host, &before.conditions, &Time(Timestamp::now()));
    (conditions != before.conditions).then_some(NodeTopologyStatus { conditions })
}

/// Whether a 404 means that only the object is absent. It then names the object; it names
/// none if the server does not know the resource.
fn is_object_absent(status: &Status) -> bool {
    let named = status.details.as_ref().is_some_and(|details| !details.name.is_empty());
    status.code == 404 && named
}

/// Whether a deletion removed something. An absent object is no error.
fn was_there(deleted: Result<(), kube::Error>) -> Result<bool, kube::Error> {
    match deleted {
        Ok(()) => Ok(true),
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(false),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests;
