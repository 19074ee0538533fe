//! Character devices of a planted machine.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

/// Links to a character device that every machine has replace the fixture's plain files.
pub(crate) fn plant_characters(root: &Path) {
    let folder = root.join("dev/infiniband");
    fs::remove_dir_all(&folder).ok();
    fs::create_dir_all(&folder).unwrap();
    let names = (0..16).flat_map(|n| ["uverbs", "umad", "issm"].map(|kind| format!("{kind}{n}")));
    for name in names.chain(["rdma_cm".to_owned()]) {
        symlink("/dev/null", folder.join(name)).unwrap();
    }
}
