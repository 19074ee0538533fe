//! `diff`: what changed from one snapshot to another.

mod change;

use crate::Output;
use crate::args::{DiffArgs, Form};
use crate::text::{self, counted};
use change::{Change, changes};
use cluster_model::snapshot::{ALL, Intake, load_keeping};
use cluster_model::view::ObjectKey;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

/// Changes of one object that are told to a person.
const TOLD: usize = 8;

/// By kind and name.
type Objects = BTreeMap<(String, String), Value>;

/// One object that is not as it was.
struct Different {
    kind: String,
    name: String,
    what: What,
}

enum What {
    Added,
    Removed,
    Changed(Vec<Change>),
}

pub(crate) fn run(args: &DiffArgs) -> anyhow::Result<Output> {
    let before = load_keeping(&args.before, &[ALL])?;
    let after = load_keeping(&args.after, &[ALL])?;
    let mut found = of_server(&before, &after);
    found.extend(compare(&objects(before), &objects(after)));
    let text = match args.output {
        Form::Text => person(&found)?,
        Form::Json => text::document(&program(&found), false)?,
        Form::Yaml => text::document(&program(&found), true)?,
    };
    Ok(Output::from(text))
}

fn of_server(before: &Intake, after: &Intake) -> Vec<Different> {
    let version = |intake: &Intake| {
        let head = intake.head.as_ref()?;
        Some(json!({ "version": head.server_version, "featureGates": head.feature_gates }))
    };
    let (Some(before), Some(after)) = (version(before), version(after)) else { return Vec::new() };
    let changes = changes(&before, &after);
    let what = What::Changed(changes);
    let different = Different { kind: "API server".to_owned(), name: String::new(), what };
    Vec::from_iter((before != after).then_some(different))
}

fn objects(intake: Intake) -> Objects {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let keyed = intake.kept.into_iter().map(|object| {
        let metadata = &object["metadata"];
        let key =
            ObjectKey { namespace: text(&metadata["namespace"]), name: text(&metadata["name"]) };
        ((text(&object["kind"]), key.to_string()), object)
    });
    keyed.collect()
}

fn compare(before: &Objects, after: &Objects) -> Vec<Different> {
    let keys: BTreeSet<_> = before.keys().chain(after.keys()).collect();
    let what = |key| match (before.get(key), after.get(key)) {
        (Some(_), None) => Some(What::Removed),
        (None, Some(_)) => Some(What::Added),
        (Some(before), Some(after)) => {
            let changes = changes(before, after);
            (!changes.is_empty()).then_some(What::Changed(changes))
        }
        (None, None) => None,
    };
    let different = keys.into_iter().filter_map(|key| {
        let (kind, name) = key.clone();
        Some(Different { kind, name, what: what(key)? })
    });
    different.collect()
}

fn person(found: &[Different]) -> anyhow::Result<String> {
    if found.is_empty() {
        return Ok("no difference\n".to_owned());
    }
    let mut out = String::new();
    for Different { kind, name, what } in found {
        let name = format!("{kind} {name}");
        let name = name.trim_end();
        match what {
            What::Added => writeln!(out, "+ {name}")?,
            What::Removed => writeln!(out, "- {name}")?,
            What::Changed(changes) => {
                writeln!(out, "~ {name}")?;
                for Change { path, before, after } in changes.iter().take(TOLD) {
                    writeln!(out, "    {path}: {} -> {}", shown(before), shown(after))?;
                }
                if changes.len() > TOLD {
                    writeln!(out, "    and {} more", counted(changes.len() - TOLD, "change"))?;
                }
            }
        }
    }
    Ok(out)
}

/// A value on one line.
fn shown(value: &Value) -> String {
    const MOST: usize = 60;
    let text = match value {
        Value::Null => "none".to_owned(),
        Value::String(text) => text.clone(),
        value => value.to_string(),
    };
    match text.char_indices().nth(MOST) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text,
    }
}

fn program(found: &[Different]) -> Value {
    let object = |Different { kind, name, what }: &Different| {
        let (change, changes) = match what {
            What::Added => ("added", Vec::new()),
            What::Removed => ("removed", Vec::new()),
            What::Changed(changes) => ("changed", changes.iter().map(Change::json).collect()),
        };
        json!({ "kind": kind, "name": name, "change": change, "fields": changes })
    };
    json!({ "objects": found.iter().map(object).collect::<Vec<_>>() })
}
