//! A suite: a test binary with one or two control planes and many tests.
//!
//! The binary has `harness = false` and a `main` that calls [`run`]. It starts the control planes,
//! runs the tests with libtest's command line (name filter, `--list`, `--test-threads`), and stops
//! the control planes before it returns. The standard harness would need a `static`, which is never
//! dropped.

use std::{
    any::Any,
    collections::BTreeMap,
    fmt::{self, Write},
    fs,
    panic::AssertUnwindSafe,
    path::{Path, PathBuf},
    process::ExitCode,
    sync::Arc,
};

use futures::{
    FutureExt,
    future::{LocalBoxFuture, select_all},
};
use libtest_mimic::{Arguments, Failed, Trial};
use tokio::{
    runtime::Runtime,
    sync::{RwLock, RwLockReadGuard, RwLockWriteGuard},
};

use crate::{
    control_plane::{ControlPlane, Options},
    process::Log,
};

/// The number of lines of each log shown with a failure.
const TAIL: usize = 15;

type Body = Box<dyn Fn(Arc<ControlPlane>) -> LocalBoxFuture<'static, anyhow::Result<()>> + Send>;

/// A test on the control plane. It fails with an error or a panic.
pub struct Test {
    name: String,
    alone: bool,
    tries: usize,
    body: Body,
}

impl Test {
    /// Creates a test from an asynchronous function; [`tests!`](crate::tests) names it.
    pub fn new<F, T>(name: &str, body: F) -> Self
    where
        F: Fn(Arc<ControlPlane>) -> T + Send + 'static,
        T: Future<Output = anyhow::Result<()>> + 'static,
    {
        Self {
            name: name.to_owned(),
            alone: false,
            tries: 1,
            body: Box::new(move |plane| body(plane).boxed_local()),
        }
    }

    /// Prevents other tests from running at the same time. For tests of what exists once per
    /// cluster: a webhook, the scheduler's configuration, the set of all nodes.
    #[must_use]
    pub fn alone(mut self) -> Self {
        self.alone = true;
        self
    }

    /// Runs the test once more if it fails; both results are printed. For tests on emulated
    /// machines only: a fault of the emulator does not come back, a fault of ours does.
    #[must_use]
    pub fn twice_if_it_fails(mut self) -> Self {
        self.tries = 2;
        self
    }

    /// The name of its function, without modules.
    pub fn function(&self) -> &str {
        self.name.rsplit("::").next().unwrap_or(&self.name)
    }
}

impl fmt::Debug for Test {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Test")
            .field("name", &self.name)
            .field("alone", &self.alone)
            .finish_non_exhaustive()
    }
}

/// Creates a `Vec<Test>` from asynchronous functions, named by module and function.
#[macro_export]
macro_rules! tests {
    ($($function:path),* $(,)?) => {
        vec![$($crate::suite::Test::new(
            concat!(module_path!(), "::", stringify!($function)),
            $function,
        )),*]
    };
}

/// Runs the tests on one control plane, started with `options`.
///
/// Returns the exit code of the process. Nothing that was started is still running then.
pub fn run(options: &Options, tests: impl IntoIterator<Item = Test>) -> ExitCode {
    run_on(1, options, tests)
}

/// Runs the tests on `count` equal control planes: tests that need a cluster for themselves then
/// run at the same time. The first control plane has the tests that share one.
///
/// Returns the exit code of the process. Nothing that was started is still running then.
pub fn run_on(count: usize, options: &Options, tests: impl IntoIterator<Item = Test>) -> ExitCode {
    let mut arguments = Arguments::from_args();
    // Most tests wait for Kubernetes, and some for their turn.
    arguments.test_threads = arguments.test_threads.or(Some(2 * count));
    let runtime = match Runtime::new() {
        Ok(runtime) => Arc::new(runtime),
        Err(error) => return refuse(&error.into()),
    };
    let mut suite = Suite { runtime: Arc::clone(&runtime), sites: Vec::new() };
    if !arguments.list {
        for _ in 0..count {
            let plane = match runtime.block_on(ControlPlane::start(options.clone())) {
                Ok(plane) => plane,
                Err(error) => return refuse(&error.context("the control plane did not start")),
            };
            report(&format!("control plane ready after {:.1?}", plane.started_in()));
            suite.sites.push(Site { plane: Arc::new(plane), turn: RwLock::new(()) });
        }
    }
    let suite = Arc::new(suite);
    let trials = tests.into_iter().map(|test| suite.trial(test)).collect();
    libtest_mimic::run(&arguments, trials).exit_code()
}

