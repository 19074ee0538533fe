//! Uses a planted sysfs.

use super::*;
use crate::fake::FakeDriver;
use crate::virtual_functions::tests::{GUID, Known, PHYSICAL};
use cluster_model::names::DRIVER;
use rustix::fs::{CWD, FileType, Mode, OFlags, mknodat};
use std::fs::{self, File};
use std::io::Read;
use std::os::unix::fs::symlink;
use std::path::Path;
use tempfile::TempDir;

const POLICY: &str = "numVfs=4,vendor=15b3";

/// The virtual functions of a machine with one physical function.
struct Stage {
    driver: Arc<FakeDriver>,
    folder: TempDir,
    functions: Functions,
    wake: Arc<Notify>,
    begin: Instant,
}

impl Stage {
    fn new() -> Self {
        let (driver, folder) = (Arc::new(FakeDriver::new()), tempfile::tempdir().unwrap());
        let place = Place {
            sysfs: folder.path().join("sys"),
            paths: Paths {
                kubelet: folder.path().join("kubelet"),
                driver: DRIVER.to_owned(),
                cdi: folder.path().join("cdi"),
                run: folder.path().join("run"),
                netns: folder.path().join("netns"),
                sysctl: folder.path().join("sysctl"),
            },
            node: Arc::<FakeDriver>::clone(&driver),
            driver: Arc::<FakeDriver>::clone(&driver),
        };
        fs::create_dir_all(place.paths.plugin()).unwrap();
        let wake = Arc::new(Notify::new());
        let policies = vec![POLICY.parse().unwrap()];
        let functions = Functions::new(policies, place, &wake);
        let stage = Self { driver, folder, functions, wake, begin: Instant::now() };
        fs::create_dir_all(stage.file().parent().unwrap()).unwrap();
        fs::write(stage.file(), "old").unwrap();
        stage
    }

    fn file(&self) -> PathBuf {
        self.folder.path().join(format!("sys/devices/pci0000:80/{PHYSICAL}/sriov_numvfs"))
    }

    /// The number that was written last.
    fn written(&self) -> String {
        fs::read_to_string(self.file()).unwrap()
    }

    /// Looks this many seconds after the beginning and returns the notices.
    async fn look(&mut self, known: &Known, seconds: u64) -> Vec<Notice> {
        let now = self.begin + Duration::from_secs(seconds);
        self.functions.look(&known.snapshot, &known.network, |_| false, now).await;
        self.functions.published(now);
        self.functions.notices()
    }

    /// Waits until a write has ended.
    async fn ended(&self) {
        let patience = Duration::from_secs(20);
        timeout(patience, self.wake.notified()).await.expect("a write is in progress");
    }

    /// Allocates a virtual function of this node to a claim.
    fn claim(&self, name: &str) {
        let device = "pci-0000-86-10-2".to_owned();
        self.driver.said().allocated.insert(device, format!("jobs/{name}"));
    }

    fn no_claim(&self) {
        self.driver.said().allocated.clear();
    }

    /// Prepares a claim with this device on this node.
    fn hold(&self, device: &str) {
        self.driver.said().held = Some([device.to_owned()].into());
    }

    fn give_guids(&self, give: fn(&str, &[u64]) -> Result<(), DriverError>) {
        self.driver.said().give_guids = give;
    }
}

fn texts(notices: &[Notice]) -> String {
    format!("{notices:?}")
}

#[tokio::test]
async fn functions_are_created_at_once_and_reported() {
    let mut stage = Stage::new();
    assert!(stage.look(&Known::with(0), 0).await.is_empty());
    assert_eq!(stage.functions.missing(), 4);
    assert!(stage.functions.is_awaited(stage.begin), "the first publication waits");
    stage.ended().await;
    assert_eq!(stage.written(), "4ld");
    let mut known = Known::with(2);
    known.snapshot.pci[0].sriov_num_vfs = Some(4);
    let notices = texts(&stage.look(&known, 3).await);
    assert!(notices.contains("0000:86:00.0 (rail3) has 4 virtual functions"), "{notices}");
    assert_eq!(stage.functions.missing(), 0);
    assert!(!stage.functions.is_awaited(stage.begin));
    assert!(stage.look(&known, 4).await.is_empty());
}

