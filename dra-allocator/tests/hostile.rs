//! Runs the seeds of the fuzz targets and the inputs that fuzzing found.
#![expect(clippy::disallowed_methods, reason = "seeds are files")]
#![expect(clippy::unwrap_used, reason = "a test's setup may panic")]

#[path = "hostile/check.rs"]
mod check;

use std::cell::Cell;
use std::fs;
use std::path::Path;
use std::thread;

use dra_allocator::cel::{self, CompileError, ErrorClass, Selector};
use dra_allocator::{
    AllocatedState, Budget, Claim, Inventory, Limits, MinorVersion, Outcome, Settings, allocate,
};
use k8s_openapi::api::resource::v1::ResourceClaim;
use serde_json::json;

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

#[test]
fn patterns() {
    for bytes in corpus("pattern") {
        check::pattern(&String::from_utf8(bytes).unwrap());
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

/// The smallest stack of the programs' threads: the default of Rust and of tokio.
const STACK: usize = 2 << 20;

/// Compiles, evaluates and drops on a thread with the smallest stack.
fn on_a_small_stack(check: impl FnOnce() + Send) {
    thread::scope(|scope| {
        let thread = thread::Builder::new().stack_size(STACK).spawn_scoped(scope, check).unwrap();
        thread.join().unwrap();
    });
}

/// One unauthenticated request with `1 in 1 in 1 …` ended admission, since `in` was not counted.
#[test]
fn deep_expressions_fit_the_smallest_stack() {
    let fold = |start: &str, step: &str, depth| format!("{start}{}", step.repeat(depth));
    let nested = |open: &str, inner: &str, close: &str, depth| {
        format!("{}{inner}{}", open.repeat(depth), close.repeat(depth))
    };
    for expression in [
        fold("1", " in 1", 2046),
        fold("1", " in 1", 490),
        format!("{} == 491", fold("1", " + 1", 490)),
        nested("(true ? ", "true", " : false)", 240),
        nested("[0].all(x, ", "true", ")", 120),
        nested("[0].map(x, ", "x", ")", 90) + " == []",
        nested("cel.bind(x, 1, ", "true", ")", 200),
        nested("[", "1", "]", 240) + " == []",
        nested("{1:", "1", "}", 240) + " == {}",
        fold("{}", ".?a", 490) + " == {}",
        nested("optional.of(", "1", ")", 200) + " == 1",
    ] {
        on_a_small_stack(|| check::expression(&expression));
    }
}

/// The deepest search, with the deepest expression at its end.
#[test]
fn the_deepest_search_evaluates_the_deepest_expression() {
    const CLAIMS: usize = 55;
    on_a_small_stack(|| {
        let deep = format!("1{} == 491", " + 1".repeat(490));
        let devices = |from: usize| (from..from + 128).map(|n| json!({"name": format!("d{n}")}));
        let mut inventory = Inventory::new();
        for number in 0..14 {
            let slice = json!({
                "metadata": {"name": format!("s{number}")},
                "spec": {
                    "driver": "d", "nodeName": "n",
                    "pool": {"name": "p", "generation": 1, "resourceSliceCount": 14},
                    "devices": devices(number * 128).collect::<Vec<_>>(),
                },
            });
            inventory.apply_slice(&serde_json::from_value(slice).unwrap()).unwrap();
        }
        let class = json!({"metadata": {"name": "c"}, "spec": {}});
        inventory.apply_class(&serde_json::from_value(class).unwrap()).unwrap();
        let claim = |number: usize| {
            let last = number + 1 == CLAIMS;
            let selectors = if last { json!([{"cel": {"expression": deep}}]) } else { json!([]) };
            let exactly = json!({"deviceClassName": "c", "count": 32, "selectors": selectors});
            let claim = json!({
                "metadata": {"name": format!("c{number}")},
                "spec": {"devices": {"requests": [{"name": "r", "exactly": exactly}]}},
            });
            Claim::try_from(&serde_json::from_value::<ResourceClaim>(claim).unwrap()).unwrap()
        };
        let claims: Vec<_> = (0..CLAIMS).map(claim).collect();
        let (state, settings) = (AllocatedState::new(), Settings::defaults_of(MinorVersion::V1_37));
        let attempt =
            allocate(&inventory, "n", &claims, &state, &settings, Limits::steps(1_000_000));
        assert!(matches!(attempt.outcome, Outcome::Allocated(_)), "{:?}", attempt.outcome);
    });
}

/// 9 KB of alternatives that kube-scheduler evaluates in milliseconds, and that took minutes here.
#[test]
fn patterns_that_are_cheap_for_kubernetes_are_cheap() {
    let alternatives = |number: usize| {
        let pattern = |n: usize| format!(r"'x'.matches('(\\pL{{400}}){number}x{n}')");
        (0..60).map(pattern).collect::<Vec<_>>().join(" || ")
    };
    let budget = Budget::of_work(10_000_000);
    for number in 0..4 {
        let compiled = cel::compile(&alternatives(number), &budget).unwrap();
        assert_eq!(check::on_a_device(&compiled, &budget), Ok(false));
    }
    for (expression, expected) in [
        (r"'x'.matches('\\pL{1000}')", false),
        (r"lists.range(1000).map(x, 'ä').join().matches('^\\pL{1000}$')", true),
        (r"'aab'.find('(\\pL{1000}|a)*b') == 'aab'", true),
    ] {
        let compiled = cel::compile(expression, &budget).unwrap();
        assert_eq!(check::on_a_device(&compiled, &budget), Ok(expected), "{expression}");
    }
}

/// Work that Kubernetes accepts but that is not worth doing here.
#[test]
fn a_spent_budget_ends_compilation_and_evaluation() {
    let heavy = "lists.range(400).all(a, lists.range(400).all(b, a + b >= 0))";
    let compiled = cel::compile(heavy, &Budget::unlimited()).unwrap();
    let spent = check::on_a_device(&compiled, &Budget::of_work(10_000)).unwrap_err();
    assert_eq!(spent.class, ErrorClass::OutOfBudget);
    let asked = Cell::new(0);
    let stop = || {
        asked.set(asked.get() + 1);
        asked.get() > 20
    };
    let stopped = check::on_a_device(&compiled, &Budget::until(&stop)).unwrap_err();
    assert_eq!((stopped.class, asked.get()), (ErrorClass::OutOfBudget, 21));
    assert_eq!(check::on_a_device(&compiled, &Budget::unlimited()), Ok(true));

    let selector = Selector::new(r"'x'.matches('(?i)[a-\\x{10ffff}]')");
    let compiled = selector.compiled(&Budget::of_work(20_000));
    assert!(matches!(compiled, Err(CompileError::OutOfBudget)), "{compiled:?}");
    selector.compiled(&Budget::unlimited()).expect("a spent budget is not remembered");
}

/// Neither what errors absorb nor a loop's condition makes a result of a spent budget.
#[test]
fn a_spent_budget_is_never_a_result() {
    let heavy = "lists.range(100).all(x, x >= 0)";
    for expression in [
        format!("{heavy} || true"),
        format!("!({heavy} && false)"),
        format!("[1, 2].exists(x, {heavy} || x == 2)"),
        format!("[1, 2].all(x, {heavy} || true)"),
        format!("({heavy} ? true : true) || true"),
        format!("[1].exists_one(x, {heavy})"),
    ] {
        let unlimited = Budget::unlimited();
        let compiled = cel::compile(&expression, &unlimited).unwrap();
        let before = u64::MAX - unlimited.left();
        assert_eq!(check::on_a_device(&compiled, &unlimited), Ok(true), "{expression}");
        let needed = u64::MAX - unlimited.left() - before;
        for units in (1..needed).step_by(7).chain([needed - 1]) {
            let found = check::on_a_device(&compiled, &Budget::of_work(units));
            let class = found.map_err(|error| error.class);
            assert_eq!(class, Err(ErrorClass::OutOfBudget), "{expression} with {units}");
        }
        assert_eq!(check::on_a_device(&compiled, &Budget::of_work(needed)), Ok(true));
    }
}

/// Hostile claims are compiled without keeping what each of them takes.
#[test]
fn the_cache_of_selectors_forgets() {
    let large = "a{1000}".repeat(90);
    let text = |number: usize| format!("'x'.matches('{number}{large}')");
    let selectors: Vec<_> = (0..60).map(|number| Selector::new(text(number))).collect();
    let budget = Budget::unlimited();
    for selector in &selectors {
        selector.compiled(&budget).unwrap();
    }
    let spent = || Budget::of_work(1);
    let kept = selectors.iter().filter(|selector| selector.compiled(&spent()).is_ok()).count();
    assert!((1..40).contains(&kept), "{kept} of 60 compiled selectors are kept");
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
