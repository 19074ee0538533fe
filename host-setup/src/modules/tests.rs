//! Uses shortened module trees as written by depmod on Debian, Ubuntu and RHEL.

use super::*;
use std::fs;
use tempfile::TempDir;

/// `modules.dep` of Debian 12 (uncompressed), Ubuntu 24.04 (zstd) and RHEL 9 (xz): the lines
/// that these tests need.
const DEBIAN: (&str, &str) = (
    "6.1.0-32-amd64",
    "kernel/drivers/infiniband/core/ib_core.ko: \n\
     kernel/drivers/infiniband/core/ib_uverbs.ko: kernel/drivers/infiniband/core/ib_core.ko\n\
     kernel/drivers/infiniband/core/ib_cm.ko: kernel/drivers/infiniband/core/ib_core.ko\n\
     kernel/drivers/infiniband/core/iw_cm.ko: kernel/drivers/infiniband/core/ib_core.ko\n\
     kernel/drivers/infiniband/core/rdma_cm.ko: kernel/drivers/infiniband/core/iw_cm.ko kernel/drivers/infiniband/core/ib_cm.ko kernel/drivers/infiniband/core/ib_core.ko\n\
     kernel/drivers/infiniband/core/rdma_ucm.ko: kernel/drivers/infiniband/core/ib_uverbs.ko kernel/drivers/infiniband/core/rdma_cm.ko kernel/drivers/infiniband/core/iw_cm.ko kernel/drivers/infiniband/core/ib_cm.ko kernel/drivers/infiniband/core/ib_core.ko kernel/fs/configfs/configfs.ko\n\
     kernel/fs/configfs/configfs.ko:\n",
);
const UBUNTU: (&str, &str) = (
    "6.8.0-45-generic",
    "kernel/drivers/infiniband/core/ib-core.ko.zst:\n\
     kernel/drivers/infiniband/core/ib_uverbs.ko.zst: kernel/drivers/infiniband/core/ib-core.ko.zst\n\
     updates/dkms/nvidia.ko.zst:\n\
     updates/dkms/nvidia-peermem.ko.zst: updates/dkms/nvidia.ko.zst kernel/drivers/infiniband/core/ib-core.ko.zst\n",
);
/// A module of another kernel, by an absolute path.
const RHEL: (&str, &str) = (
    "5.14.0-503.el9.x86_64",
    "/lib/modules/5.14.0-427.el9.x86_64/extra/mlx5_ib.ko.xz: kernel/drivers/infiniband/core/ib_uverbs.ko.xz\n\
     kernel/drivers/infiniband/core/ib_uverbs.ko.xz:\n",
);

fn plant((release, index): (&str, &str), loaded: &[&str], files: &[(&str, &str)]) -> TempDir {
    let root = tempfile::tempdir().unwrap();
    let write = |path: &str, text: &str| {
        let path = root.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    };
    write("proc/sys/kernel/osrelease", &format!("{release}\n"));
    let loaded = loaded.iter().map(|name| format!("{name} 16384 0 - Live 0x0\n"));
    write("proc/modules", &loaded.collect::<String>());
    if !index.is_empty() {
        write(&format!("lib/modules/{release}/modules.dep"), index);
    }
    for (path, text) in files {
        write(&path.replace("RELEASE", release), text);
    }
    root
}

/// The loaded files in order, with their options, then the report.
fn run_on(root: &TempDir, load: &[&str], error: Option<Errno>) -> Vec<String> {
    let args = ModulesArgs {
        root: root.path().to_owned(),
        load: load.iter().map(|it| name(it).unwrap()).collect(),
        peer_memory: false,
        run_dir: root.path().to_owned(),
    };
    told(&args, error)
}

fn told(args: &ModulesArgs, error: Option<Errno>) -> Vec<String> {
    let (mut said, list) = (Vec::new(), args.root.join("proc/modules"));
    let report = work(args, &mut |file| {
        let options = if file.options.is_empty() { "" } else { " " };
        said.push(format!("< {}{options}{}", file.path, file.options));
        if let Some(error) = error {
            return Err(error.into());
        }
        // The kernel lists the module from now on.
        let before = fs::read_to_string(&list)?;
        fs::write(&list, format!("{before}{} 1 0 - Live 0x0\n", file.name))
    });
    said.extend(report.unwrap().modules.iter().map(ToString::to_string));
    said
}

