//! What the container runtime does: sandboxes, hooks and containers.

use super::claims::uid;
use super::mistakes::{Mistake, record_last};
use super::node::{DEVICE, Node};
use super::world::{Deaths, World};
use crate::kernel::attach::played::Place;
use crate::model::plan::Plan;
use crate::prepare::cdi;
use crate::prepare::sandboxes::Sandbox;
use crate::runtime::hook::{AttachArgs, Container, attach};
use clap::Parser;
use serde_json::Value;
use std::fs;
use std::path::Path;

impl World {
    /// A pod's sandbox as the runtime tells of it.
    pub(super) fn sandbox(&self, node: &Node, pod: usize) -> Option<Sandbox> {
        let number = self.pods[pod].sandbox?;
        Some(Sandbox {
            id: format!("s-{number}"),
            pod_uid: format!("p-{pod}"),
            pod: format!("team/pod-{pod}"),
            network: Some(node.name(number)),
            is_running: true,
        })
    }

    /// Without an answer of the driver a sandbox runs; if the driver refuses it, it does not.
    pub(super) fn run_sandbox(&mut self, node: &mut Node, pod: usize, deaths: Deaths<'_>) {
        let number = pod * self.left.sandboxes + self.pods[pod].made;
        self.pods[pod].made += 1;
        self.pods[pod].sandbox = Some(number);
        self.state.named.insert(number);
        if !node.is_nri() || !self.runs() {
            return;
        }
        let sandbox = self.sandbox(node, pod).unwrap();
        if self.work(node, deaths, &|driver| driver.run_sandbox(&sandbox)).is_err() {
            self.remove_sandbox(pod);
        }
    }

    fn remove_sandbox(&mut self, pod: usize) {
        self.set_container(pod, false);
        let number = self.pods[pod].sandbox.take();
        if let Some(number) = number {
            self.state.named.remove(&number);
        }
    }

    /// The runtime tells of the end before and after the namespace loses its name.
    pub(super) fn stop_sandbox(&mut self, node: &mut Node, pod: usize, mut deaths: Deaths<'_>) {
        self.set_container(pod, false);
        let sandbox = self.sandbox(node, pod).unwrap();
        let tells = node.is_nri() && self.runs();
        if tells {
            // What does not come back now is looked for again.
            drop(self.work(node, deaths.as_deref_mut(), &|driver| driver.stop_sandbox(&sandbox)));
            let worlds = deaths.iter_mut().flat_map(|deaths| deaths.iter_mut());
            worlds.for_each(|(_, world)| world.remove_sandbox(pod));
        }
        self.remove_sandbox(pod);
        if tells {
            drop(self.work(node, deaths, &|driver| driver.stop_sandbox(&sandbox)));
        }
    }

    pub(super) fn start_container_by_nri(
        &mut self,
        node: &mut Node,
        pod: usize,
        mut deaths: Deaths<'_>,
    ) {
        let uid = uid(self.pods[pod].claim);
        let (sandbox, ids) = (self.sandbox(node, pod).unwrap(), cdi_ids(node, &uid));
        let mut unmounted = Vec::new();
        if self.runs() {
            let created = self.work(node, deaths.as_deref_mut(), &|driver| {
                driver.create_container(&sandbox, &ids)
            });
            match created {
                Ok(inside) => unmounted = inside.shareable,
                Err(_) => return,
            }
        }
        self.start_with(node, pod, &unmounted);
        // A driver that dies gives no answer.
        let worlds = deaths.into_iter().flat_map(|deaths| deaths.iter_mut());
        worlds.for_each(|(_, world)| world.start_with(node, pod, &[]));
    }

    pub(super) fn start_container_by_hook(
        &mut self,
        node: &mut Node,
        pod: usize,
        deaths: Deaths<'_>,
    ) {
        let before = self.clone();
        self.run_hook(node, pod, [None; 2]);
        let Some(deaths) = deaths else { return };
        for (process, who) in ["hook", "driver"].into_iter().enumerate() {
            for steps in 0.. {
                let (mut world, mut limits) = (before.clone(), [None; 2]);
                limits[process] = Some(steps);
                if !world.run_hook(node, pod, limits)[process] {
                    break;
                }
                deaths.push((format!("the {who} dies after {steps} steps"), world));
            }
        }
    }

    /// The runtime runs the hook of the spec, and then the container. Returns which have died: the hook, and
    /// the driver.
    fn run_hook(&mut self, node: &mut Node, pod: usize, limits: [Option<usize>; 2]) -> [bool; 2] {
        node.set(&self.state);
        let uid = uid(self.pods[pod].claim);
        let Some(spec) = read_json(&node.paths().cdi_spec(&uid)) else { return [false; 2] };
        let args = spec["containerEdits"]["hooks"][0]["args"].as_array().unwrap();
        let args = AttachArgs::parse_from(args.iter().skip(1).map(|arg| arg.as_str().unwrap()));
        let network = node.name(self.pods[pod].sandbox.unwrap());
        let container = Container { pid: 0, network };
        let (mistake, ran) = (self.mistake, self.runs());
        let done = node.hook(&mut self.state, limits, |network, faults| {
            let attached = match mistake {
                Some(Mistake::RecordsLast) => record_last(&args, &container, network),
                _ => attach(&args, &container, network, faults),
            };
            attached.is_ok()
        });
        if done == Some(true) {
            self.start_with(node, pod, &[]);
        }
        [done.is_none(), ran && !self.runs()]
    }

    /// The runtime starts a container, if all is there that the spec names, but for what the driver has removed:
    /// the mounts of these claims.
    fn start_with(&mut self, node: &mut Node, pod: usize, unmounted: &[String]) {
        node.set(&self.state);
        let uid = uid(self.pods[pod].claim);
        let Some(spec) = read_json(&node.paths().cdi_spec(&uid)) else { return };
        let mounts = spec["containerEdits"]["mounts"].as_array().into_iter().flatten();
        let mounts = mounts.filter(|mount| {
            !unmounted.iter().any(|uid| mount["containerPath"] == cdi::network(uid))
        });
        let mut paths = mounts.filter_map(|mount| mount["hostPath"].as_str());
        if paths.all(|path| Path::new(path).exists()) {
            self.set_container(pod, true);
            self.check_container(node, pod);
        }
    }

    /// A container that starts has the adapter as its claim says.
    fn check_container(&mut self, node: &Node, pod: usize) {
        let uid = uid(self.pods[pod].claim);
        let plan = read_json(&node.paths().plan(&uid));
        let plan: Option<Plan> = plan.and_then(|plan| serde_json::from_value(plan).ok());
        let is_right = plan.as_ref().and_then(|plan| plan.links().next()).is_some_and(|link| {
            let asked = &link.config.interface;
            let adapter = self.adapter();
            Some(adapter.place) == self.pods[pod].sandbox.map(Place::Pod)
                && adapter.name == link.name.to_string()
                && adapter.addresses == asked.addresses
                && asked.mtu.is_none_or(|mtu| mtu == adapter.mtu)
                && adapter.is_up
        });
        if !is_right {
            self.fault("a container starts without its adapter");
        }
    }
}

/// The CDI devices that the kubelet passes for a claim.
fn cdi_ids(node: &Node, uid: &str) -> Vec<String> {
    vec![format!("{}/claim={uid}-{DEVICE}", node.paths().driver)]
}

fn read_json(path: &Path) -> Option<Value> {
    serde_json::from_slice(&fs::read(path).ok()?).ok()
}
