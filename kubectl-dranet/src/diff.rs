//! `diff`: what changed between two snapshots.

mod change;

use crate::Output;
use crate::answer::{ChangeKind, Diff, Different, FieldChange};
use crate::args::DiffArgs;
use crate::text::counted;
use change::changes;
use cluster_model::snapshot::{Head, Text, gather};
use cluster_model::view::ObjectKey;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fmt::Write as _;

/// The most changes per object in human-readable output.
const SHOWN_MAX: usize = 8;

/// The JSON text of objects, by kind and name.
type Objects = BTreeMap<(String, String), Box<str>>;

pub(crate) fn run(args: &DiffArgs) -> anyhow::Result<Output> {
    let mut before = Objects::new();
    let head_before = gather(&args.before, &mut |object| {
        before.insert(key(object), object.json.into());
    })?;
    let mut found = Vec::new();
    let mut outcome = Ok(());
    let head_after = gather(&args.after, &mut |object| {
        let key = key(object);
        match before.remove(&key) {
            None => found.push(different(key, ChangeKind::Added, Vec::new())),
            Some(before) => match compare(&before, object.json) {
                Ok(fields) if fields.is_empty() => {}
                Ok(fields) => found.push(different(key, ChangeKind::Changed, fields)),
                Err(error) => outcome = Err(error),
            },
        }
    })?;
    outcome?;
    let gone = before.into_keys().map(|key| different(key, ChangeKind::Removed, Vec::new()));
    found.extend(gone);
    found.sort_by(|one, other| (&one.kind, &one.name).cmp(&(&other.kind, &other.name)));
    let of_server = of_server(head_before.as_ref(), head_after.as_ref());
    found.splice(0..0, of_server);
    let answer = Diff { objects: found };
    let text = args.output.write(&answer, || person(&answer.objects))?;
    Ok(Output::from(text))
}

fn of_server(before: Option<&Head>, after: Option<&Head>) -> Option<Different> {
    let (before, after) = (version(before?), version(after?));
    let key = ("API server".to_owned(), String::new());
    (before != after).then(|| different(key, ChangeKind::Changed, changes(&before, &after)))
}

fn version(head: &Head) -> Value {
    json!({ "version": head.server_version, "featureGates": head.feature_gates })
}

fn key(object: Text<'_>) -> (String, String) {
    let Text { kind, namespace, name, .. } = object;
    let key = ObjectKey { namespace: namespace.to_owned(), name: name.to_owned() };
    (kind.to_owned(), key.to_string())
}

fn different(
    (kind, name): (String, String),
    change: ChangeKind,
    fields: Vec<FieldChange>,
) -> Different {
    Different { kind, name, change, fields }
}

/// The fields of an object that have changed.
fn compare(before: &str, after: &str) -> serde_json::Result<Vec<FieldChange>> {
    if before == after {
        return Ok(Vec::new());
    }
    Ok(changes(&serde_json::from_str(before)?, &serde_json::from_str(after)?))
}

fn person(found: &[Different]) -> anyhow::Result<String> {
    if found.is_empty() {
        return Ok("no difference\n".to_owned());
    }
    let mut out = String::new();
    for Different { kind, name, change, fields } in found {
        let name = format!("{kind} {name}");
        let name = name.trim_end();
        match change {
            ChangeKind::Added => writeln!(out, "+ {name}")?,
            ChangeKind::Removed => writeln!(out, "- {name}")?,
            ChangeKind::Changed => writeln!(out, "~ {name}")?,
        }
        for FieldChange { path, before, after } in fields.iter().take(SHOWN_MAX) {
            writeln!(out, "    {path}: {} -> {}", shown(before), shown(after))?;
        }
        if fields.len() > SHOWN_MAX {
            writeln!(out, "    and {} more", counted(fields.len() - SHOWN_MAX, "change"))?;
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
