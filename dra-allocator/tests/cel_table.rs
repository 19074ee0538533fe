//! Compares results and kinds of errors with the CEL tables from Kubernetes.
#![expect(clippy::disallowed_methods, reason = "tables are files")]
#![expect(clippy::panic, clippy::unwrap_used, reason = "a test's setup may panic")]

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use dra_allocator::cel::{self, ErrorClass};
use dra_allocator::{Budget, Device, Inventory, MinorVersion, Settings};

/// Expressions whose types Kubernetes rejects. The API server checks types, so this crate never
/// gets such an expression and does not reject it.
const NOT_CHECKED: &[&str] = &[
    "[device.attributes[\"gpu.example.com\"].index, device.attributes[\"gpu.example.com\"].index + 1] == [3, 4]",
    "device.capacity[\"gpu.example.com\"].memory >= quantity(\"80Gi\")",
];

/// Expressions that an API server of 1.36 rejects without the gate for list attributes, while the
/// scheduler's own environment supports them.
const NEEDS_GATE_IN_1_36: &[&str] = &["includes(", "nodes.exists("];

const SCALARS: &str = r#"
  model: {string: h200}
  name: {string: gpu-3}
  index: {int: 3}
  ok: {bool: true}
  ver: {version: 1.2.3}
  numa: {int: 0}
  uuid: {string: GPU-1}
  productName: {string: NVIDIA H200}
  resource.kubernetes.io/pcieRoot: {string: "pci0000:15"}
  resource.kubernetes.io/numaNode: {int: 0}
"#;

const LISTS: &str = r#"
  model: {strings: [h200, h100]}
  index: {ints: [3, 4]}
  ok: {bools: [true]}
  ver: {versions: [1.2.3]}
  names: {strings: [a]}
  resource.kubernetes.io/pcieRoot: {strings: ["pci0000:15"]}
  resource.kubernetes.io/numaNode: {ints: [0, 1]}
"#;

fn indented(text: &str) -> String {
    text.trim_matches('\n').lines().fold(String::new(), |all, line| all + "      " + line + "\n")
}

/// A device as the head of a table describes it.
fn device(attributes: &str, rest: &str) -> Device {
    let slice = format!(
        "metadata: {{name: s}}\nspec:\n  driver: gpu.example.com\n  nodeName: n\n  \
         pool: {{name: p, generation: 1, resourceSliceCount: 1}}\n  devices:\n  - name: d\n    \
         attributes:\n{}{rest}",
        indented(attributes)
    );
    let mut inventory = Inventory::new();
    inventory.apply_slice(&serde_saphyr::from_str(&slice).unwrap()).unwrap();
    let settings = Settings::defaults_of(MinorVersion::V1_37);
    inventory.devices_on("n", &settings).unwrap()[0].clone()
}

/// A verdict, or the kind of an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Outcome {
    Verdict(bool),
    Error(ErrorClass),
    CompileError,
}

fn expected(verdict: &str, error: &str) -> Outcome {
    let class = match error {
        "<nil>" => return Outcome::Verdict(verdict == "true"),
        _ if error.starts_with("no such key") => ErrorClass::NoSuchKey,
        _ if error.starts_with("no such overload") => ErrorClass::NoSuchOverload,
        _ if error.contains("expected iterable type") => ErrorClass::NoSuchOverload,
        _ if error.contains("could not be converted to bool") => ErrorClass::NotBool,
        _ => panic!("an error that the test does not know: {error}"),
    };
    Outcome::Error(class)
}

fn evaluate(expression: &str, device: &Device) -> Outcome {
    let Ok(compiled) = cel::compile(expression, &Budget::unlimited()) else {
        return Outcome::CompileError;
    };
    match compiled.matches(device, &Budget::unlimited()) {
        Ok(verdict) => Outcome::Verdict(verdict),
        Err(error) => Outcome::Error(error.class),
    }
}

fn read(file: &str) -> String {
    fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cel").join(file)).unwrap()
}

/// Parses `true <nil>` or `false no such key: x`.
fn split(outcome: &str) -> Outcome {
    let (verdict, error) = outcome.split_once(' ').unwrap();
    expected(verdict, error)
}

/// Compares a result and records a difference.
fn compare(differences: &mut String, expression: &str, device: &Device, expected: Outcome) {
    let ours = evaluate(expression, device);
    if ours != expected && !NOT_CHECKED.contains(&expression) {
        writeln!(differences, "{expression}\n  Kubernetes {expected:?}, we {ours:?}").unwrap();
    }
}

#[test]
fn kubernetes_1_37() {
    let capacity = "    capacity: {memory: {value: 141Gi}}\n    allowMultipleAllocations: true\n";
    let (scalar, list) = (device(SCALARS, capacity), device(LISTS, ""));
    let mut differences = String::new();
    let mut rows = 0;
    for line in read("kubernetes-1.37.1.txt").lines() {
        // The scheduler evaluates in the environment of stored expressions.
        let Some((gate, rest)) = line.split_once(" env=StoredExpressions ") else { continue };
        assert!(gate.starts_with("lists="), "{line}");
        rows += 1;
        if let Some((expression, _)) = rest.split_once(" => COMPILE ") {
            compare(&mut differences, expression, &scalar, Outcome::CompileError);
            continue;
        }
        let (expression, outcomes) = rest.split_once(" => cost ").unwrap();
        let (_, outcomes) = outcomes.split_once(" scalar ").unwrap();
        let (of_scalar, of_list) = outcomes.split_once(" | list ").unwrap();
        compare(&mut differences, expression, &scalar, split(of_scalar));
        compare(&mut differences, expression, &list, split(of_list));
    }
    assert!(differences.is_empty(), "{differences}");
    assert_eq!(rows, 152);
}

#[test]
fn kubernetes_1_36() {
    let capacity = "    capacity: {memory: {value: 80Gi}}\n";
    // The device of this table has another root.
    let scalars = SCALARS.replace("pci0000:15", "pci0000:00");
    let scalar = device(&scalars, capacity);
    let with_nodes = format!("{scalars}  nodes: {{ints: [0, 1]}}\n");
    let with_nodes = device(&with_nodes, capacity);
    let (mut gate, mut rows, mut differences) = (false, 0, String::new());
    for line in read("kubernetes-1.36.3.txt").lines() {
        if let Some(value) = line.strip_prefix("=== EnableListTypeAttributes=") {
            gate = value == "true";
        }
        let device = if gate { &with_nodes } else { &scalar };
        let outcome = if let Some((expression, rest)) = line.split_once(" => ") {
            let (outcome, _) = rest.split_once(" maxCost=").unwrap();
            Some((expression.trim(), split(&outcome.replacen("err=", "", 1))))
        } else {
            let refused = line.split_once(" COMPILE_ERR ");
            refused.map(|(expression, _)| (expression.trim(), Outcome::CompileError))
        };
        let Some((expression, outcome)) = outcome else { continue };
        rows += 1;
        if gate || !NEEDS_GATE_IN_1_36.iter().any(|part| expression.contains(part)) {
            compare(&mut differences, expression, device, outcome);
        }
    }
    assert!(differences.is_empty(), "{differences}");
    assert_eq!(rows, 126);
}
