//! Two NICs whose character devices are exchanged, as after a reset.

use super::*;
use serde_json::json;
use std::os::unix::fs::symlink;
use tempfile::TempDir;

const NICS: [&str; 2] = ["0000:17:00.0", "0000:65:00.0"];

/// The NIC's RDMA device has this name, and its character devices this number. Links to devices
/// that every machine has replace them, because creating devices needs privileges.
fn plant(root: &TempDir, nic: usize, name: &str, number: usize) {
    let sys = root.path().join("sys");
    let place = sys.join("devices/pci0000:00").join(NICS[nic]);
    let link = |from: &Path, to: &Path| {
        fs::create_dir_all(to.parent().unwrap()).unwrap();
        symlink(from, to).unwrap();
    };
    for (class, kind) in [(VERBS, "uverbs"), (MANAGEMENT, "umad")] {
        let char = format!("{kind}{number}");
        let folder = place.join(class).join(&char);
        fs::create_dir_all(&folder).unwrap();
        fs::write(folder.join("ibdev"), format!("{name}\n")).unwrap();
        link(&folder, &sys.join("class").join(class).join(&char));
        let target = ["/dev/null", "/dev/zero"][number];
        link(Path::new(target), &root.path().join("dev/infiniband").join(&char));
    }
    let bus = sys.join("bus/pci/devices").join(NICS[nic]);
    if !bus.is_symlink() {
        link(&place, &bus);
    }
}

fn reset(root: &TempDir) {
    for folder in ["sys/class", "dev/infiniband"] {
        fs::remove_dir_all(root.path().join(folder)).unwrap();
    }
    for nic in NICS {
        let place = root.path().join("sys/devices/pci0000:00").join(nic);
        fs::remove_dir_all(place.join(VERBS)).unwrap();
        fs::remove_dir_all(place.join(MANAGEMENT)).unwrap();
    }
}

/// The minor number of the link's target.
fn minor(number: usize) -> u32 {
    [3, 5][number]
}

fn plan(nic: usize, name: &str, number: usize) -> Plan {
    let chars = json!([{"name": format!("uverbs{number}"), "major": 1, "minor": minor(number)}]);
    serde_json::from_value(json!({
        "claim": {"namespace": "team", "name": "a", "uid": "u"}, "pods": [], "others": [],
        "rdmaCm": null,
        "devices": [{
            "request": "nics", "pool": "n", "device": "nic", "pciBusId": NICS[nic], "link": null,
            "rdma": {"name": name, "ports": [1], "chars": chars},
        }],
        "wiring": {"gpus": [{
            "request": "gpus", "driver": "gpu.nvidia.com", "device": "gpu-0",
            "nics": [{"device": "nic", "rdmaDevice": name, "path": "PIX"}],
        }]},
    }))
    .unwrap()
}

fn devices(root: &TempDir) -> RdmaDevices {
    RdmaDevices::new(root.path().join("sys"), &root.path().join("dev"))
}

#[test]
fn a_device_is_found_by_its_address() {
    let root = tempfile::tempdir().unwrap();
    plant(&root, 0, "mlx5_0", 0);
    plant(&root, 1, "mlx5_1", 1);
    let planned = plan(0, "mlx5_0", 0);
    assert_eq!(devices(&root).compare(&planned), Currency::Current);

    reset(&root);
    plant(&root, 0, "mlx5_1", 1);
    plant(&root, 1, "mlx5_0", 0);
    let Currency::Changed(now, changes) = devices(&root).compare(&planned) else {
        panic!("the other NIC has its numbers now");
    };
    assert_eq!(*now, plan(0, "mlx5_1", 1));
    let told = "device `nic` was `mlx5_0` with uverbs0 (1:3), and is `mlx5_1` with uverbs1 (1:5)";
    assert_eq!(changes, [told]);
    assert_eq!(devices(&root).compare(&now), Currency::Current);

    reset(&root);
    plant(&root, 1, "mlx5_0", 0);
    assert_eq!(devices(&root).compare(&planned), Currency::Lost(vec!["nic".to_owned()]));
}

/// It is below the same function, and has a device of its own.
#[test]
fn a_function_and_its_scalable_function_are_told_apart() {
    let root = tempfile::tempdir().unwrap();
    let place = root.path().join("sys/devices/pci0000:00").join(NICS[0]);
    let folder = place.join("mlx5_core.sf.4/infiniband_verbs/uverbs1");
    fs::create_dir_all(&folder).unwrap();
    fs::write(folder.join("ibdev"), "mlx5_2\n").unwrap();
    plant(&root, 0, "mlx5_0", 0);
    symlink(&folder, root.path().join("sys/class/infiniband_verbs/uverbs1")).unwrap();
    symlink("/dev/zero", root.path().join("dev/infiniband/uverbs1")).unwrap();
    let scalable = |name: &str, number: usize| {
        let mut plan = plan(0, name, number);
        plan.devices[0].rdma.as_mut().unwrap().part = Some("mlx5_core.sf.4".to_owned());
        plan
    };
    assert_eq!(devices(&root).compare(&scalable("mlx5_2", 1)), Currency::Current);
    let renamed = devices(&root).compare(&scalable("mlx5_0", 0));
    assert!(matches!(renamed, Currency::Changed(now, _) if *now == scalable("mlx5_2", 1)));
    assert_eq!(devices(&root).compare(&plan(0, "mlx5_0", 0)), Currency::Current);
    // The function itself is reset.
    fs::remove_dir_all(place.join(VERBS)).unwrap();
    let lost = devices(&root).compare(&plan(0, "mlx5_0", 0));
    assert_eq!(lost, Currency::Lost(vec!["nic".to_owned()]));
}

/// As of the kernel's `rdma_rxe`, which has no parent.
#[test]
fn a_soft_device_is_found_by_its_name() {
    let root = tempfile::tempdir().unwrap();
    plant(&root, 1, "mlx5_1", 1);
    let folder = root.path().join("sys/devices/virtual/infiniband_verbs/uverbs0");
    fs::create_dir_all(&folder).unwrap();
    fs::write(folder.join("ibdev"), "rxe0\n").unwrap();
    symlink(&folder, root.path().join("sys/class/infiniband_verbs/uverbs0")).unwrap();
    symlink("/dev/null", root.path().join("dev/infiniband/uverbs0")).unwrap();
    assert_eq!(devices(&root).compare(&plan(0, "rxe0", 0)), Currency::Current);
    let other = devices(&root).compare(&plan(0, "rxe1", 0));
    assert_eq!(other, Currency::Lost(vec!["nic".to_owned()]));
}

#[test]
fn a_machine_without_pci_devices_says_nothing() {
    let root = tempfile::tempdir().unwrap();
    assert_eq!(devices(&root).compare(&plan(0, "mlx5_0", 0)), Currency::Current);
}
