//! `migrate`: replacements for device plugins and secondary networks.

use crate::Output;
use crate::args::{MigrateArgs, MigrateFormat};
use crate::{source, text};
use migration::{Migration, Options};
use serde_json::json;
use std::fmt::Write as _;

pub(crate) fn run(args: &MigrateArgs) -> anyhow::Result<Output> {
    let mut objects = Vec::new();
    for file in &args.files {
        objects.extend(source::objects(file)?);
    }
    let migration = migration::migrate(&objects, &Options { share: args.share.clone() });
    anyhow::ensure!(
        !migration.documents.is_empty(),
        "nothing to convert among {} objects; there should be a NicClusterPolicy, networks of it, \
         configurations of device plugins, or pods that use them",
        objects.len()
    );
    let notes = migration.notes.iter().map(|note| format!("{}: {}", note.object, note.text));
    let (text, notes) = match args.output {
        MigrateFormat::Yaml => (yaml(&migration)?, notes.collect()),
        MigrateFormat::Json => (json(&migration)?, Vec::new()),
    };
    Ok(Output { text, denied: false, notes })
}

/// The documents for `kubectl apply`, after a comment with the chart's values.
fn yaml(migration: &Migration) -> anyhow::Result<String> {
    let mut out = String::new();
    if migration.values.as_object().is_some_and(|values| !values.is_empty()) {
        writeln!(out, "# Values of the chart:")?;
        for line in text::yaml(&migration.values)?.lines() {
            writeln!(out, "#   {line}")?;
        }
    }
    for document in &migration.documents {
        write!(out, "---\n{}", text::yaml(document)?)?;
    }
    Ok(out)
}

fn json(migration: &Migration) -> anyhow::Result<String> {
    let notes = migration.notes.iter();
    let notes: Vec<_> =
        notes.map(|note| json!({"object": note.object, "note": note.text})).collect();
    let all = json!({
        "values": migration.values,
        "documents": migration.documents,
        "notes": notes,
    });
    Ok(serde_json::to_string_pretty(&all)? + "\n")
}
