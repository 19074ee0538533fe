//! The table of drivers: the accelerator drivers and NIC drivers that this project knows, and those
//! of the operator's file.
//!
//! A program sets the table once, before anything reads it. Entries live as long as the program, so
//! that all other code can keep references to them.

mod entry;
mod file;
pub(crate) mod gpu;
pub(crate) mod nic;
mod text;

pub use entry::{
    AcceleratorEntry, AddressSource, FieldError, NicEntry, PartEntry, RdmaEntry, WholeEntry,
};
#[cfg(feature = "crd")]
pub use file::schema;
pub use file::{DriversFile, DriversFileError, InvalidDrivers};
pub use text::{Attribute, Class, DriverName, Id, TextError};

use gpu::GpuDriver;
use nic::NicDriver;
use std::path::Path;
use std::sync::OnceLock;
use topology_graph::Accelerator;

/// The table of this process.
static TABLE: OnceLock<Drivers> = OnceLock::new();

/// A table of drivers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Drivers {
    /// Drivers of whole accelerators, in the order in which they are tried.
    pub(crate) accelerators: Vec<GpuDriver>,
    /// Drivers of parts of accelerators.
    pub(crate) parts: Vec<GpuDriver>,
    /// Drivers of NICs, in the order in which they are tried. The first is this project's.
    pub(crate) nics: Vec<NicDriver>,
    /// The accelerators of the file's drivers, for graphs.
    functions: Vec<Accelerator>,
    /// The names of the drivers in the file.
    named: Vec<&'static str>,
}

/// The table was read before it was set.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the table of drivers is in use already")]
pub struct InUse;

/// A file of drivers cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum UseError {
    /// It cannot be read, or its content is invalid.
    #[error(transparent)]
    File(#[from] DriversFileError),
    /// Its content is invalid.
    #[error(transparent)]
    Text(#[from] InvalidDrivers),
    /// The table was read before.
    #[error(transparent)]
    InUse(#[from] InUse),
}

impl Default for Drivers {
    fn default() -> Self {
        Self {
            accelerators: gpu::BUILT_IN.to_vec(),
            parts: gpu::BUILT_IN_PARTS.to_vec(),
            nics: nic::BUILT_IN.to_vec(),
            functions: Vec::new(),
            named: Vec::new(),
        }
    }
}

impl Drivers {
    /// The built-in drivers with those of a file. An entry replaces a built-in driver of its name,
    /// with its parts.
    pub fn with(file: DriversFile) -> Self {
        let mut drivers = Self::default();
        for entry in file.accelerators {
            let functions = entry.pci_classes.iter();
            let vendor = entry.pci_vendor.0;
            drivers.functions.extend(functions.map(|class| Accelerator { vendor, class: class.0 }));
            let (whole, part) = entry.leak();
            drivers.named.push(whole.driver);
            drivers.parts.retain(|known| known.driver != whole.driver);
            drivers.parts.extend(part);
            match drivers.accelerators.iter_mut().find(|known| known.driver == whole.driver) {
                Some(known) => *known = whole,
                None => drivers.accelerators.push(whole),
            }
        }
        for entry in file.nics {
            let nic = entry.leak();
            drivers.named.push(nic.driver);
            match drivers.nics.iter_mut().find(|known| known.driver == nic.driver) {
                Some(known) => *known = nic,
                None => drivers.nics.push(nic),
            }
        }
        drivers
    }
}

/// The table of this process; the built-in drivers if none was set.
pub(crate) fn table() -> &'static Drivers {
    TABLE.get_or_init(Drivers::default)
}

/// Sets the table of this process. It can be set again to the same.
///
/// # Errors
/// Another table is in use.
pub fn set(drivers: &Drivers) -> Result<(), InUse> {
    if TABLE.get_or_init(|| drivers.clone()) == drivers { Ok(()) } else { Err(InUse) }
}

/// Adds the drivers of a file to the table of this process; without a file it stays as it is. It is
/// called before anything else.
///
/// # Errors
/// The file cannot be read or is invalid, or the table is in use.
pub fn use_file(file: Option<&Path>) -> Result<(), UseError> {
    let Some(file) = file else { return Ok(()) };
    Ok(set(&Drivers::with(DriversFile::read(file)?))?)
}

/// Adds the drivers of a file's content to the table of this process, unless the table is in use:
/// another file is used then, or none.
///
/// # Errors
/// The content is invalid.
pub fn use_text(text: &str) -> Result<(), UseError> {
    if TABLE.get().is_some() {
        return Ok(());
    }
    Ok(set(&Drivers::with(DriversFile::parse(text)?))?)
}

/// The accelerators that graphs know besides the built-in ones.
pub fn accelerators() -> &'static [Accelerator] {
    &table().functions
}

/// The names of the drivers in the operator's file.
pub fn named_by_file() -> &'static [&'static str] {
    &table().named
}
