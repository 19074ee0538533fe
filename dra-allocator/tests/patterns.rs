//! Compares regular expressions with Go: same matches, and the same patterns are rejected.
#![expect(clippy::disallowed_methods, reason = "tables are files")]

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result, ensure};
use dra_allocator::cel;
use dra_allocator::{Budget, Device, Inventory, MinorVersion, Settings};
use serde::Deserialize;
use serde_json::json;

/// A row of `patterns.jsonl`.
#[derive(Deserialize)]
struct PatternRow {
    pattern: String,
    subjects: Vec<String>,
    /// Why Go rejects it.
    error: Option<String>,
    /// For each subject, all matches that Go finds.
    #[serde(default)]
    found: Vec<Option<Vec<String>>>,
}

/// A row of `expressions.jsonl`.
#[derive(Debug, Deserialize, PartialEq)]
#[serde(rename_all = "camelCase")]
struct ExpressionRow {
    expression: String,
    compile_error: Option<String>,
    runtime_error: Option<String>,
    matches: bool,
}

fn rows<R: for<'de> Deserialize<'de>>(file: &str) -> Result<Vec<R>> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cel").join(file);
    let text = fs::read_to_string(&path)?;
    let rows = text.lines().enumerate().map(|(number, line)| {
        serde_json::from_str(line).with_context(|| format!("line {} of {file}", number + 1))
    });
    let rows: Vec<_> = rows.collect::<Result<_>>()?;
    ensure!(!rows.is_empty(), "{file} holds no row");
    Ok(rows)
}

/// The device for the table of expressions; its name is the subject of a pattern.
fn device(name: &str) -> Result<Device> {
    let slice = json!({
        "metadata": {"name": "s"},
        "spec": {
            "driver": "gpu.example.com",
            "nodeName": "n",
            "pool": {"name": "p", "generation": 1, "resourceSliceCount": 1},
            "devices": [{"name": "d", "attributes": {"name": {"string": name}}}],
        },
    });
    let mut inventory = Inventory::new();
    inventory.apply_slice(&serde_json::from_value(slice)?)?;
    let settings = Settings::defaults_of(MinorVersion::V1_37);
    Ok(inventory.devices_on("n", &settings)?[0].clone())
}

/// A string as a CEL literal.
fn quoted(text: &str) -> String {
    let escaped = text.chars().map(|c| match c {
        ' '..='~' if !matches!(c, '"' | '\\') => c.to_string(),
        _ => format!("\\U{:08x}", u32::from(c)),
    });
    format!("\"{}\"", escaped.collect::<String>())
}

#[test]
fn patterns_match_as_in_go() -> Result<()> {
    let mut differences = String::new();
    for row in rows::<PatternRow>("patterns.jsonl")? {
        let pattern = quoted(&row.pattern);
        let refused =
            cel::compile(&format!("\"\".matches({pattern})"), &Budget::unlimited()).is_err();
        if refused != row.error.is_some() {
            writeln!(
                differences,
                "{:?}: Go {:?}, we refuse it: {refused}",
                row.pattern, row.error
            )?;
            continue;
        }
        ensure!(row.error.is_some() || row.found.len() == row.subjects.len());
        for (subject, found) in row.subjects.iter().zip(&row.found) {
            let device = device(subject)?;
            let found = found.clone().unwrap_or_default();
            let all: Vec<_> = found.iter().map(|text| quoted(text)).collect();
            let name = "device.attributes[\"gpu.example.com\"].name";
            let expected = [
                format!("{name}.matches({pattern}) == {}", !found.is_empty()),
                format!("{name}.findAll({pattern}) == [{}]", all.join(", ")),
                format!("{name}.find({pattern}) == {}", all.first().map_or("\"\"", |first| first)),
            ];
            for expression in expected {
                let budget = Budget::unlimited();
                if cel::compile(&expression, &budget)?.matches(&device, &budget) != Ok(true) {
                    let pattern = &row.pattern;
                    writeln!(differences, "{pattern:?} in {subject:?}: Go finds {found:?}")?;
                    break;
                }
            }
        }
    }
    ensure!(differences.is_empty(), "{differences}");
    Ok(())
}

#[test]
fn selectors_with_patterns_evaluate_as_in_kubernetes() -> Result<()> {
    let device = device("gpu-3")?;
    for row in rows::<ExpressionRow>("expressions.jsonl")? {
        let text = &row.expression;
        let compiled = cel::compile(text, &Budget::unlimited());
        assert_eq!(compiled.is_err(), row.compile_error.is_some(), "{text}: {compiled:?}");
        let Ok(compiled) = compiled else { continue };
        let matches = compiled.matches(&device, &Budget::unlimited());
        assert_eq!(matches.is_err(), row.runtime_error.is_some(), "{text}: {matches:?}");
        assert_eq!(matches.unwrap_or_default(), row.matches, "{text}");
    }
    Ok(())
}
