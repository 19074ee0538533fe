//! The functions `matches`, `find` and `findAll`, which search for a pattern.
//!
//! A literal pattern is compiled with the expression, as Kubernetes does (`RegexOptimization` of
//! cel-go). Any other is compiled when it is evaluated, and its size is charged each time.

use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError};

use super::error::{ErrorClass, RuntimeError};
use super::function::Evaluated;
use super::node::{CompiledPattern, SearchFunction};
use super::re2::{self, PatternError, Program};
use super::value::Value;
use super::work::Work;
use crate::budget::Budget;
use crate::hash::HashMap;

/// Calls one of the functions with the text, the pattern, and for `findAll` the most matches.
/// `literal` is the pattern if it was compiled with the expression.
pub(super) fn search(
    function: SearchFunction,
    arguments: &[Value],
    literal: Option<&CompiledPattern>,
    work: &mut Work<'_>,
) -> Evaluated {
    let (text, pattern, limit) = match arguments {
        [Value::String(text), Value::String(pattern)] => (text, pattern, -1),
        [Value::String(text), Value::String(pattern), Value::Int(limit)] => (text, pattern, *limit),
        _ => return Err(RuntimeError::no_such_overload()),
    };
    let program = match literal {
        Some(program) => program.clone(),
        None => compiled(pattern, work)?,
    };
    let program = program.as_ref().as_ref().map_err(runtime_error)?;
    // The search has a mark for each instruction.
    work.charge(1 + program.instructions() as u64 / 64)?;
    let search = re2::Search::new(program, text);
    let result = match function {
        SearchFunction::Matches => Value::Bool(search.matches(work)?),
        SearchFunction::Find => Value::string(search.first(work)?),
        SearchFunction::FindAll => {
            let limit = usize::try_from(limit).unwrap_or(usize::MAX);
            let all = search.all(limit, work)?;
            Value::list(all.into_iter().map(Value::string).collect())
        }
    };
    work.charge_value(&result)?;
    Ok(result)
}

/// Returns true if a regular expression of Go matches a text somewhere, as `MatchString` of Go's
/// `regexp`. `None` if it is malformed, or the budget is spent.
pub fn matches_pattern(pattern: &str, text: &str, budget: &Budget<'_>) -> Option<bool> {
    let mut work = Work::new(budget);
    let program = compiled(&pattern.into(), &mut work).ok()?;
    let program = program.as_ref().as_ref().ok()?;
    re2::Search::new(program, text).matches(&mut work).ok()
}

fn runtime_error(error: &PatternError) -> RuntimeError {
    match error {
        PatternError::Syntax(error) => RuntimeError::invalid(format!("Illegal regex: {error}")),
        PatternError::TooLarge => RuntimeError::new(ErrorClass::Unsupported, error.to_string()),
        PatternError::Spent => RuntimeError::out_of_budget(),
    }
}

/// The maximum number of remembered patterns.
const MAX_KNOWN: usize = 256;

/// The maximum total size of remembered patterns, in bytes.
const MAX_BYTES: usize = 8 << 20;

#[derive(Default)]
struct KnownPatterns {
    patterns: HashMap<Arc<str>, CompiledPattern>,
    bytes: usize,
}

/// The patterns that were compiled last. An expression usually builds the same one on each device.
static KNOWN: LazyLock<Mutex<KnownPatterns>> = LazyLock::new(Mutex::default);

/// Compiles a pattern, or remembers it. The charge is the same in both cases.
fn compiled(pattern: &Arc<str>, work: &mut Work<'_>) -> Result<CompiledPattern, RuntimeError> {
    work.charge(pattern.len() as u64)?;
    let remembered = known().patterns.get(pattern).cloned();
    let compiled = if let Some(compiled) = remembered {
        compiled
    } else {
        // Not under the lock: this takes up to some milliseconds.
        let compiled = Arc::new(re2::compile(pattern, work.budget()));
        remember(pattern, &compiled);
        compiled
    };
    work.charge(compiled.as_ref().as_ref().map_or(0, |program| program.bytes() as u64 / 16))?;
    Ok(compiled)
}

fn remember(pattern: &Arc<str>, compiled: &CompiledPattern) {
    if matches!(**compiled, Err(PatternError::Spent)) {
        return;
    }
    let bytes = pattern.len() + compiled.as_ref().as_ref().map_or(64, Program::bytes);
    let mut known = known();
    if known.patterns.len() >= MAX_KNOWN || known.bytes + bytes > MAX_BYTES {
        *known = KnownPatterns::default();
    }
    known.bytes += bytes;
    known.patterns.insert(pattern.clone(), compiled.clone());
}

fn known() -> MutexGuard<'static, KnownPatterns> {
    KNOWN.lock().unwrap_or_else(PoisonError::into_inner)
}
