//! What a node publishes that binds NICs late.

use super::*;
use crate::decision::decide;
use crate::live::facts;
use cluster_model::published_device::is_place;
use k8s_openapi::api::resource::v1::DeviceTaint;

fn names(devices: &[Device]) -> Vec<&str> {
    devices.iter().map(|device| device.name.as_str()).collect()
}

fn held(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
    pairs.iter().map(|(place, nic)| ((*place).to_owned(), (*nic).to_owned())).collect()
}

const FIRST: &str = "pci-0101-00-00-0";

#[test]
fn places_stand_for_the_compute_nics() {
    let before = decide(&facts("aks-gb300"));
    let named = names(&before.devices).join(" ");
    let (decision, nics) = before.clone().bound_late(&BTreeMap::new(), &BTreeSet::new());
    assert_eq!(nics.len(), 4, "{named}");
    assert_eq!(decision.devices.len(), before.devices.len(), "one place for each NIC");
    let places: Vec<_> = decision.devices.iter().filter(|it| is_place(&it.name)).collect();
    assert_eq!(
        places.iter().map(|it| &it.name).collect::<Vec<_>>(),
        ["late-0", "late-1", "late-2", "late-3"]
    );
    for place in places {
        let attributes = place.attributes.as_ref().unwrap();
        assert_eq!(attributes[attribute::LATE_BINDING].bool, Some(true));
        assert_eq!(attributes[dranet::RDMA].bool, Some(true));
        assert_eq!(attributes[attribute::ROLE].string.as_deref(), Some("compute"));
        assert!(
            attributes.contains_key(attribute::SHAPE)
                && attributes.contains_key(attribute::AZURE_VM_SIZE)
        );
        // Nothing by which a claim could want a certain NIC, or join it with a GPU.
        let of_one = |name: &&String| {
            [attribute::PCI_BUS_ID, attribute::PCIE_ROOT, attribute::NUMA_NODE, attribute::RAIL]
                .contains(&name.as_str())
                || name.starts_with("gpu.")
                || [dranet::NUMA_NODE, dranet::RDMA_DEVICE, dranet::PCI_ADDRESS]
                    .contains(&name.as_str())
        };
        assert_eq!(attributes.keys().find(of_one), None);
    }
    assert!(!names(&decision.devices).contains(&FIRST), "{named}");
}

#[test]
fn a_held_nic_keeps_its_place_and_a_broken_one_has_none() {
    let mut decision = decide(&facts("aks-gb300"));
    let taint = DeviceTaint {
        key: "dranet.io/port-down".to_owned(),
        effect: "NoExecute".to_owned(),
        ..DeviceTaint::default()
    };
    decision.devices[0].taints = Some(vec![taint.clone()]);
    let broken = decision.devices[0].name.clone();
    let (free, nics) = decision.clone().bound_late(&BTreeMap::new(), &BTreeSet::new());
    assert_eq!(names(&free.devices), ["late-0", "late-1", "late-2"]);
    assert_eq!(nics.iter().filter(|nic| nic.is_usable).count(), 3);
    assert!(free.devices.iter().all(|place| place.taints.is_none()));

    let taken = BTreeSet::from([broken.clone()]);
    let (used, _) = decision.clone().bound_late(&held(&[("late-2", &broken)]), &taken);
    assert_eq!(names(&used.devices), ["late-0", "late-1", "late-2", "late-3"]);
    let tainted: Vec<_> = used.devices.iter().filter(|it| it.taints.is_some()).collect();
    assert_eq!(names(&[tainted[0].clone()]), ["late-2"]);
    assert_eq!(tainted[0].taints, Some(vec![taint]), "its pod is evicted as from the NIC");
    assert_eq!(tainted.len(), 1);

    // Before the node was set to late binding, a claim named a NIC.
    let named = decision.devices[1].name.clone();
    let (left, _) = decision.bound_late(&BTreeMap::new(), &BTreeSet::from([named]));
    assert_eq!(names(&left.devices), ["late-0", "late-1"]);
}

#[test]
fn names_of_places() {
    assert!(is_place("late-0") && is_place("late-31"));
    assert!(!is_place("late-") && !is_place("late-x") && !is_place(FIRST) && !is_place("late"));
}
