//! `migrate`: replacements for device plugins and secondary networks.

use crate::Output;
use crate::answer::{Migrate, MigrateNote};
use crate::args::{MigrateArgs, MigrateFormat};
use crate::{source, text};
use migration::{Migration, Note, Options};
use std::fmt::Write as _;

pub(crate) fn run(args: &MigrateArgs) -> anyhow::Result<Output> {
    let mut objects = Vec::new();
    for file in &args.files {
        objects.extend(source::objects(file)?);
    }
    let migration = migration::migrate(&objects, &Options { share: args.share.clone() });
    anyhow::ensure!(
        !migration.documents.is_empty() || !migration.notes.is_empty(),
        "nothing to convert among {} objects; there should be a NicClusterPolicy, networks of it, \
         configurations of device plugins, or pods that use them or the NICs of their host",
        objects.len()
    );
    let Migration { values, documents, notes } = migration;
    let notes = notes.into_iter().map(|Note { object, text: note }| MigrateNote { object, note });
    let answer = Migrate { values, documents, notes: notes.collect() };
    let (text, notes) = match args.output {
        MigrateFormat::Yaml => {
            let notes = answer.notes.iter().map(|it| format!("{}: {}", it.object, it.note));
            (yaml(&answer)?, notes.collect())
        }
        MigrateFormat::Json => (text::answer(&answer, false)?, Vec::new()),
    };
    Ok(Output { text, denied: false, notes })
}

/// The documents for `kubectl apply`, after a comment with the chart's values.
fn yaml(Migrate { values, documents, .. }: &Migrate) -> anyhow::Result<String> {
    let mut out = String::new();
    if values.as_object().is_some_and(|values| !values.is_empty()) {
        writeln!(out, "# Values of the chart:")?;
        for line in text::yaml(values)?.lines() {
            writeln!(out, "#   {line}")?;
        }
    }
    for document in documents {
        write!(out, "---\n{}", text::yaml(document)?)?;
    }
    Ok(out)
}
