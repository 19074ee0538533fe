//! Parses an expression, on a thread of its own.
//!
//! The parser is recursive: it takes up to 16 kilobytes of stack for each open bracket, and a kilobyte
//! for each operator of a chain. A thread whose stack fits the deepest text keeps this away from the
//! stack of the caller, which may be at the bottom of a deep search.

use std::thread;

use cel::common::ast::{EntryExpr, Expr, IdedExpr};
use cel::parser::Parser;

use super::error::CompileError;

/// The longest expression that the API allows (`CELSelectorExpressionMaxLength`).
const MAX_LENGTH: usize = 10 * 1024;

/// The recursion that cel-go allows (`WithMaxRecursionDepth`, by default 250). Its parser counts
/// each rule of the grammar for itself.
const MAX_RECURSION: u16 = 250;

/// The deepest tree that is compiled and evaluated. Macros make a tree deeper than its text.
const MAX_DEPTH: usize = 500;

/// The stack of the parser, in bytes. Only what is used takes memory. An unoptimised build uses four
/// megabytes for [`MAX_RECURSION`] brackets, and seven for a chain of [`MAX_LENGTH`].
const STACK: usize = 32 << 20;

/// Parses an expression. The tree is at most [`MAX_DEPTH`] deep.
pub(super) fn parse(expression: &str) -> Result<IdedExpr, CompileError> {
    if expression.len() > MAX_LENGTH {
        return Err(CompileError::Invalid(format!("longer than {MAX_LENGTH} bytes")));
    }
    thread::scope(|scope| {
        let parser = thread::Builder::new().name("parser".to_owned()).stack_size(STACK);
        let parsed = parser.spawn_scoped(scope, || parse_here(expression));
        let parsed = parsed.map_err(|error| CompileError::Unsupported(error.to_string()))?;
        parsed.join().unwrap_or_else(|_| Err(CompileError::Unsupported("this syntax".to_owned())))
    })
}

fn parse_here(expression: &str) -> Result<IdedExpr, CompileError> {
    let parser = Parser::new()
        .max_recursion_depth(MAX_RECURSION)
        .enable_optional_syntax(true)
        .enable_ident_escape_syntax(true);
    let tree = parser.parse(expression).map_err(|e| CompileError::Invalid(e.to_string()))?;
    // A tree that is too deep is also dropped here.
    if is_deeper(&tree, MAX_DEPTH) {
        return Err(CompileError::Unsupported(format!("nesting over {MAX_DEPTH} levels")));
    }
    Ok(tree)
}

/// Returns true if a tree has more levels than this. Not recursive.
fn is_deeper(tree: &IdedExpr, levels: usize) -> bool {
    let mut open = vec![(tree, 1)];
    while let Some((tree, level)) = open.pop() {
        if level > levels {
            return true;
        }
        open.extend(children(tree).into_iter().map(|child| (child, level + 1)));
    }
    false
}

fn children(tree: &IdedExpr) -> Vec<&IdedExpr> {
    match &tree.expr {
        Expr::Unspecified | Expr::Literal(_) | Expr::Ident(_) => Vec::new(),
        Expr::Select(select) => vec![&select.operand],
        Expr::Call(call) => call.target.as_deref().into_iter().chain(&call.args).collect(),
        Expr::List(list) => list.elements.iter().collect(),
        Expr::Map(map) => map.entries.iter().flat_map(|entry| parts(&entry.expr)).collect(),
        Expr::Struct(structure) => {
            structure.entries.iter().flat_map(|entry| parts(&entry.expr)).collect()
        }
        Expr::Comprehension(it) => {
            vec![&it.iter_range, &it.accu_init, &it.loop_cond, &it.loop_step, &it.result]
        }
    }
}

fn parts(entry: &EntryExpr) -> Vec<&IdedExpr> {
    match entry {
        EntryExpr::MapEntry(entry) => vec![&entry.key, &entry.value],
        EntryExpr::StructField(field) => vec![&field.value],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn nested(open: &str, inner: &str, close: &str, depth: usize) -> String {
        format!("{}{inner}{}", open.repeat(depth), close.repeat(depth))
    }

    /// Every way in which a text of the longest allowed length can be deep.
    #[test]
    fn deep_texts_are_parsed_or_refused() {
        let chain = |step: &str| {
            let times = (MAX_LENGTH - 10) / step.len();
            format!("device{}", step.repeat(times))
        };
        let chains = [" in 1", "+1", "==1", "<1", ".a", "[0]", ".?a", "[?0]", "?1:1", "?a&&1:1"];
        let macros = [".map(x,x)", ".all(x,x)", ".optMap(x,x)"];
        let texts = chains.into_iter().chain(macros).map(chain);
        let broken = ["' (", "\" [", "1 1", "a?", "{a:", "((((", "'''", "\\", "x.map(x,"];
        let broken = broken.map(chain);
        let brackets = ["(|)", "[|]", "{1:|}", "!(|)", "-(|)", "f(|)", "[{1:f(!(-(|)))}]"];
        let brackets = brackets.map(|pair| {
            let (open, close) = pair.split_once('|').unwrap();
            nested(open, "1", close, (MAX_LENGTH - 10) / (pair.len() - 1))
        });
        for text in texts.chain(broken).chain(brackets) {
            assert!(parse(&text).is_err(), "{text:.40}");
        }
    }

    #[test]
    fn as_deep_as_kubernetes_allows() {
        for text in [
            format!("1{}", " in 1".repeat(249)),
            format!("device{}", ".a".repeat(249)),
            nested("(", "1", ")", 249),
            nested("[", "1", "]", 249),
            nested("true && (", "true", ")", 200),
        ] {
            assert!(parse(&text).is_ok(), "{text:.40}");
        }
        assert!(parse(&nested("[", "1", "]", 251)).is_err());
    }
}
