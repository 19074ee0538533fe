//! The pods of the campaign, which come and go; each has a separate NIC. Also checks that the node
//! has what is wanted, once, and nothing else.

use std::{collections::BTreeMap, fs, path::Path};

use anyhow::Context;
use k8s_openapi::api::{core::v1::Pod, resource::v1::ResourceClaim};
use kube::Api;
use serde_json::{Value, json};
use tests::{
    Scope, SeededRng,
    node::{
        Machine, Nic, device_name,
        links::{self, shell},
        pods,
    },
};

use crate::node::user;

/// The place of a pod on the node.
#[derive(Debug)]
pub(super) struct Place {
    /// The pod's name, and its claim's.
    name: &'static str,
    /// Its NIC's PCI address.
    address: &'static str,
    /// Its interface, if it has one.
    link: Option<&'static str>,
    /// A text that identifies its device in the pod, and only there.
    sign: &'static str,
}

const PLACES: [Place; 3] = [
    Place {
        name: "configured",
        address: "0201:00:00.0",
        link: Some("rail0"),
        sign: "192.168.7.5/24",
    },
    Place { name: "as-it-is", address: "0202:00:00.0", link: Some("rail1"), sign: "10.7.1.1/24" },
    Place { name: "rdma", address: "0101:00:00.0", link: None, sign: "uverbs0" },
];

/// Those with an interface.
pub(super) const NICS: [Nic; 2] = [
    Nic { address: "0201:00:00.0", link: "rail0" },
    Nic { address: "0202:00:00.0", link: "rail1" },
];

impl Place {
    async fn create(&self, scope: &Scope, node: &str) -> anyhow::Result<String> {
        let Self { name, address, .. } = *self;
        let parameters = (name == "configured").then(user::parameters);
        pods::allocated_claim(scope, name, node, &device_name(address), parameters).await?;
        let mut pod = pods::pod(name, node, json!({"resourceClaimName": name}))?;
        // The kubelet ends it, not the API server, so that a kubelet that was down sees it.
        pod.spec.as_mut().context("a specification")?.termination_grace_period_seconds = Some(1);
        pods::create_bound(scope, pod, node).await?;
        let claims: Api<ResourceClaim> = scope.api();
        claims.get(name).await?.metadata.uid.context("a claim has a UID")
    }

    /// Returns true if a process sees this pod's device.
    fn is_seen_by(&self, process: i32) -> bool {
        if self.link.is_some() {
            let look = format!("nsenter --net=/proc/{process}/ns/net ip -o addr");
            return shell(&look).is_ok_and(|addresses| addresses.contains(self.sign));
        }
        let root = Path::new("/proc").join(process.to_string()).join("root");
        let devices = fs::read_dir(root.join("dev/infiniband"));
        devices.into_iter().flatten().flatten().any(|device| device.file_name() == self.sign)
    }

    /// The number of its processes that see its device; sandbox and container share the interfaces.
    fn processes(&self) -> usize {
        if self.link.is_some() { 2 } else { 1 }
    }
}

/// The wanted state of the node.
pub(super) struct Pods<'a> {
    scope: &'a Scope,
    /// The pods that must run, with their claims' UIDs.
    wanted: BTreeMap<&'static str, String>,
    /// The removed links.
    lost: Vec<Nic>,
}

impl<'a> Pods<'a> {
    pub(super) fn new(scope: &'a Scope) -> Self {
        Self { scope, wanted: BTreeMap::new(), lost: Vec::new() }
    }

    /// The pods that come and those that leave; at least one.
    pub(super) fn draw(&self, rng: &mut SeededRng) -> (Vec<&'static Place>, Vec<&'static Place>) {
        let sure = rng.index(PLACES.len());
        let mut all: Vec<&'static Place> = Vec::new();
        for (number, place) in PLACES.iter().enumerate() {
            if number == sure || rng.one_in(2) {
                all.push(place);
            }
        }
        all.into_iter().partition(|place| !self.wanted.contains_key(place.name))
    }

