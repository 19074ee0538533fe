//! The attributes of whole machines, against what was published on live ones.

use super::*;
use crate::attribute::{MAX_ENTRIES, Text};
use crate::decision::{Facts, decide};
use cluster_model::names::attribute;
use k8s_openapi::api::resource::v1::ResourceSlice;
use std::fmt::Write;
use topology_graph::{HostRoot, fixture};

/// The live slice of an AKS GB300 node, as upstream DRANET published it.
const LIVE: &str = include_str!("../../fixtures/aks-gb300/resourceslice-dranet.yaml");

/// The longest text that a metadata service may give.
fn longest() -> Text {
    Text::new(&"x".repeat(100)).unwrap()
}

fn gb300(cloud: CloudMetadata) -> Vec<Device> {
    let folder = tempfile::tempdir().unwrap();
    fixture::plant(fixture::machine("azure-gb300").unwrap(), folder.path()).unwrap();
    let snapshot = topology_graph::read(&HostRoot::at(folder.path())).unwrap();
    decide(&Facts { snapshot, cloud }).devices
}

fn azure() -> CloudMetadata {
    [
        (attribute::AZURE_PLACEMENT_GROUP, "c6c749e8-a38b-470e-8c94-2a7d00001bf0"),
        (attribute::AZURE_VM_SIZE, "Standard_ND128isr_GB300_v6"),
    ]
    .into_iter()
    .map(|(name, value)| (name.to_owned(), Text::new(value).unwrap()))
    .collect()
}

/// One line an attribute, in the API's own words. The shape's hash has its own
/// test: it changes with what the graph knows.
fn render(devices: &[Device]) -> String {
    let mut text = String::new();
    for device in devices {
        writeln!(text, "{}", device.name).unwrap();
        for (name, value) in device.attributes.iter().flatten() {
            let value = match name.as_str() {
                attribute::SHAPE => "(hash of the graph)".to_owned(),
                _ => serde_json::to_string(value).unwrap(),
            };
            writeln!(text, "  {name} = {value}").unwrap();
        }
    }
    text
}

#[test]
fn gb300_holds_all_that_upstream_published_there() {
    let live: ResourceSlice = serde_saphyr::from_str(LIVE).unwrap();
    let live = live.spec.devices.unwrap();
    let ours = gb300(azure());
    let names =
        |devices: &[Device]| devices.iter().map(|device| device.name.clone()).collect::<Vec<_>>();
    assert_eq!(names(&ours), names(&live));
    let mut compared = 0;
    for (ours, live) in ours.iter().zip(&live) {
        let attributes = ours.attributes.as_ref().unwrap();
        for (name, value) in live.attributes.iter().flatten() {
            assert_eq!(attributes.get(name), Some(value), "{name} of {}", live.name);
            compared += 1;
        }
    }
    assert_eq!(compared, 36, "nine attributes on each of four devices");
}

#[test]
fn gb300_as_published() {
    let devices = gb300(azure());
    insta::assert_snapshot!(render(&devices));
}

#[test]
fn without_the_cloud_its_attributes_are_absent() {
    let (with, without) = (gb300(azure()), gb300(CloudMetadata::default()));
    for (with, without) in with.iter().zip(&without) {
        let is_azure = |name: &&String| name.starts_with("azure.dra.net/");
        assert_eq!(with.attributes.iter().flatten().filter(|(name, _)| is_azure(name)).count(), 2);
        assert_eq!(
            without.attributes.iter().flatten().filter(|(name, _)| is_azure(name)).count(),
            0
        );
        let differ = |name: &&String| !is_azure(name) && *name != attribute::SHAPE;
        let rest = |device: &Device| {
            let attributes = device.attributes.clone().unwrap();
            attributes.into_iter().filter(|(name, _)| differ(&name)).collect::<Vec<_>>()
        };
        assert_eq!(rest(with), rest(without));
    }
}

#[test]
fn every_table_leaves_room_for_clouds_and_joins() {
    let joins: usize = gpu_drivers::GPU_DRIVERS
        .iter()
        .map(|driver| 1 + [driver.uuid_attribute, driver.numa_attribute].iter().flatten().count())
        .sum();
    let most = infiniband::SLOTS.len() + crate::cloud::MAX_ATTRIBUTES + joins;
    assert!(most <= MAX_ENTRIES, "{most} entries");
    let mut names: Vec<_> = infiniband::SLOTS.iter().map(|slot| slot.name).collect();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), infiniband::SLOTS.len(), "each attribute has one slot");
}

#[test]
fn devices_keep_the_limits_of_the_api() {
    let cloud = (0..crate::cloud::MAX_ATTRIBUTES)
        .map(|number| (format!("azure.dra.net/attribute{number}"), longest()))
        .collect();
    for device in gb300(cloud) {
        let attributes = device.attributes.unwrap();
        assert!(attributes.len() <= MAX_ENTRIES);
        for (name, value) in attributes {
            assert!(
                value.string.as_ref().is_none_or(|text| (1..=64).contains(&text.len())),
                "{name}"
            );
            assert!(value.int.is_none_or(|int| int >= 0), "{name}");
        }
    }
}
