//! Runs the seeds of the fuzz targets and the inputs that fuzzing found.
#![expect(clippy::disallowed_methods, reason = "seeds are files")]
#![expect(clippy::unwrap_used, reason = "a test's setup may panic")]

#[path = "hostile/check.rs"]
mod check;

use std::fs;
use std::path::Path;

/// The corpus of a fuzz target; must not be empty.
fn corpus(target: &str) -> Vec<Vec<u8>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/seeds").join(target);
    let files = fs::read_dir(folder).unwrap();
    let files: Vec<_> = files.map(|file| fs::read(file.unwrap().path()).unwrap()).collect();
    assert!(!files.is_empty(), "{target}");
    files
}

#[test]
fn expressions() {
    for bytes in corpus("expression") {
        check::expression(&String::from_utf8(bytes).unwrap());
    }
}

/// Deep and long expressions, in every way that the grammar allows.
#[test]
fn nested_expressions() {
    const DEPTH: usize = 5_000;
    let doubled = |start: &str, step: fn(usize) -> String, end: &str| {
        let binds = (0..60).map(|n| format!("cel.bind(v{}, {}, ", n + 1, step(n)));
        let binds: String = binds.collect();
        format!("cel.bind(v0, {start}, {binds}{end}{}", ")".repeat(61))
    };
    for expression in [
        format!("{}1{}", "(".repeat(DEPTH), ")".repeat(DEPTH)),
        format!("{}1{}", "[".repeat(DEPTH), "]".repeat(DEPTH)),
        format!("{}true", "!".repeat(DEPTH)),
        format!("{}1 == 1", "-".repeat(DEPTH)),
        format!("device{} == 1", ".a".repeat(DEPTH)),
        format!("device{} == 1", "[0]".repeat(DEPTH / 2)),
        format!("true{}", " && true".repeat(1000)),
        format!("1{} == 2", " + 1".repeat(2000)),
        format!("true{}", " ? true : true".repeat(700)),
        format!("[0]{} == []", ".map(x, x)".repeat(700)),
        doubled("\"abcdefgh\"", |n| format!("v{n} + v{n}"), "v60 == v60"),
        doubled("[1, 2]", |n| format!("v{n} + v{n}"), "v60 == v60"),
        doubled("[1, 2]", |n| format!("[v{n}, v{n}]"), "v60 == v60"),
        "lists.range(1000000).map(a, lists.range(1000000).map(b, a + b)).size() == 1".to_owned(),
        "lists.range(100000).distinct().size() == 1".to_owned(),
        "sets.contains(lists.range(100000), lists.range(100000))".to_owned(),
        "lists.range(1000000).all(x, \"a\".matches(\"(a{100}){100}\" + string(x)))".to_owned(),
        "[1,2,3].all(a, lists.range(500000).map(x, string(x)).join(\"-\").replace(\"\", \"xxxxxxxx\").size() > a)"
            .to_owned(),
    ] {
        check::expression(&expression);
    }
}

#[test]
fn slices() {
    for bytes in corpus("slice") {
        check::slice(&bytes);
    }
}

#[test]
fn claims() {
    for bytes in corpus("claim") {
        check::claim(&bytes);
    }
}