/// Runs each test on a control plane of its own, `together` of them at the same time: for tests that leave behind
/// what cannot be removed soon.
///
/// Returns the exit code of the process. Nothing that was started is still running then.
pub fn run_apart(
    together: usize,
    options: &Options,
    tests: impl IntoIterator<Item = Test>,
) -> ExitCode {
    let mut arguments = Arguments::from_args();
    arguments.test_threads = arguments.test_threads.or(Some(together));
    let runtime = match Runtime::new() {
        Ok(runtime) => Arc::new(runtime),
        Err(error) => return refuse(&error.into()),
    };
    let trials = tests.into_iter().map(|test| {
        let (runtime, options) = (Arc::clone(&runtime), options.clone());
        let Test { name, body, .. } = test;
        Trial::test(without_crate(&name), move || {
            runtime.block_on(async {
                let plane = ControlPlane::start(options).await;
                let plane = plane.map_err(|error| format!("no control plane: {error:#}"))?;
                judged(&Arc::new(plane), &body).await
            })
        })
    });
    libtest_mimic::run(&arguments, trials.collect()).exit_code()
}

struct Suite {
    runtime: Arc<Runtime>,
    /// Empty if the tests are only listed.
    sites: Vec<Site>,
}

/// A control plane, and who may use it.
struct Site {
    plane: Arc<ControlPlane>,
    /// A test that runs alone holds it for writing.
    turn: RwLock<()>,
}

/// Held by a test while it uses a control plane.
enum Turn<'s> {
    Alone(#[expect(dead_code, reason = "it is released when dropped")] RwLockWriteGuard<'s, ()>),
    Shared(#[expect(dead_code, reason = "it is released when dropped")] RwLockReadGuard<'s, ()>),
}

impl Suite {
    fn trial(self: &Arc<Self>, test: Test) -> Trial {
        let Test { name, alone, tries, body } = test;
        let name = without_crate(&name);
        let suite = Arc::clone(self);
        Trial::test(name.clone(), move || {
            for number in 1..tries {
                let Err(failed) = suite.run(alone, &body) else {
                    return Ok(());
                };
                let message = failed.message().unwrap_or_default();
                report(&format!("{name}, try {number}, failed:\n{message}\n{name} runs again"));
            }
            suite.run(alone, &body)
        })
    }

    fn run(&self, alone: bool, body: &Body) -> Result<(), Failed> {
        let first = self.sites.first().ok_or("only listed tests have no control plane")?;
        let test = async {
            let (site, _turn) = if alone {
                self.free().await
            } else {
                (first, Turn::Shared(first.turn.read().await))
            };
            judged(&site.plane, body).await
        };
        self.runtime.block_on(test)
    }

    /// The first control plane that no test uses, from the last to the first: the tests that share
    /// the first one need not wait for a test that can run elsewhere.
    async fn free(&self) -> (&Site, Turn<'_>) {
        let turns = self.sites.iter().rev().map(Site::alone);
        select_all(turns.map(FutureExt::boxed_local)).await.0
    }
}

impl Site {
    async fn alone(&self) -> (&Self, Turn<'_>) {
        (self, Turn::Alone(self.turn.write().await))
    }
}

/// A module path without the crate's name.
fn without_crate(name: &str) -> String {
    name.split_once("::").map_or(name, |(_, rest)| rest).to_owned()
}

/// Runs a test on a control plane; what every program wrote meanwhile is shown with a failure.
async fn judged(plane: &Arc<ControlPlane>, body: &Body) -> Result<(), Failed> {
    let marks = log_lengths(&plane.logs());
    let result = AssertUnwindSafe(body(Arc::clone(plane))).catch_unwind().await;
    let failure = match result {
        Ok(Ok(())) => return Ok(()),
        // A backtrace would show only the runtime.
        Ok(Err(error)) => format!("{error:#}"),
        Err(panic) => format!("panicked: {}", panic_message(panic.as_ref())),
    };
    // The failure comes last, since a truncated report keeps its end.
    Err(Failed::from(format!("{}\n--- failure\n{failure}", tails(&plane.logs(), &marks))))
}

fn panic_message(panic: &(dyn Any + Send)) -> &str {
    panic
        .downcast_ref::<String>()
        .map(String::as_str)
        .or_else(|| panic.downcast_ref::<&str>().copied())
        .unwrap_or("(no message)")
}

fn log_lengths(logs: &Path) -> BTreeMap<PathBuf, u64> {
    let entries = fs::read_dir(logs).into_iter().flatten().flatten();
    entries.map(|entry| (entry.path(), Log::at(entry.path()).len())).collect()
}

/// What each program has written beyond the log lengths in `marks`.
fn tails(logs: &Path, marks: &BTreeMap<PathBuf, u64>) -> String {
    let mut text = String::new();
    for path in log_lengths(logs).into_keys() {
        let from = marks.get(&path).copied().unwrap_or_default();
        let tail = Log::at(&path).tail(TAIL, from);
        if !tail.is_empty() {
            let name = path.file_name().unwrap_or_default().display();
            // Writing to a string does not fail.
            let _ = write!(text, "\n--- {name}, last lines during this test\n{tail}");
        }
    }
    text
}

/// Prints a line for the person who runs the suite.
#[expect(clippy::print_stderr, reason = "a suite reports to the person who runs it")]
pub fn report(line: &str) {
    eprintln!("{line}");
}

fn refuse(error: &anyhow::Error) -> ExitCode {
    report(&format!("error: {error:#}"));
    ExitCode::FAILURE
}
