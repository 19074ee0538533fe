//! `node-driver modules`: loads the kernel modules that RDMA needs, before the driver starts.
//!
//! An init container runs it, with the one capability that loading requires. It never unloads
//! or replaces a module, so running pods are not affected. The image has no `modprobe`: modules
//! are found in the `modules.dep` of depmod(8) and loaded by `finit_module(2)`, which decompresses
//! them if the kernel supports it. Of modprobe.d(5), lines that forbid a module
//! (`install NAME /bin/false`) or set its options are obeyed, also for the modules that a
//! requested one needs, and so are options on the kernel's command line.
//!
//! The result for each module is stored in a file until the next boot. The driver publishes it
//! ([`condition`]).

pub mod condition;
mod plan;
mod report;
mod tree;

pub use report::{ModuleReport, ModulesReport, Outcome, ReportError};

use anyhow::Context;
use plan::{Decision, LoadFile};
use rustix::io::Errno;
use std::ffi::CString;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use tree::ModuleTree;

/// File name of the report in the driver's --run-dir.
pub const REPORT: &str = "modules.json";

/// `MODULE_INIT_COMPRESSED_FILE` of `linux/module.h`.
const COMPRESSED: i32 = 4;

/// Load the kernel modules that RDMA needs and report the result of each; never unload a module
#[derive(clap::Parser, Clone, Debug)]
#[command(name = "node-driver modules")]
#[expect(clippy::doc_markdown, reason = "backticks would appear in the help")]
pub struct ModulesArgs {
    /// Directory that contains the host's lib/modules, etc/modprobe.d, proc and sys
    #[arg(long, value_name = "DIR", default_value = "/")]
    pub root: PathBuf,
    /// Module to load with its dependencies; repeatable
    #[arg(long = "load", value_name = "NAME", value_parser = name)]
    pub load: Vec<String>,
    /// Also load nvidia_peermem if NVIDIA's driver is loaded and does not export dma-buf
    #[arg(long)]
    pub peer_memory: bool,
    /// The driver's --run-dir, to which the report is written
    #[arg(long, value_name = "DIR", default_value = "/run/dranet")]
    pub run_dir: PathBuf,
}

/// Parses a module name and converts it to the kernel's spelling.
fn name(text: &str) -> Result<String, String> {
    if !text.is_empty() && text.bytes().all(is_allowed) {
        return Ok(tree::kernel_name(text));
    }
    Err("not a module name such as `ib_uverbs`".to_owned())
}

fn is_allowed(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-')
}

/// Loads the modules and writes the report. A module that cannot be loaded is not an error of
/// the program: the node's other NICs can still be published, and the driver reports the
/// missing module.
///
/// # Errors
/// The kernel's version is unknown, or the report cannot be written.
pub fn run(args: &ModulesArgs) -> anyhow::Result<()> {
    let report = work(args, &mut |file| load(&args.root, file))?;
    for module in &report.modules {
        print_line(module);
    }
    let path = args.run_dir.join(REPORT);
    report.store(&path).with_context(|| format!("failed to write `{}`", path.display()))
}

#[expect(clippy::print_stdout, reason = "the log of the init container")]
fn print_line(module: &ModuleReport) {
    println!("{module}");
}

/// Reads, decides and loads module by module, because one module may load dependencies of
/// another.
fn work(
    args: &ModulesArgs,
    load: &mut dyn FnMut(&LoadFile) -> io::Result<()>,
) -> anyhow::Result<ModulesReport> {
    let mut modules = Vec::new();
    let mut tree = ModuleTree::read(&args.root)?;
    for name in &args.load {
        modules.push(carry_out(name, plan::decide(&tree, name), load));
        tree.read_loaded(&args.root)?;
    }
    if args.peer_memory {
        modules.push(carry_out(plan::PEER_MEMORY, plan::peer_memory(&tree), load));
    }
    Ok(ModulesReport { kernel: tree.release, modules })
}

fn carry_out(
    name: &str,
    decision: Decision,
    load: &mut dyn FnMut(&LoadFile) -> io::Result<()>,
) -> ModuleReport {
    let (outcome, detail) = match decision {
        Decision::Settled(outcome, detail) => (outcome, detail),
        Decision::Load(files) => load_all(&files, load),
    };
    ModuleReport { name: name.to_owned(), outcome, detail }
}

/// Loads a module's files. Returns the outcome and its detail.
fn load_all(
    files: &[LoadFile],
    load: &mut dyn FnMut(&LoadFile) -> io::Result<()>,
) -> (Outcome, String) {
    for file in files {
        match load(file) {
            Ok(()) => {}
            // Another process has loaded it meanwhile.
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => {
                let detail = format!("{} ({}): {}", file.name, file.path, why(&error, file));
                return (Outcome::Failed, detail);
            }
        }
    }
    let others: Vec<&str> = files.iter().rev().skip(1).map(|file| file.name.as_str()).collect();
    let with =
        if others.is_empty() { String::new() } else { format!("with {}", others.join(", ")) };
    (Outcome::Loaded, with)
}

/// The kernel's error, and what it means for modules (`kernel/module/main.c`).
fn why(error: &io::Error, file: &LoadFile) -> String {
    let hint = match error.raw_os_error().map(Errno::from_raw_os_error) {
        Some(Errno::PERM) => {
            "the container lacks SYS_MODULE, the kernel allows no modules (lockdown, kernel.modules_disabled), or its command line forbids this one (module_blacklist=)"
        }
        Some(Errno::OPNOTSUPP | Errno::INVAL) if file.is_compressed() => {
            "the kernel cannot read compressed modules (CONFIG_MODULE_DECOMPRESS is off): load it when the node starts, by modules-load.d"
        }
        Some(Errno::KEYREJECTED | Errno::NOKEY) => "the kernel does not trust its signature",
        Some(Errno::NOEXEC) => "it was built for another kernel",
        Some(Errno::NOENT) => {
            "a symbol that it needs is missing: a dependency is absent or of another version; the kernel's log names the symbol"
        }
        Some(Errno::INVAL) => {
            "the kernel's log has the reason: a dependency is of another version, or modprobe.d sets an option that it does not have"
        }
        Some(Errno::NODEV) => "the machine has no such device",
        _ => return error.to_string(),
    };
    format!("{error}; {hint}")
}

fn load(root: &Path, file: &LoadFile) -> io::Result<()> {
    // Without the error number, which has another meaning when a module is loaded.
    let open = File::open(root.join(&file.path)).map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => io::Error::new(
            error.kind(),
            "modules.dep lists it, but its file is missing; run depmod on the node",
        ),
        _ => error,
    })?;
    let options = CString::new(file.options.as_str())?;
    let flags = if file.is_compressed() { COMPRESSED } else { 0 };
    rustix::system::finit_module(&open, &options, flags).map_err(Into::into)
}

#[cfg(test)]
mod tests;
