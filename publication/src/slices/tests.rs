//! Applies plans to a list that represents the server; after that, a second plan must be
//! empty.

use super::*;
use k8s_openapi::api::resource::v1::DeviceTaint;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use proptest::prelude::*;
use std::collections::BTreeMap;

fn node() -> NodeIdentity {
    NodeIdentity { name: "gb300-0".to_owned(), uid: "5f0c".to_owned(), labels: BTreeMap::new() }
}

fn devices(count: usize) -> Vec<Device> {
    (0..count).map(|number| Device { name: format!("nic-{number}"), ..Device::default() }).collect()
}

/// Applies a plan to the server's list.
fn carry_out(server: &mut Vec<ResourceSlice>, plan: SlicePlan) {
    let SlicePlan { delete, update, create } = plan;
    let name = |slice: &ResourceSlice| slice.metadata.name.clone().unwrap();
    server.retain(|slice| !delete.contains(&name(slice)));
    for slice in update {
        let there = server.iter_mut().find(|there| name(there) == name(&slice)).unwrap();
        *there = slice;
    }
    for mut slice in create {
        let prefix = slice.metadata.generate_name.clone().unwrap();
        slice.metadata.name = Some(format!("{prefix}{:05}", server.len()));
        slice.spec.devices = slice.spec.devices.filter(|devices| !devices.is_empty());
        server.push(slice);
    }
}

/// One slice per line: index, generation and count, devices.
fn render(server: &[ResourceSlice]) -> Vec<String> {
    let mut lines: Vec<_> = server
        .iter()
        .map(|slice| {
            let pool = &slice.spec.pool;
            let devices = slice.spec.devices.as_ref().map_or(0, Vec::len);
            let name = slice.metadata.name.as_deref().unwrap_or_default();
            format!(
                "{}: generation {} count {} devices {devices}",
                &name[..5],
                pool.generation,
                pool.resource_slice_count
            )
        })
        .collect();
    lines.sort();
    lines
}

/// Publishes until the server has the devices; returns the number of writes.
fn publish(server: &mut Vec<ResourceSlice>, devices: &[Device]) -> usize {
    let first = plan(&node(), devices, server, &Memory::default());
    let writes = first.writes();
    carry_out(server, first);
    assert_eq!(
        plan(&node(), devices, server, &Memory::default()).writes(),
        0,
        "a second run has nothing to write"
    );
    writes
}

