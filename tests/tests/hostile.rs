//! The suite `hostile`: what tenants, stolen tokens and idle connections try, on the real control
//! plane. [`tests::hostile`] has the table of attempts; each of its rows that names this suite is a
//! test here, and each test has a row.

#![allow(clippy::panic, clippy::unwrap_used, reason = "a test may panic")]

mod hostile {
    pub(crate) mod connections;
    pub(crate) mod controllers;
    pub(crate) mod copies;
    pub(crate) mod damaged;
    pub(crate) mod expressions;
    pub(crate) mod faults;
    pub(crate) mod names;
    mod pods;
    pub(crate) mod preemptor;
    pub(crate) mod rights;
    pub(crate) mod tokens;
    pub(crate) mod unread;
    pub(crate) mod webhook;
}

use std::{collections::BTreeSet, process::ExitCode};

use hostile::{
    connections, controllers, copies, damaged, expressions, faults, names, preemptor, rights,
    tokens, unread, webhook,
};
use tests::{
    Options,
    hostile::{SUITE, attempts, print_seen},
    suite::{self, Test},
};

fn main() -> ExitCode {
    let all = [
        tokens::tests(),
        rights::tests(),
        controllers::tests(),
        preemptor::tests(),
        names::tests(),
        expressions::tests(),
        webhook::tests(),
        copies::tests(),
        connections::tests(),
        unread::tests(),
        faults::tests(),
        damaged::tests(),
    ];
    let all: Vec<Test> = all.into_iter().flatten().collect();
    let tests: BTreeSet<&str> = all.iter().map(Test::function).collect();
    let rows: BTreeSet<&str> =
        attempts().filter(|row| row.suite == SUITE).map(|row| row.test).collect();
    assert_eq!(tests, rows, "the tests (left) are the rows of the table (right)");
    let code = suite::run(&Options::default(), all);
    print_seen();
    code
}
