//! The exclusive right to change the state of claims, across all instances of the driver.

use crate::durable::FileError;
use crate::paths::Paths;
use std::fs::{self, File};

/// Waits for the right and takes it. It ends when the file is dropped.
pub fn take(paths: &Paths) -> Result<File, FileError> {
    let path = paths.lock();
    let open = || {
        fs::create_dir_all(paths.plugin())?;
        let file = File::options().create(true).append(true).open(&path)?;
        file.lock()?;
        Ok(file)
    };
    open().map_err(|source| FileError::new("lock", &path, source))
}