#[test]
fn dependencies_are_loaded_first_and_once() {
    let root = plant(DEBIAN, &["ib_core"], &[]);
    let said = run_on(&root, &["ib_uverbs", "rdma_ucm", "rdma-ucm"], None);
    insta::assert_snapshot!(said.join("\n"), @"
    < lib/modules/6.1.0-32-amd64/kernel/drivers/infiniband/core/ib_uverbs.ko
    < lib/modules/6.1.0-32-amd64/kernel/fs/configfs/configfs.ko
    < lib/modules/6.1.0-32-amd64/kernel/drivers/infiniband/core/ib_cm.ko
    < lib/modules/6.1.0-32-amd64/kernel/drivers/infiniband/core/iw_cm.ko
    < lib/modules/6.1.0-32-amd64/kernel/drivers/infiniband/core/rdma_cm.ko
    < lib/modules/6.1.0-32-amd64/kernel/drivers/infiniband/core/rdma_ucm.ko
    ib_uverbs loaded
    rdma_ucm loaded: with rdma_cm, iw_cm, ib_cm, configfs
    rdma_ucm was loaded before
    ");
}

#[test]
fn modules_that_cannot_be_loaded_do_not_stop_the_others() {
    let forbids = [
        (
            "etc/modprobe.d/no.conf",
            "install ib-umad /bin/false\noptions ib_uverbs debug=1 \\\n x=2\n",
        ),
        ("usr/lib/modprobe.d/no.conf", "install ib_uverbs /bin/true\n"),
        ("lib/modules/RELEASE/modules.builtin", "kernel/net/core/failover.ko\n"),
    ];
    let root = plant(DEBIAN, &["ib_core"], &forbids);
    let said = run_on(&root, &["irdma", "ib_umad", "failover", "ib_uverbs"], None);
    insta::assert_snapshot!(said.join("\n"), @"
    < lib/modules/6.1.0-32-amd64/kernel/drivers/infiniband/core/ib_uverbs.ko debug=1 x=2
    irdma is absent: no such module in /lib/modules/6.1.0-32-amd64
    ib_umad is forbidden: by modprobe.d/no.conf
    failover is built into the kernel
    ib_uverbs loaded
    ");
    let bare = plant((DEBIAN.0, ""), &[], &[]);
    assert_eq!(
        run_on(&bare, &["ib_core"], None),
        ["ib_core is absent: there is no /lib/modules/6.1.0-32-amd64/modules.dep"]
    );
}

/// The administrator forbids a module, whatever needs it.
#[test]
fn a_module_is_not_loaded_as_a_dependency_if_it_is_forbidden() {
    let forbids = [("lib/modprobe.d/hard.conf", "install ib-core /bin/false\n")];
    let root = plant(DEBIAN, &[], &forbids);
    assert_eq!(
        run_on(&root, &["ib_uverbs", "configfs"], None),
        [
            "< lib/modules/6.1.0-32-amd64/kernel/fs/configfs/configfs.ko",
            "ib_uverbs is forbidden: it needs ib_core, which modprobe.d/hard.conf forbids",
            "configfs loaded",
        ]
    );
    let root = plant(DEBIAN, &["ib_core"], &forbids);
    assert_eq!(run_on(&root, &["ib_uverbs"], None).last().unwrap(), "ib_uverbs loaded");
}

/// The kernel applies its command line to modules that are built in only.
#[test]
fn options_come_from_modprobe_d_and_the_kernels_command_line() {
    let settings = [
        ("usr/local/lib/modprobe.d/a.conf", "options ib_core netns_mode=1\n"),
        (
            "proc/cmdline",
            "BOOT_IMAGE=/vmlinuz-6.1 root=UUID=1.2 ib-core.netns_mode=0 ib_core.name=\"a b\" \
             ib_core.flag quiet . x. .y -- ib_core.late=1\n",
        ),
    ];
    let root = plant(DEBIAN, &[], &settings);
    assert_eq!(
        run_on(&root, &["ib_core"], None)[0],
        "< lib/modules/6.1.0-32-amd64/kernel/drivers/infiniband/core/ib_core.ko \
         netns_mode=1 netns_mode=0 name=\"a b\" flag"
    );
}

#[test]
fn kernel_errors_are_reported_with_a_hint() {
    let failed = |tree, name: &str, error| {
        let root = plant(tree, &["ib_core"], &[]);
        run_on(&root, &[name], Some(error)).pop().unwrap()
    };
    let all = [
        failed(DEBIAN, "ib_uverbs", Errno::PERM),
        failed(DEBIAN, "ib_uverbs", Errno::NOEXEC),
        failed(DEBIAN, "ib_uverbs", Errno::KEYREJECTED),
        failed(DEBIAN, "ib_uverbs", Errno::NOENT),
        failed(UBUNTU, "ib_uverbs", Errno::OPNOTSUPP),
        failed(RHEL, "mlx5_ib", Errno::INVAL),
        failed(DEBIAN, "ib_uverbs", Errno::EXIST),
    ];
    insta::assert_snapshot!(all.join("\n"));
}

#[test]
fn peer_memory_is_loaded_only_if_needed() {
    const OPEN: &str = "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  570.86";
    const CLOSED: &str = "NVRM version: NVIDIA UNIX x86_64 Kernel Module  570.86";
    let cases: [(&[&str], Option<&str>); 6] = [
        (&[], None),
        (&["amdgpu"], None),
        (&["nvidia"], Some(OPEN)),
        (&["nvidia"], Some(CLOSED)),
        (&["nvidia", "nvidia_peermem"], Some(CLOSED)),
        (&["nvidia", "nv_peer_mem"], Some(CLOSED)),
    ];
    let said = cases.map(|(loaded, nvidia)| {
        let version: Vec<_> =
            nvidia.iter().map(|text| ("proc/driver/nvidia/version", *text)).collect();
        let root = plant(UBUNTU, loaded, &version);
        let args = ModulesArgs {
            root: root.path().to_owned(),
            load: Vec::new(),
            peer_memory: true,
            run_dir: root.path().to_owned(),
        };
        format!("{loaded:?}\n{}", told(&args, None).join("\n"))
    });
    insta::assert_snapshot!(said.join("\n"));
}

#[test]
fn the_report_is_read_as_it_was_written() {
    let root = plant(DEBIAN, &[], &[]);
    let path = root.path().join(REPORT);
    assert!(ModulesReport::read(&path).unwrap().is_none());
    let args = ModulesArgs {
        root: root.path().to_owned(),
        load: vec!["irdma".to_owned()],
        peer_memory: false,
        run_dir: root.path().to_owned(),
    };
    run(&args).unwrap();
    let report = ModulesReport::read(&path).unwrap().unwrap();
    assert_eq!(report.kernel, DEBIAN.0);
    assert_eq!(report.lacking().map(|it| it.name.as_str()).collect::<Vec<_>>(), ["irdma"]);
    fs::write(&path, "{").unwrap();
    assert!(matches!(ModulesReport::read(&path), Err(ReportError::Malformed(_))));
}

proptest::proptest! {
    /// Files on a host are untrusted input.
    #[test]
    fn any_index_is_read(index: String, builtin: String, settings: String, loaded: String) {
        let root = plant((DEBIAN.0, &format!("{index}\n")), &[&loaded], &[
            ("lib/modules/RELEASE/modules.builtin", &builtin),
            ("etc/modprobe.d/a.conf", &settings),
            ("proc/cmdline", &settings),
        ]);
        let tree = ModuleTree::read(root.path()).unwrap();
        for name in tree.files.keys() {
            plan::decide(&tree, name);
        }
        proptest::prop_assert!(tree.is_indexed);
    }
}
