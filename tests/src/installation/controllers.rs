//! The controllers of which one replica leads, as local processes: fabric-controller and preemptor.

use std::collections::BTreeMap;

use anyhow::Context;
use k8s_openapi::api::coordination::v1::Lease;
use kube::{
    Api,
    api::{Patch, PatchParams},
};
use serde_json::json;

use super::{Installation, NAMESPACE, webhook::SOON};
use crate::{Check, Process, eventually, metrics, ports};

const FABRIC: &str = "fabric-controller";
const PREEMPTOR: &str = "preemptor";

/// A running replica; it is killed when dropped.
#[derive(Debug)]
pub struct ControllerReplica {
    process: Process,
    operations: u16,
}

impl ControllerReplica {
    /// The process.
    pub fn process(&self) -> &Process {
        &self.process
    }

    /// The port of its health and metrics on the loopback interface.
    pub fn operations(&self) -> u16 {
        self.operations
    }

    /// Its current metrics, by name and labels, from `/metrics`.
    pub async fn metrics(&self) -> anyhow::Result<BTreeMap<String, f64>> {
        metrics::samples(self.operations).await
    }
}

impl Installation<'_> {
    /// Starts replicas of the fabric controller. Replicas of the previous test were killed and have
    /// left their lease, which is released first.
    pub async fn start_fabric_controllers(
        &mut self,
        count: usize,
        args: &[&str],
    ) -> anyhow::Result<()> {
        self.fabric_controllers.clear();
        self.free_lease(FABRIC).await?;
        for index in 0..count {
            self.start_fabric_controller(index, args).await?;
        }
        Ok(())
    }

    /// Starts one more replica.
    pub async fn start_fabric_controller(
        &mut self,
        index: usize,
        args: &[&str],
    ) -> anyhow::Result<()> {
        let replica = self.start_controller(FABRIC, index, args).await?;
        self.fabric_controllers.push(replica);
        Ok(())
    }

    /// Kills a replica with SIGKILL.
    pub fn kill_fabric_controller(&mut self, index: usize) {
        self.fabric_controllers.remove(index);
    }

    /// The running replicas.
    pub fn fabric_controllers(&self) -> &[ControllerReplica] {
        &self.fabric_controllers
    }

    /// The index of the leading replica, as soon as one leads.
    pub async fn leading_fabric_controller(&self) -> anyhow::Result<usize> {
        self.index_of_leader(FABRIC, self.fabric_controllers.iter().map(ControllerReplica::process))
            .await
    }

    /// Applies the objects of preemptor and starts replicas of it; with none, only kills those that run.
    pub async fn start_preemptors(&mut self, count: usize, args: &[&str]) -> anyhow::Result<()> {
        self.preemptors.clear();
        for file in ["preemptor-rbac.yaml", "preemptor-policy.yaml"] {
            self.apply(&format!("components/preemption/{file}")).await?;
        }
        self.free_lease(PREEMPTOR).await?;
        for index in 0..count {
            self.start_preemptor(index, args).await?;
        }
        Ok(())
    }

    /// Starts one more replica.
    pub async fn start_preemptor(&mut self, index: usize, args: &[&str]) -> anyhow::Result<()> {
        let replica = self.start_controller(PREEMPTOR, index, args).await?;
        self.preemptors.push(replica);
        Ok(())
    }

    /// Kills a replica with SIGKILL.
    pub fn kill_preemptor(&mut self, index: usize) {
        self.preemptors.remove(index);
    }

    /// The running replicas.
    pub fn preemptors(&self) -> &[ControllerReplica] {
        &self.preemptors
    }

    /// The index of the leading replica, as soon as one leads.
    pub async fn leading_preemptor(&self) -> anyhow::Result<usize> {
        self.index_of_leader(PREEMPTOR, self.preemptors.iter().map(ControllerReplica::process))
            .await
    }

    async fn free_lease(&self, program: &str) -> anyhow::Result<()> {
        let free = Patch::Merge(json!({"spec": {"holderIdentity": null}}));
        self.leases().patch(program, &PatchParams::default(), &free).await.context("the lease")?;
        Ok(())
    }

    async fn start_controller(
        &self,
        program: &str,
        index: usize,
        args: &[&str],
    ) -> anyhow::Result<ControllerReplica> {
        let operations = ports::free()?;
        let mut all: Vec<_> = self.lease_flag().into_iter().collect();
        all.extend(args.iter().map(|arg| (*arg).to_owned()));
        let process = self.spawn(program, &format!("{program}-{index}"), operations, &all).await?;
        Ok(ControllerReplica { process, operations })
    }

    /// The index of the replica that leads, as soon as one of these leads.
    pub(super) async fn index_of_leader(
        &self,
        program: &str,
        replicas: impl IntoIterator<Item = &Process>,
    ) -> anyhow::Result<usize> {
        let pids: Vec<String> =
            replicas.into_iter().map(|process| process.pid().to_string()).collect();
        eventually(SOON, async || {
            let spec = self.leases().get(program).await?.spec.unwrap_or_default();
            let identity = spec.holder_identity.unwrap_or_default();
            let leader = identity.rsplit('_').next().unwrap_or_default();
            let found = pids.iter().position(|pid| pid == leader);
            Ok(found.map_or_else(|| Check::NotYet(format!("`{identity}` leads")), Check::Done))
        })
        .await
    }

    fn leases(&self) -> Api<Lease> {
        Api::namespaced(self.plane.client(), NAMESPACE)
    }
}