#[tokio::test]
async fn functions_are_replaced_when_no_claim_has_one() {
    let mut stage = Stage::new();
    let known = Known::with(2);
    stage.claim("mine");
    let notices = texts(&stage.look(&known, 0).await);
    let expected = "0000:86:00.0 (rail3) has 2 virtual functions instead of 4: \
        claim `jobs/mine` has `pci-0000-86-10-2`; drain the node, or wait until that ends";
    assert!(notices.contains(expected), "{notices}");
    assert!(stage.functions.withheld.is_empty());
    assert!(stage.look(&known, 59).await.is_empty(), "said once");
    stage.no_claim();
    assert!(stage.look(&known, 61).await.is_empty());
    assert_eq!(stage.functions.withheld.len(), 3, "withdrawn, with their physical function");
    // A scheduler that had not seen the withdrawal yet.
    stage.claim("late");
    let notices = texts(&stage.look(&known, 72).await);
    assert!(notices.contains("claim `jobs/late` has"), "{notices}");
    assert!(stage.functions.withheld.is_empty(), "published again");
    stage.no_claim();
    stage.look(&known, 140).await;
    stage.look(&known, 145).await;
    assert_eq!(stage.written(), "old");
    stage.look(&known, 150).await;
    stage.ended().await;
    assert_eq!(stage.written(), "4ld");
}

/// A claim can be prepared until the driver takes its turn.
#[tokio::test]
async fn a_claim_that_was_prepared_meanwhile_keeps_its_function() {
    let mut stage = Stage::new();
    let known = Known::with(2);
    stage.look(&known, 0).await;
    let turn = turn::take(&stage.functions.place.paths).unwrap();
    stage.look(&known, 10).await;
    stage.hold("pci-0000-86-10-0");
    drop(turn);
    stage.ended().await;
    assert_eq!(stage.written(), "old");
    let notices = texts(&stage.look(&known, 11).await);
    assert!(notices.contains("pci-0000-86-10-0"), "{notices}");
}

#[tokio::test]
async fn a_kernel_error_is_reported_once_and_retried() {
    let mut stage = Stage::new();
    let known = Known::with(0);
    fs::remove_file(stage.file()).unwrap();
    stage.look(&known, 0).await;
    stage.ended().await;
    let notices = texts(&stage.look(&known, 1).await);
    assert!(notices.contains("cannot get 4 virtual functions: failed to write"), "{notices}");
    assert!(
        !stage.functions.is_awaited(stage.begin + Duration::from_secs(1)),
        "others are published"
    );
    stage.look(&known, 61).await;
    stage.ended().await;
    assert!(stage.look(&known, 62).await.is_empty(), "said once");
    fs::write(stage.file(), "0").unwrap();
    stage.look(&known, 122).await;
    stage.ended().await;
    let notices = texts(&stage.look(&known, 123).await);
    assert!(notices.contains("VirtualFunctionsCreated"), "{notices}");
}

