//! Settings of a test run from the environment; `tests/run --help` lists them.

use std::{env, fmt::Display, str::FromStr};

use anyhow::anyhow;

/// The value of an environment variable, or the default if it is not set.
///
/// # Errors
///
/// Fails if the variable has an invalid value; the error names the variable.
#[expect(clippy::disallowed_methods, reason = "a test binary has no arguments of its own")]
pub fn setting<T: FromStr<Err: Display>>(name: &str, default: T) -> anyhow::Result<T> {
    let Ok(text) = env::var(name) else { return Ok(default) };
    text.parse().map_err(|error| anyhow!("${name} is `{text}`: {error}"))
}