    pub(super) async fn change(
        &mut self,
        node: &str,
        coming: &[&'static Place],
        leaving: &[&'static Place],
    ) -> anyhow::Result<()> {
        for place in leaving {
            self.delete(place).await?;
        }
        for place in coming {
            let claims: Api<ResourceClaim> = self.scope.api();
            if claims.get_opt(place.name).await?.is_some() {
                pods::delete_claim(self.scope, place.name).await?;
            }
            self.wanted.insert(place.name, place.create(self.scope, node).await?);
        }
        Ok(())
    }

    pub(super) async fn delete_all(&mut self) -> anyhow::Result<()> {
        for place in &PLACES {
            self.delete(place).await?;
        }
        Ok(())
    }

    async fn delete(&mut self, place: &Place) -> anyhow::Result<()> {
        if self.wanted.remove(place.name).is_some() {
            pods::delete_soon(self.scope, place.name).await?;
        }
        Ok(())
    }

    /// Removes a NIC's interface, wherever it is.
    pub(super) fn lose(&mut self, nic: &Nic) -> anyhow::Result<()> {
        self.lost.push(nic.clone());
        links::remove(nic.link)
    }

    /// Replaces the removed interfaces, and deletes their pods, which cannot get them back.
    pub(super) async fn replace(&mut self) -> anyhow::Result<()> {
        let lost = std::mem::take(&mut self.lost);
        for place in &PLACES {
            if lost.iter().any(|nic| Some(nic.link) == place.link) {
                self.delete(place).await?;
            }
        }
        links::make(&lost).await
    }

    /// Replaces interfaces that ended with the namespace of a pod while the driver was down. The
    /// interface of a real device would return to the host.
    pub(super) async fn replace_ended(&self) -> anyhow::Result<()> {
        let is_there = |nic: &&Nic| shell(&format!("ip link show {}-peer", nic.link)).is_ok();
        for nic in NICS.iter().filter(|nic| !is_there(nic)) {
            links::make(std::slice::from_ref(nic)).await?;
        }
        Ok(())
    }

    /// The differences from the wanted state; empty if there are none.
    pub(super) async fn look(&self, machine: &Machine) -> anyhow::Result<String> {
        let mut status = self.look_at_files(&machine.driver_files()?);
        let tasks = machine.tasks()?;
        if tasks.len() != 2 * self.wanted.len() {
            let listed = machine.listed_tasks()?;
            status.push(format!("{} tasks for {} pods: {listed}", tasks.len(), self.wanted.len()));
        }
        for place in &PLACES {
            let (name, is_wanted) = (place.name, self.wanted.contains_key(place.name));
            let seen = tasks.iter().filter(|task| place.is_seen_by(**task)).count();
            if seen != if is_wanted { place.processes() } else { 0 } {
                status.push(format!("{seen} processes see what is `{name}`'s"));
            }
            let is_on_host = place.link.map(|link| shell(&format!("ip link show {link}")).is_ok());
            if is_on_host == Some(is_wanted) {
                status.push(format!("`{name}`'s link is on the host: {}", !is_wanted));
            }
            let pod = self.scope.api::<Pod>().get_opt(name).await?;
            if pod.as_ref().map(runs) != is_wanted.then_some(true) {
                let events = pods::events(self.scope, name).await?;
                let said = pod.and_then(|pod| pod.status);
                status.push(format!("`{name}` is wanted: {is_wanted}, {said:?}, {events:?}"));
            }
        }
        Ok(status.join("; "))
    }

    /// Checks that each wanted claim has all of its files, and no other claim has any.
    fn look_at_files(&self, files: &[String]) -> Vec<String> {
        let uids: Vec<&String> = self.wanted.values().collect();
        let is_known = |file: &&String| uids.iter().any(|uid| file.contains(uid.as_str()));
        let others = files.iter().filter(|file| !is_known(file));
        let mut status: Vec<_> = others.map(|file| format!("left: {file}")).collect();
        for (name, uid) in &self.wanted {
            for file in [format!("checkpoint: {uid}"), format!("dra.net-claim-{uid}.json")] {
                if !files.contains(&file) {
                    status.push(format!("`{name}` lacks {file}"));
                }
            }
        }
        status
    }
}

/// Returns true if its container runs.
fn runs(pod: &Pod) -> bool {
    let status = serde_json::to_value(&pod.status).unwrap_or(Value::Null);
    !status["containerStatuses"][0]["state"]["running"].is_null()
}
