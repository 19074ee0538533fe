//! The memory of machines: each kind of each pool is written down when it is
//! first seen, so that a pool that is scaled to zero denies nothing.

use super::{Leader, LeaderError, reading, writing};
use cluster_model::gpu_drivers;
use cluster_model::names::{self, object};
use cluster_model::remembered::Remembered;
use cluster_model::unremembered::unremembered;
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::{ConfigMap, Node};
use k8s_openapi::api::resource::v1::ResourceSlice;
use kube::Api;
use kube::api::{ListParams, PostParams};
use process::chain::Chain;
use std::collections::BTreeMap;
use std::error::Error;
use std::time::Duration;
use topology_graph::NodeTopology;

/// How often the machines that are there are compared with those remembered.
const PERIOD: Duration = Duration::from_secs(5);

impl Leader {
    pub(super) async fn remember_machines(&self) {
        let mut seen = None;
        loop {
            let epoch = self.templates.view.read().epoch();
            if seen != Some(epoch) {
                match self.remember_new().await {
                    Ok(()) => seen = Some(epoch),
                    Err(error) => {
                        let error = Chain(&*error);
                        tracing::warn!(%error, "Machines not remembered; trying again");
                    }
                }
            }
            tokio::time::sleep(PERIOD).await;
        }
    }

    /// Looks beside the tasks that answer requests: thousands of nodes take a while.
    async fn remember_new(&self) -> Result<(), Box<dyn Error + Send + Sync>> {
        let view = self.templates.view.clone();
        let new = tokio::task::spawn_blocking(move || unremembered(&view.read())).await?;
        if !new.is_empty() {
            self.remember(&new).await?;
        }
        Ok(())
    }

    async fn remember(&self, new: &BTreeMap<String, String>) -> Result<(), LeaderError> {
        let name = object::MACHINES;
        let maps: Api<ConfigMap> = Api::namespaced(self.templates.client.clone(), &self.namespace);
        let mut map = maps.get(name).await.map_err(reading("ConfigMap", name))?;
        let entries = map.binary_data.get_or_insert_default();
        for (key, node) in new {
            let Some(machine) = self.look_at(node).await? else { continue };
            let packed = machine.encode();
            let packed =
                packed.map_err(|source| LeaderError::Machine { node: node.clone(), source })?;
            entries.insert(key.clone(), ByteString(packed));
            tracing::info!(node, key, "Machine remembered");
        }
        let written = maps.replace(name, &PostParams::default(), &map).await;
        written.map(drop).map_err(writing("ConfigMap", name))
    }

    /// A node's objects as they are; `None` where it has just gone.
    async fn look_at(&self, name: &str) -> Result<Option<Remembered>, LeaderError> {
        let client = &self.templates.client;
        let nodes: Api<Node> = Api::all(client.clone());
        let node = nodes.get_metadata_opt(name).await.map_err(reading("Node", name))?;
        let topologies: Api<NodeTopology> = Api::all(client.clone());
        let topology = topologies.get_opt(name).await.map_err(reading("NodeTopology", name))?;
        let of_node = ListParams::default().fields(&format!("spec.nodeName={name}"));
        let slices: Api<ResourceSlice> = Api::all(client.clone());
        let slices = slices.list(&of_node).await.map_err(reading("ResourceSlices of", name))?;
        let is_known = |slice: &ResourceSlice| {
            let driver = slice.spec.driver.as_str();
            driver == names::DRIVER || gpu_drivers::by_name(driver).is_some()
        };
        let slices = slices.items.into_iter().filter(is_known).collect();
        let (Some(node), Some(topology)) = (node, topology) else { return Ok(None) };
        let node = Node { metadata: node.metadata, ..Node::default() };
        Ok(Some(Remembered::new(node, slices, topology)))
    }
}
