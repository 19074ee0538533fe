//! Room on the disk for the checkpoint: a file that is removed when the disk is full, so that
//! claims can end. The kubelet ends pods to free a full disk, and pods end only if their claims
//! do.

use rustix::fs::{FallocateFlags, fallocate};
use std::fs::{self, File};
use std::io;
use std::path::Path;

/// Bytes that are reserved; a checkpoint with 32 claims has about 100 KiB.
const SIZE: u64 = 1 << 20;

/// Reserves the room if it is not reserved. Without room now, there is none later either.
pub(super) fn keep(path: &Path) {
    if fs::metadata(path).is_ok_and(|file| file.len() == SIZE) {
        return;
    }
    if allocate(path).is_err() {
        let _ = fs::remove_file(path);
    }
}

fn allocate(path: &Path) -> io::Result<()> {
    Ok(fallocate(File::create(path)?, FallocateFlags::empty(), 0, SIZE)?)
}

/// Frees the room. Returns whether there was any.
pub(super) fn release(path: &Path) -> bool {
    fs::remove_file(path).is_ok()
}