#[test]
fn the_first_slice() {
    let plan = plan(&node(), &devices(1), &[], &Memory::default());
    insta::assert_yaml_snapshot!(plan.create, @r#"
    - apiVersion: resource.k8s.io/v1
      kind: ResourceSlice
      metadata:
        generateName: 00000-dra.net-gb300-0-
        ownerReferences:
          - apiVersion: v1
            controller: true
            kind: Node
            name: gb300-0
            uid: 5f0c
      spec:
        devices:
          - name: nic-0
        driver: dra.net
        nodeName: gb300-0
        pool:
          generation: 1
          name: gb300-0
          resourceSliceCount: 1
    "#);
}

#[test]
fn a_pool_through_its_life() {
    let server = &mut Vec::new();
    assert_eq!(publish(server, &devices(0)), 1);
    assert_eq!(render(server), ["00000: generation 1 count 1 devices 0"]);
    assert_eq!(publish(server, &devices(64)), 1, "one changed slice is one write");
    assert_eq!(render(server), ["00000: generation 1 count 1 devices 64"]);
    assert_eq!(publish(server, &devices(65)), 2);
    assert_eq!(
        render(server),
        ["00000: generation 2 count 2 devices 64", "00001: generation 2 count 2 devices 1"]
    );
    assert_eq!(publish(server, &devices(66)), 1, "the first slice is unchanged");
    assert_eq!(publish(server, &devices(4)), 2);
    assert_eq!(render(server), ["00000: generation 2 count 1 devices 4"]);
}

#[test]
fn changes_of_slices_by_others_are_undone() {
    let mut server = Vec::new();
    publish(&mut server, &devices(4));
    let ours = server[0].clone();
    let edits: [fn(&mut ResourceSlice); 3] = [
        |slice| slice.spec.devices = Some(devices(5)),
        |slice| slice.metadata.owner_references = None,
        |slice| slice.spec.pool.resource_slice_count = 7,
    ];
    for edit in edits {
        edit(&mut server[0]);
        assert_eq!(publish(&mut server, &devices(4)), 1);
        assert_eq!(server[0], ours);
    }
}

#[test]
fn obsolete_slices_are_deleted() {
    let mut server = Vec::new();
    publish(&mut server, &devices(4));
    let ours = server.clone();
    let mut upstream = ours[0].clone();
    upstream.metadata.name = Some("gb300-0-dra.net-tkqk6".to_owned());
    let mut twin = ours[0].clone();
    twin.metadata.name = Some("00000-dra.net-gb300-0-zzzzz".to_owned());
    let mut other_pool = ours[0].clone();
    other_pool.metadata.name = Some("00000-dra.net-gb300-0-aaaaa".to_owned());
    other_pool.spec.pool.name = "other".to_owned();
    server.extend([upstream, twin, other_pool]);
    assert_eq!(publish(&mut server, &devices(4)), 3);
    assert_eq!(server, ours);
}

#[test]
fn a_deleted_pool_keeps_its_generation() {
    let memory = Memory { generation: 7, ..Memory::default() };
    let plan = plan(&node(), &devices(4), &[], &memory);
    assert_eq!(plan.create[0].spec.pool.generation, 8);
}

/// Devices, the first of which is tainted.
fn tainted() -> Vec<Device> {
    let mut devices = devices(2);
    let taint = DeviceTaint {
        key: "dranet.io/port-down".to_owned(),
        effect: "NoSchedule".to_owned(),
        ..DeviceTaint::default()
    };
    devices[0].taints = Some(vec![taint]);
    devices
}

#[test]
fn the_servers_time_of_a_taint_is_kept() {
    let mut server = Vec::new();
    publish(&mut server, &tainted());
    let taints = |slice: &mut ResourceSlice| {
        slice.spec.devices.as_mut().unwrap()[0].taints.as_mut().unwrap()[0].time_added.take()
    };
    let time: Time = serde_json::from_str("\"2026-01-02T03:04:05Z\"").unwrap();
    server[0].spec.devices.as_mut().unwrap()[0].taints.as_mut().unwrap()[0].time_added =
        Some(time.clone());
    assert_eq!(publish(&mut server, &tainted()), 0);
    let mut more = tainted();
    more[1].name = "nic-2".to_owned();
    assert_eq!(publish(&mut server, &more), 1);
    assert_eq!(taints(&mut server[0]), Some(time), "it stays through another change");
}

#[test]
fn fields_that_the_server_drops_are_not_sent_again() {
    let (mut server, mut memory) = (Vec::new(), Memory::default());
    let mut write = |devices: &[Device]| {
        let plan = plan(&node(), devices, &server, &memory);
        let writes = plan.writes();
        let sent: Vec<_> =
            plan.update.iter().chain(&plan.create).map(|slice| slice.spec.clone()).collect();
        carry_out(&mut server, plan);
        for device in server[0].spec.devices.iter_mut().flatten() {
            device.taints = None;
        }
        let dropped = sent.iter().any(|sent| memory.wrote(sent, &server[0].spec));
        (writes, dropped)
    };
    assert_eq!(write(&tainted()), (1, true));
    assert_eq!(write(&tainted()), (0, false), "the server would drop the taint again");
    assert_eq!(write(&devices(2)), (0, false), "the server has this already");
    assert_eq!(write(&devices(3)), (1, false));
    assert_eq!(write(&tainted()), (1, true));
}

proptest! {
    /// Whatever the server has, one plan is enough: after it, all slices have the same
    /// generation and count, and the generation never decreases.
    #[test]
    fn one_plan_is_enough(counts in prop::collection::vec(0usize..300, 1..8), lost in any::<prop::sample::Index>()) {
        let mut server = Vec::new();
        let mut generation = 0;
        for count in counts {
            publish(&mut server, &devices(count));
            let pools: Vec<_> = server.iter().map(|slice| slice.spec.pool.clone()).collect();
            prop_assert!(pools.iter().all(|pool| *pool == pools[0]));
            prop_assert_eq!(pools[0].resource_slice_count, i64::try_from(server.len()).unwrap());
            prop_assert!(pools[0].generation >= generation);
            generation = pools[0].generation;
            let published: usize =
                server.iter().map(|slice| slice.spec.devices.as_ref().map_or(0, Vec::len)).sum();
            prop_assert_eq!(published, count);
            if server.len() > 1 {
                server.remove(lost.index(server.len()));
            }
        }
    }
}
