//! The operator's file of drivers, in YAML or JSON.

use super::entry::{AcceleratorEntry, FieldError, NicEntry};
use crate::names;
use serde::Deserialize;
use serde_saphyr::Spanned;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::{fs, io};

/// Drivers that this project does not know, or knows otherwise.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "crd", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "crd", schemars(deny_unknown_fields))]
pub struct DriversFile {
    /// Drivers of accelerators. An entry replaces the built-in driver of its name.
    #[cfg_attr(feature = "crd", schemars(default))]
    pub accelerators: Vec<AcceleratorEntry>,
    /// Drivers of NICs. An entry replaces the built-in driver of its name.
    #[cfg_attr(feature = "crd", schemars(default))]
    pub nics: Vec<NicEntry>,
}

/// The file with the place of each entry.
#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Placed {
    #[serde(default)]
    accelerators: Vec<Spanned<AcceleratorEntry>>,
    #[serde(default)]
    nics: Vec<Spanned<NicEntry>>,
}

/// A file of drivers cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum DriversFileError {
    /// It cannot be read.
    #[error("failed to read the drivers file `{}`", path.display())]
    Read {
        /// The path.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// It is invalid.
    #[error("the drivers file `{}` is invalid", path.display())]
    Invalid {
        /// The path.
        path: PathBuf,
        /// Where and why.
        #[source]
        source: Box<InvalidDrivers>,
    },
}

/// The content of a file of drivers is invalid.
#[derive(Debug, thiserror::Error)]
pub enum InvalidDrivers {
    /// It is no YAML, or has unknown or missing fields.
    #[error(transparent)]
    Syntax(#[from] serde_saphyr::Error),
    /// An entry contradicts itself or another one.
    #[error("line {line}: `{driver}`: {reason}")]
    Entry {
        /// The line of the entry, from 1.
        line: u64,
        /// The driver.
        driver: String,
        /// What is wrong.
        reason: FieldError,
    },
}

impl DriversFile {
    /// Reads a file.
    ///
    /// # Errors
    /// It cannot be read, or is invalid.
    pub fn read(path: &Path) -> Result<Self, DriversFileError> {
        let text = fs::read_to_string(path)
            .map_err(|source| DriversFileError::Read { path: path.to_owned(), source })?;
        Self::parse(&text).map_err(|source| DriversFileError::Invalid {
            path: path.to_owned(),
            source: Box::new(source),
        })
    }

    /// Parses the content of a file. An empty one has no entries.
    ///
    /// # Errors
    /// Says the line, and what is allowed.
    pub fn parse(text: &str) -> Result<Self, InvalidDrivers> {
        let Placed { accelerators, nics } =
            serde_saphyr::from_str::<Option<Placed>>(text)?.unwrap_or_default();
        let mut known = BTreeMap::new();
        for entry in &accelerators {
            let checked = entry.value.check();
            place(&mut known, &entry.value.driver.0, entry.referenced.line(), checked)?;
        }
        for entry in &nics {
            let checked = entry.value.check();
            place(&mut known, &entry.value.driver.0, entry.referenced.line(), checked)?;
        }
        Ok(Self {
            accelerators: accelerators.into_iter().map(|entry| entry.value).collect(),
            nics: nics.into_iter().map(|entry| entry.value).collect(),
        })
    }
}

/// Notes the line of an entry, unless it is invalid or a second one for its driver.
fn place<'a>(
    known: &mut BTreeMap<&'a str, u64>,
    driver: &'a str,
    line: u64,
    checked: Result<(), FieldError>,
) -> Result<(), InvalidDrivers> {
    let own = if driver == names::DRIVER { Err(FieldError::Own) } else { Ok(()) };
    let first = match known.insert(driver, line) {
        Some(first) => Err(FieldError::Duplicate(first)),
        None => Ok(()),
    };
    own.and(first).and(checked).map_err(|reason| InvalidDrivers::Entry {
        line,
        driver: driver.to_owned(),
        reason,
    })
}

/// The JSON schema of the file, without references, so that the chart can contain it.
#[cfg(feature = "crd")]
pub fn schema() -> schemars::Schema {
    let settings = schemars::generate::SchemaSettings::draft07();
    let settings = settings.with(|settings| settings.inline_subschemas = true);
    settings.into_generator().into_root_schema_for::<DriversFile>()
}
