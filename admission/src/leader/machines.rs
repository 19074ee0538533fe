//! Remembers machines: each machine shape of each node pool is stored when it is first
//! seen, so that no pod is denied because a node pool is scaled to zero. A node pool that
//! has not been seen for a long time is forgotten.

use super::{Leader, LeaderError, reading, writing};
use cluster_model::gpu_drivers;
use cluster_model::names::object;
use cluster_model::nic_drivers;
use cluster_model::remembered::Remembered;
use cluster_model::retention::{LAST_SEEN, LastSeen};
use cluster_model::unremembered::{Present, present};
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::{ConfigMap, Node};
use k8s_openapi::api::resource::v1::ResourceSlice;
use k8s_openapi::jiff::Timestamp;
use kube::Api;
use kube::api::{ListParams, PostParams};
use process::chain::Chain;
use std::collections::BTreeSet;
use std::error::Error;
use std::time::Duration;
use topology_graph::NodeTopology;

/// The minimum time between comparisons of present and remembered machines.
const PAUSE: Duration = Duration::from_secs(5);
/// The maximum time, if nothing changes: machines are forgotten as days pass.
const LOOK: Duration = Duration::from_hours(1);

impl Leader {
    pub(super) async fn remember_machines(&self) {
        let view = &self.templates.view;
        loop {
            let seen = view.read().revision();
            let next = match self.remember_once().await {
                Ok(()) => LOOK,
                Err(error) => {
                    let error = Chain(&*error);
                    tracing::warn!(%error, "Machines not remembered; trying again");
                    Duration::ZERO
                }
            };
            tokio::time::sleep(PAUSE).await;
            tokio::select! {
                () = view.changed_since(seen, |now| now.epoch) => {}
                () = tokio::time::sleep(next) => {}
            }
        }
    }

    /// Compares on a separate thread, because thousands of nodes take a while.
    pub(super) async fn remember_once(&self) -> Result<(), Box<dyn Error + Send + Sync>> {
        let view = self.templates.view.clone();
        let present = tokio::task::spawn_blocking(move || present(&view.read())).await?;
        let name = object::MACHINES;
        let maps: Api<ConfigMap> = Api::namespaced(self.templates.client.clone(), &self.namespace);
        let map = maps.get(name).await.map_err(reading("ConfigMap", name))?;
        let before = map.clone();
        let map = self.updated(map, &present, self.templates.view.now()).await?;
        if map != before {
            let written = maps.replace(name, &PostParams::default(), &map).await;
            written.map_err(writing("ConfigMap", name))?;
        }
        Ok(())
    }

    /// The ConfigMap with new machines added and expired ones removed.
    async fn updated(
        &self,
        mut map: ConfigMap,
        present: &Present,
        now: Timestamp,
    ) -> Result<ConfigMap, LeaderError> {
        let entries = map.binary_data.get_or_insert_default();
        for (key, node) in &present.unremembered {
            let Some(machine) = self.look_at(node).await? else { continue };
            let packed = machine.encode();
            let packed =
                packed.map_err(|source| LeaderError::Machine { node: node.clone(), source })?;
            entries.insert(key.clone(), ByteString(packed));
            tracing::info!(node, key, "Remembered a machine");
        }
        let keys: BTreeSet<String> = entries.keys().cloned().collect();
        let annotations = map.metadata.annotations.get_or_insert_default();
        let mut seen = LastSeen::parse(annotations.get(LAST_SEEN).map(String::as_str));
        for key in seen.update(&keys, &present.keys, self.retention, now) {
            entries.remove(&key);
            tracing::info!(key, "Machine type forgotten: not seen for a long time");
        }
        annotations.insert(LAST_SEEN.to_owned(), seen.to_annotation());
        Ok(map)
    }

    /// Reads a node's current objects; `None` if the node is gone.
    async fn look_at(&self, name: &str) -> Result<Option<Remembered>, LeaderError> {
        let client = &self.templates.client;
        let nodes: Api<Node> = Api::all(client.clone());
        let node = nodes.get_opt(name).await.map_err(reading("Node", name))?;
        let topologies: Api<NodeTopology> = Api::all(client.clone());
        let topology = topologies.get_opt(name).await.map_err(reading("NodeTopology", name))?;
        let of_node = ListParams::default().fields(&format!("spec.nodeName={name}"));
        let slices: Api<ResourceSlice> = Api::all(client.clone());
        let slices = slices.list(&of_node).await.map_err(reading("ResourceSlices of", name))?;
        let slices = slices
            .items
            .into_iter()
            .filter(|slice| {
                let driver = slice.spec.driver.as_str();
                nic_drivers::by_name(driver).is_some() || gpu_drivers::by_name(driver).is_some()
            })
            .collect();
        let (Some(node), Some(topology)) = (node, topology) else { return Ok(None) };
        Ok(Some(Remembered::new(node, slices, topology)))
    }
}
