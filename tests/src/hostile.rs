//! What attackers try, and what must come of it: the rows of the suite `hostile`, of its report and
//! of the table in `docs/operate/security.md`.
//!
//! To add an attempt, add a row to a file of this folder and its test to a file of
//! `tests/tests/hostile`. If another suite has the test already, the row names that suite.

mod claims;
mod connections;
mod outages;
mod tokens;
mod webhook;

use std::{
    collections::BTreeMap,
    fmt::Write,
    sync::{Arc, Mutex, PoisonError},
};

use futures::FutureExt;

use crate::{
    control_plane::ControlPlane,
    suite::{Test, report},
};

/// The suite that has the tests of rows that name no other.
pub const SUITE: &str = "hostile";

/// An attempt, and what must come of it.
#[derive(Clone, Copy, Debug)]
pub struct Attempt {
    /// What is tried, and with which permissions.
    pub attempt: &'static str,
    /// What must come of it.
    pub expected: &'static str,
    /// The name of its test, without modules.
    pub test: &'static str,
    /// The suite of that test.
    pub suite: &'static str,
}

impl Attempt {
    /// A row of the suite `hostile`.
    const fn here(test: &'static str, attempt: &'static str, expected: &'static str) -> Self {
        Self { attempt, expected, test, suite: SUITE }
    }

    /// A row whose test is in another suite.
    const fn in_suite(
        suite: &'static str,
        test: &'static str,
        attempt: &'static str,
        expected: &'static str,
    ) -> Self {
        Self { attempt, expected, test, suite }
    }
}

/// The attempts by subject.
pub const SUBJECTS: &[(&str, &[Attempt])] = &[
    ("Stolen tokens", tokens::ATTEMPTS),
    ("Claims and pods of tenants", claims::ATTEMPTS),
    ("Requests to the webhook", webhook::ATTEMPTS),
    ("Connections", connections::ATTEMPTS),
    ("Outages and clocks", outages::ATTEMPTS),
];

/// All attempts.
pub fn attempts() -> impl Iterator<Item = &'static Attempt> {
    SUBJECTS.iter().flat_map(|(_, attempts)| *attempts)
}

/// The table of the documentation.
pub fn table() -> String {
    let mut text = String::new();
    for (subject, attempts) in SUBJECTS.iter().filter(|(_, attempts)| !attempts.is_empty()) {
        // Writing to a string does not fail.
        let _ = write!(text, "\n### {subject}\n\n| Attempt | Result | Test |\n|---|---|---|\n");
        for Attempt { attempt, expected, test, suite } in *attempts {
            let _ = writeln!(text, "| {attempt} | {expected} | `{test}` (`{suite}`) |");
        }
    }
    text
}

/// What the tests of this run have seen.
static SEEN: Mutex<BTreeMap<String, String>> = Mutex::new(BTreeMap::new());

/// Creates a test of the suite from a function that returns what it has seen. The row of the
/// attempt has its name.
pub fn attempt<F, T>(name: &'static str, body: F) -> Test
where
    F: Fn(Arc<ControlPlane>) -> T + Send + 'static,
    T: Future<Output = anyhow::Result<String>> + 'static,
{
    Test::new(name, move |plane| {
        body(plane).map(move |seen| {
            let outcome = match &seen {
                Ok(seen) => seen.clone(),
                Err(error) => format!("FAILED: {error:#}"),
            };
            let test = name.rsplit("::").next().unwrap_or(name).to_owned();
            SEEN.lock().unwrap_or_else(PoisonError::into_inner).insert(test, outcome);
            seen.map(drop)
        })
    })
}

/// Creates a `Vec<Test>` from functions that return what they have seen, named by module and
/// function.
#[macro_export]
macro_rules! attempts {
    ($($function:path),* $(,)?) => {
        vec![$($crate::hostile::attempt(
            concat!(module_path!(), "::", stringify!($function)),
            $function,
        )),*]
    };
}

/// Prints what came of the attempts that this run has made.
pub fn print_seen() {
    let seen = SEEN.lock().unwrap_or_else(PoisonError::into_inner);
    let mut text = "\n| Attempt | Expected | Seen |\n|---|---|---|".to_owned();
    for row in attempts() {
        if let Some(seen) = seen.get(row.test) {
            let seen = seen.lines().collect::<Vec<_>>().join(" ");
            let _ = write!(text, "\n| {} | {} | {seen} |", row.attempt, row.expected);
        }
    }
    report(&text);
}
