//! What a person may set for a run of the tests, as `tests/run --help` says it.

use std::{env, fmt::Display, str::FromStr};

use anyhow::anyhow;

/// The value of an environment variable, or this one where it is not set.
///
/// # Errors
///
/// It is set to what is no such value: the error names it.
#[expect(clippy::disallowed_methods, reason = "a test binary has no arguments of its own")]
pub fn setting<T: FromStr<Err: Display>>(name: &str, default: T) -> anyhow::Result<T> {
    let Ok(text) = env::var(name) else { return Ok(default) };
    text.parse().map_err(|error| anyhow!("${name} is `{text}`: {error}"))
}
