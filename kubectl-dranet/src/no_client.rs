//! What stands in for a live cluster where the program was built without the feature
//! `live`: it cannot be connected to, so there is never a value of it.

use cluster_model::view::ClusterView;
use fabric_controller::nodes::Nodes;
use fabric_controller::pods::Pods;
use k8s_openapi::api::core::v1::Pod;
use process::args::KubeArgs;
use serde_json::Value;

/// A cluster that is never there.
pub(crate) enum Cluster {}

impl Cluster {
    pub(crate) fn connect(_: &KubeArgs) -> anyhow::Result<Self> {
        anyhow::bail!(
            "this build reads files only: name a snapshot with --snapshot, or build with \
             `--features live` to read a live cluster"
        )
    }

    pub(crate) fn default_namespace(&self) -> String {
        match *self {}
    }

    pub(crate) fn view(&self) -> anyhow::Result<ClusterView> {
        match *self {}
    }

    pub(crate) fn add_quotas(&self, _: &mut ClusterView) -> anyhow::Result<()> {
        match *self {}
    }

    pub(crate) fn add_quotas_of(&self, _: &str, _: &mut ClusterView) -> anyhow::Result<()> {
        match *self {}
    }

    pub(crate) fn add_remembered_machines(
        &self,
        _: &str,
        _: &mut ClusterView,
    ) -> anyhow::Result<()> {
        match *self {}
    }

    pub(crate) fn pod(&self, _: Option<&str>, _: &str) -> anyhow::Result<Value> {
        match *self {}
    }

    pub(crate) fn pods(&self, _: Option<&str>) -> anyhow::Result<Vec<Pod>> {
        match *self {}
    }

    pub(crate) fn pods_and_nodes(&self) -> anyhow::Result<(Pods, Nodes)> {
        match *self {}
    }
}
