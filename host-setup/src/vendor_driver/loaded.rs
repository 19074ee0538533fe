//! Which modules are loaded, and whether something holds them, from `/sys/module`
//! (`kernel/module/sysfs.c`, `kernel/params.c`).

use super::state::{LoadedModule, Modules};
use std::fs;
use std::path::Path;

/// The loaded ones of these modules.
pub(super) fn read(sys: &Path, names: &[String]) -> Modules {
    names
        .iter()
        .filter_map(|name| {
            let directory = sys.join("module").join(name);
            // One that is built into the kernel has no `refcnt`, and cannot be replaced.
            let references = fs::read_to_string(directory.join("refcnt")).ok()?;
            let references: u32 = references.trim().parse().unwrap_or(0);
            let holders = fs::read_dir(directory.join("holders")).map_or(0, Iterator::count);
            let openers = references.saturating_sub(u32::try_from(holders).unwrap_or(u32::MAX));
            Some((name.clone(), LoadedModule { build: build(&directory), openers }))
        })
        .collect()
}

/// The checksum of its sources where the kernel keeps it, otherwise the linker's build ID.
fn build(directory: &Path) -> String {
    if let Ok(checksum) = fs::read_to_string(directory.join("srcversion")) {
        return checksum.trim().to_owned();
    }
    let note = fs::read(directory.join("notes/.note.gnu.build-id")).unwrap_or_default();
    note.iter().fold(String::new(), |text, byte| text + &format!("{byte:02x}"))
}
