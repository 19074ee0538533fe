//! Decides what to do for each requested module. Pure.

use super::report::Outcome;
use super::tree::{ModuleTree, module_of};
use cluster_model::peer_memory::{self, exports_dma_buf, takes_dma_buf};
use std::path::Path;

/// NVIDIA's module that gives NICs access to GPU memory.
pub(super) const PEER_MEMORY: &str = peer_memory::MODULES[0];

/// What to do for a module.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Decision {
    /// Nothing, for this reason.
    Settled(Outcome, String),
    /// Load these files, in this order.
    Load(Vec<LoadFile>),
}

/// A file to load.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct LoadFile {
    /// Name of the module in it.
    pub(super) name: String,
    /// Path below the root directory.
    pub(super) path: String,
    /// Options from modprobe.d, then from the kernel's command line.
    pub(super) options: String,
}

impl LoadFile {
    /// Whether the kernel has to decompress it.
    pub(super) fn is_compressed(&self) -> bool {
        Path::new(&self.path).extension().is_none_or(|it| it != "ko")
    }
}

/// Decides on a module by its name in the kernel's spelling.
pub(super) fn decide(tree: &ModuleTree, name: &str) -> Decision {
    if tree.loaded.contains(name) {
        return Decision::Settled(Outcome::AlreadyLoaded, String::new());
    }
    if tree.builtin.contains(name) {
        return Decision::Settled(Outcome::BuiltIn, String::new());
    }
    if let Some(file) = tree.forbidden.get(name) {
        return Decision::Settled(Outcome::Forbidden, format!("by modprobe.d/{file}"));
    }
    let Some(file) = tree.files.get(name) else {
        let detail = if tree.is_indexed {
            format!("no such module in /lib/modules/{}", tree.release)
        } else {
            format!("there is no /lib/modules/{}/modules.dep", tree.release)
        };
        return Decision::Settled(Outcome::Absent, detail);
    };
    let needed = file.needs.iter().rev().chain([&file.path]);
    let missing = needed.clone().filter_map(|path| module_of(path));
    let mut missing = missing.filter(|name| !tree.loaded.contains(name));
    if let Some((needed, file)) =
        missing.find_map(|needed| tree.forbidden.get(&needed).map(|file| (needed, file)))
    {
        let detail = format!("it needs {needed}, which modprobe.d/{file} forbids");
        return Decision::Settled(Outcome::Forbidden, detail);
    }
    let files = needed.filter_map(|path| {
        let name = module_of(path).filter(|name| !tree.loaded.contains(name))?;
        let path = match path.strip_prefix('/') {
            Some(path) => path.to_owned(),
            None => format!("lib/modules/{}/{path}", tree.release),
        };
        let options = tree.options.get(&name).cloned().unwrap_or_default();
        Some(LoadFile { name, path, options })
    });
    Decision::Load(files.collect())
}

/// Decides on the module that gives NICs access to GPU memory. It needs NVIDIA's driver, but
/// never loads it: the choice of that driver is the administrator's.
pub(super) fn peer_memory(tree: &ModuleTree) -> Decision {
    if let Some(loaded) = peer_memory::MODULES.iter().find(|name| tree.loaded.contains(**name)) {
        let detail = if *loaded == PEER_MEMORY { "" } else { loaded };
        return settled(Outcome::AlreadyLoaded, detail);
    }
    match &tree.nvidia {
        None if tree.loaded.contains("amdgpu") => {
            settled(Outcome::NotNeeded, "AMD's driver exports dma-buf")
        }
        None => settled(
            Outcome::Waiting,
            "no GPU driver is loaded yet; restart this pod when it is, or load the module together with it",
        ),
        Some(version) if exports_dma_buf(version) && takes_dma_buf(&tree.release) => {
            settled(Outcome::NotNeeded, "NVIDIA's open driver exports dma-buf")
        }
        Some(_) => decide(tree, PEER_MEMORY),
    }
}

fn settled(outcome: Outcome, detail: &str) -> Decision {
    Decision::Settled(outcome, detail.to_owned())
}
