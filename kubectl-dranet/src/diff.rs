//! `diff`: what changed between two snapshots.

mod change;

use crate::Output;
use crate::args::{DiffArgs, Form};
use crate::text::{self, counted};
use change::{Change, changes};
use cluster_model::snapshot::{Head, Text, gather};
use cluster_model::view::ObjectKey;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fmt::Write as _;

/// The most changes per object in human-readable output.
const SHOWN_MAX: usize = 8;

/// The JSON text of objects, by kind and name.
type Objects = BTreeMap<(String, String), Box<str>>;

/// An object that differs.
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
    let mut before = Objects::new();
    let head_before = gather(&args.before, &mut |object| {
        before.insert(key(object), object.json.into());
    })?;
    let mut found = Vec::new();
    let mut outcome = Ok(());
    let head_after = gather(&args.after, &mut |object| {
        let key = key(object);
        let what = match before.remove(&key) {
            None => Ok(Some(What::Added)),
            Some(before) => compare(&before, object.json),
        };
        match what {
            Ok(what) => found.extend(what.map(|what| different(key, what))),
            Err(error) => outcome = Err(error),
        }
    })?;
    outcome?;
    found.extend(before.into_keys().map(|key| different(key, What::Removed)));
    found.sort_by(|one, other| (&one.kind, &one.name).cmp(&(&other.kind, &other.name)));
    let of_server = of_server(head_before.as_ref(), head_after.as_ref());
    found.splice(0..0, of_server);
    let text = match args.output {
        Form::Text => person(&found)?,
        Form::Json => text::document(&program(&found), false)?,
        Form::Yaml => text::document(&program(&found), true)?,
    };
    Ok(Output::from(text))
}

fn of_server(before: Option<&Head>, after: Option<&Head>) -> Option<Different> {
    let version =
        |head: &Head| json!({ "version": head.server_version, "featureGates": head.feature_gates });
    let (before, after) = (version(before?), version(after?));
    let what = What::Changed(changes(&before, &after));
    (before != after).then(|| different(("API server".to_owned(), String::new()), what))
}

fn key(object: Text<'_>) -> (String, String) {
    let Text { kind, namespace, name, .. } = object;
    let key = ObjectKey { namespace: namespace.to_owned(), name: name.to_owned() };
    (kind.to_owned(), key.to_string())
}

fn different((kind, name): (String, String), what: What) -> Different {
    Different { kind, name, what }
}

/// The difference of an object; `None` if it has not changed.
fn compare(before: &str, after: &str) -> serde_json::Result<Option<What>> {
    if before == after {
        return Ok(None);
    }
    let changes = changes(&serde_json::from_str(before)?, &serde_json::from_str(after)?);
    Ok((!changes.is_empty()).then_some(What::Changed(changes)))
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
                for Change { path, before, after } in changes.iter().take(SHOWN_MAX) {
                    writeln!(out, "    {path}: {} -> {}", shown(before), shown(after))?;
                }
                if changes.len() > SHOWN_MAX {
                    writeln!(out, "    and {} more", counted(changes.len() - SHOWN_MAX, "change"))?;
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
    json!({ "objects": found.iter().map(document).collect::<Vec<_>>() })
}

fn document(Different { kind, name, what }: &Different) -> Value {
    let (change, changes) = match what {
        What::Added => ("added", Vec::new()),
        What::Removed => ("removed", Vec::new()),
        What::Changed(changes) => ("changed", changes.iter().map(Change::json).collect()),
    };
    json!({ "kind": kind, "name": name, "change": change, "fields": changes })
}
