//! The nodes that a plan is made for: first the present ones alone. What they get is then the same
//! whatever machines are remembered.

use crate::trials::Trials;
use cluster_model::machines::{Machine, is_in};
use cluster_model::placement::Placement;
use cluster_model::view::ClusterView;
use dra_allocator::node::NodeTarget;
use dra_allocator::slice::SliceTarget;
use dra_allocator::{Class, Device, Slice};
use std::cell::Cell;
use std::collections::BTreeSet;

/// The nodes that a pod can run on, with or without machines that are only remembered.
#[derive(Debug)]
pub(crate) struct Among<'a> {
    pub(crate) view: &'a ClusterView,
    /// What claims got on machines before.
    pub(super) trials: &'a Trials,
    placement: &'a Placement,
    is_present_only: bool,
    /// Whether something of a remembered machine was left out.
    has_left_out: Cell<bool>,
}

impl<'a> Among<'a> {
    /// The nodes that exist now.
    pub(super) fn present(
        view: &'a ClusterView,
        placement: &'a Placement,
        trials: &'a Trials,
    ) -> Self {
        Self { view, trials, placement, is_present_only: true, has_left_out: Cell::new(false) }
    }

    /// All nodes, and the remembered machines.
    pub(super) fn all(view: &'a ClusterView, placement: &'a Placement, trials: &'a Trials) -> Self {
        Self { is_present_only: false, ..Self::present(view, placement, trials) }
    }

    /// The selectors of the pod.
    pub(super) fn placement(&self) -> &'a Placement {
        self.placement
    }

    /// Whether the pod can run on a node.
    pub(crate) fn allows(&self, node: &str) -> bool {
        self.placement.allows(self.view, node)
    }

    /// Returns true if something of a remembered machine was left out so far, so that a plan with
    /// them can differ.
    pub(super) fn has_left_out(&self) -> bool {
        self.has_left_out.get()
    }

    /// Divides machines into those to plan for and the remembered ones, which come last.
    pub(super) fn split<'m>(
        &self,
        mut machines: Vec<Machine<'m>>,
    ) -> (Vec<Machine<'m>>, Vec<Machine<'m>>) {
        if !self.is_present_only {
            return (machines, Vec::new());
        }
        let present = machines.iter().take_while(|machine| machine.live_nodes() > 0).count();
        let remembered = machines.split_off(present);
        if !remembered.is_empty() {
            self.has_left_out.set(true);
        }
        (machines, remembered)
    }

    /// The slices of a driver.
    pub(super) fn slices(&self, driver: &str) -> impl Iterator<Item = &'a Slice> {
        self.all_slices().filter(move |slice| *slice.pool.driver == *driver)
    }

    /// Whether the class selects a device of the driver that is published there.
    pub(super) fn selects(&self, class: &Class, driver: &str) -> bool {
        self.of_class(class, driver).next().is_some()
    }

    /// The published devices of the driver that the class selects.
    pub(super) fn of_class(&self, class: &Class, driver: &str) -> impl Iterator<Item = &'a Device> {
        let devices = self.slices(driver).flat_map(|slice| &slice.devices);
        devices.filter(|device| is_in(class, device, self.view.settings()))
    }

    /// The names of the drivers that publish there.
    pub(super) fn drivers(&self) -> BTreeSet<&'a str> {
        self.all_slices().map(|slice| &*slice.pool.driver).collect()
    }

    fn all_slices(&self) -> impl Iterator<Item = &'a Slice> {
        self.view.inventory().slices().filter(|slice| {
            let is_remembered = match &slice.target {
                SliceTarget::Nodes(NodeTarget::Node(node)) => self.view.is_remembered(node),
                SliceTarget::Nodes(_) | SliceTarget::PerDevice | SliceTarget::Unknown => false,
            };
            if is_remembered && self.is_present_only {
                self.has_left_out.set(true);
            }
            !(is_remembered && self.is_present_only)
        })
    }
}
