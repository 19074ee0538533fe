//! The nodes by their devices.

use cluster_model::view::ClusterView;
use cluster_model::{gpu_drivers, names, nic_drivers};
use dra_allocator::{Device, PoolProblem};
use std::collections::{BTreeMap, BTreeSet};

/// A published device with its node.
pub(super) type DeviceOnNode<'a> = (&'a str, &'a Device);

/// The nodes by their devices.
#[derive(Default)]
pub(super) struct Census<'a> {
    /// Number of nodes.
    pub(super) nodes: usize,
    /// The devices that the scheduler can allocate, by driver.
    pub(super) published: BTreeMap<&'a str, Vec<DeviceOnNode<'a>>>,
    /// Nodes by driver and problem of their pools.
    pub(super) broken: BTreeMap<(&'a str, PoolProblem), BTreeSet<&'a str>>,
    /// Nodes with a known graph.
    pub(super) graphs: BTreeSet<&'a str>,
    /// Nodes without devices that can be allocated, and why.
    pub(super) without: Vec<(&'a str, String)>,
}

impl<'a> Census<'a> {
    pub(super) fn new(view: &'a ClusterView) -> Self {
        let mut census = Self::default();
        for node in view.present_nodes() {
            census.nodes += 1;
            if view.topology(node).is_some() {
                census.graphs.insert(node);
            }
            let devices = match view.inventory().devices_on(node, view.settings()) {
                Ok(devices) => devices,
                Err(error) => {
                    census.without.push((node, error.to_string()));
                    continue;
                }
            };
            for device in devices {
                census.published.entry(&device.id().driver).or_default().push((node, device));
            }
            let broken = view.inventory().broken_pools_on(node, view.settings());
            for (pool, problem) in broken.unwrap_or_default() {
                census.broken.entry((&pool.driver, problem)).or_default().insert(node);
            }
        }
        census
    }

    /// The nodes with a pool of a driver that the scheduler ignores.
    pub(super) fn with_broken(&self, driver: &str) -> BTreeSet<&'a str> {
        let of_driver = self.broken.iter().filter(|((of, _), _)| *of == driver);
        of_driver.flat_map(|(_, nodes)| nodes).copied().collect()
    }

    /// The devices of a driver.
    pub(super) fn of(&self, driver: &str) -> &[DeviceOnNode<'a>] {
        self.published.get(driver).map(Vec::as_slice).unwrap_or_default()
    }

    /// The nodes with devices of a driver.
    pub(super) fn with(&self, driver: &str) -> BTreeSet<&'a str> {
        self.of(driver).iter().map(|(node, _)| *node).collect()
    }

    /// The nodes with GPUs of a DRA driver.
    pub(super) fn with_gpus(&self) -> BTreeSet<&'a str> {
        gpu_drivers::all().iter().flat_map(|driver| self.with(driver.driver)).collect()
    }

    /// The classes of GPUs that a pod must choose from; none if there are GPUs of one driver only.
    pub(super) fn gpu_classes(&self) -> Vec<&'static str> {
        let drivers = gpu_drivers::all().iter().filter(|it| !self.of(it.driver).is_empty());
        let classes: Vec<_> = drivers.map(|driver| driver.class).collect();
        if classes.len() > 1 { classes } else { Vec::new() }
    }

    /// The nodes with NICs of a known driver.
    pub(super) fn with_nics(&self) -> BTreeSet<&'a str> {
        nic_drivers::all().iter().flat_map(|driver| self.with(driver.driver)).collect()
    }

    /// The known NIC drivers that have pools in this cluster; this project's if none does.
    pub(super) fn nic_drivers(&self) -> Vec<&'static str> {
        let mut there: Vec<_> = nic_drivers::all().iter().map(|it| it.driver).collect();
        there.retain(|it| self.published.contains_key(it) || !self.with_broken(it).is_empty());
        if there.is_empty() { vec![names::DRIVER] } else { there }
    }
}