/// Replaces the kernel's file by a pipe, which keeps each number that is written.
fn pipe(path: &Path) -> File {
    fs::remove_file(path).unwrap();
    mknodat(CWD, path, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
    // Open for writing too, so that reading finds no end of file after a writer closes it.
    let flags = OFlags::RDWR | OFlags::NONBLOCK;
    File::from(rustix::fs::open(path, flags, Mode::empty()).unwrap())
}

/// The numbers written since the last call.
fn read(mut pipe: &File) -> String {
    let mut bytes = [0; 16];
    match pipe.read(&mut bytes) {
        Ok(length) => String::from_utf8(bytes[..length].to_vec()).unwrap(),
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => String::new(),
        Err(error) => panic!("{error}"),
    }
}

#[tokio::test]
async fn infiniband_functions_get_guids_and_are_recreated() {
    let mut stage = Stage::new();
    let numbers = pipe(&stage.file());
    stage.give_guids(|link, guids| {
        let expected: Vec<_> = (0..4).map(|it| guid::derive(GUID, it)).collect();
        assert_eq!((link, guids), ("rail3", &expected[..]));
        Ok(())
    });
    let mut known = Known::with(0);
    known.infiniband(&[]);
    stage.look(&known, 0).await;
    stage.ended().await;
    assert_eq!(read(&numbers), "404");
    known.snapshot.pci[0].sriov_num_vfs = Some(4);
    let notices = texts(&stage.look(&known, 1).await);
    assert!(notices.contains("0000:86:00.0 (rail3) has 4 virtual functions"), "{notices}");
}

/// Functions without GUIDs remain if the driver was killed before it set them.
#[tokio::test]
async fn functions_without_guids_are_recreated_once_when_unclaimed() {
    let mut stage = Stage::new();
    let numbers = pipe(&stage.file());
    stage.give_guids(|_, _| Ok(()));
    let mut known = Known::with(2);
    known.infiniband(&[0, 0]);
    known.snapshot.pci[0].sriov_num_vfs = Some(4);
    stage.claim("mine");
    let notices = texts(&stage.look(&known, 0).await);
    let expected = "virtual functions of 0000:86:00.0 (rail3) must be recreated to get GUIDs: \
        claim `jobs/mine` has `pci-0000-86-10-2`";
    assert!(notices.contains(expected), "{notices}");
    stage.no_claim();
    for seconds in [61, 72] {
        stage.look(&known, seconds).await;
    }
    stage.ended().await;
    // Not repeated, even if the virtual functions' driver reports no GUIDs.
    for seconds in [73, 74, 200] {
        stage.look(&known, seconds).await;
    }
    assert_eq!(read(&numbers), "04");
    assert!(stage.functions.withheld.is_empty());
}

/// A slice from before a reboot names functions that exist again now.
#[tokio::test]
async fn a_claim_that_has_a_new_function_keeps_it() {
    let mut stage = Stage::new();
    let numbers = pipe(&stage.file());
    stage.give_guids(|_, _| Ok(()));
    let link = stage.file().with_file_name("virtfn0");
    symlink("../0000:86:10.0", link).unwrap();
    stage.hold("pci-0000-86-10-0");
    let mut known = Known::with(0);
    known.infiniband(&[]);
    stage.look(&known, 0).await;
    stage.ended().await;
    let notices = texts(&stage.look(&known, 1).await);
    assert!(notices.contains("have `pci-0000-86-10-0`"), "{notices}");
    assert_eq!(read(&numbers), "4");
}

#[tokio::test]
async fn functions_that_cannot_get_guids_stay_and_are_reported() {
    let mut stage = Stage::new();
    let numbers = pipe(&stage.file());
    let mut known = Known::with(0);
    known.infiniband(&[]);
    stage.look(&known, 0).await;
    stage.ended().await;
    let mut known = Known::with(2);
    known.infiniband(&[0, 0]);
    known.snapshot.pci[0].sriov_num_vfs = Some(4);
    let notices = texts(&stage.look(&known, 1).await);
    let expected = "0000:86:00.0 (rail3) has 4 virtual functions without GUIDs: interface `rail3`";
    assert!(notices.contains(expected), "{notices}");
    assert!(notices.contains("VirtualFunctionsWithoutGUIDs"), "{notices}");
    assert!(stage.look(&known, 100).await.is_empty(), "said once");
    assert_eq!(read(&numbers), "4");
    assert!(stage.functions.withheld.is_empty());
}

/// Nothing is changed while it is unknown which claims have which devices.
#[tokio::test]
async fn a_damaged_checkpoint_prevents_changes() {
    let mut stage = Stage::new();
    stage.driver.said().held = None;
    for known in [Known::with(0), Known::with(2)] {
        stage.look(&known, 0).await;
        stage.look(&known, 100).await;
    }
    assert_eq!(stage.written(), "old");
}
