//! A suite: a test binary with one control plane and many tests.
//!
//! The binary has `harness = false` and a `main` that calls [`run`]. It starts the control plane,
//! runs the tests with libtest's command line (name filter, `--list`, `--test-threads`), and stops
//! the control plane before it returns. The standard harness would need a `static`, which is never
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

use futures::{FutureExt, future::LocalBoxFuture};
use libtest_mimic::{Arguments, Failed, Trial};
use tokio::{runtime::Runtime, sync::RwLock};

use crate::{
    control_plane::{ControlPlane, Options},
    process::Log,
};

/// The number of lines of each log shown with a failure.
const TAIL: usize = 15;

type Body =
    Box<dyn FnOnce(Arc<ControlPlane>) -> LocalBoxFuture<'static, anyhow::Result<()>> + Send>;

/// A test on the control plane. It fails with an error or a panic.
pub struct Test {
    name: String,
    alone: bool,
    body: Body,
}

impl Test {
    /// Creates a test from an asynchronous function; [`tests!`](crate::tests) names it.
    pub fn new<F, T>(name: &str, body: F) -> Self
    where
        F: FnOnce(Arc<ControlPlane>) -> T + Send + 'static,
        T: Future<Output = anyhow::Result<()>> + 'static,
    {
        Self {
            name: name.to_owned(),
            alone: false,
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
pub fn run(options: Options, tests: impl IntoIterator<Item = Test>) -> ExitCode {
    let arguments = Arguments::from_args();
    let runtime = match Runtime::new() {
        Ok(runtime) => Arc::new(runtime),
        Err(error) => return refuse(&error.into()),
    };
    let suite = if arguments.list {
        Arc::new(Suite { runtime, plane: None, turn: RwLock::new(()) })
    } else {
        let plane = match runtime.block_on(ControlPlane::start(options)) {
            Ok(plane) => Arc::new(plane),
            Err(error) => return refuse(&error.context("the control plane did not start")),
        };
        report(&format!("control plane ready after {:.1?}", plane.started_in()));
        Arc::new(Suite { runtime, plane: Some(plane), turn: RwLock::new(()) })
    };
    let trials = tests.into_iter().map(|test| suite.trial(test)).collect();
    libtest_mimic::run(&arguments, trials).exit_code()
}

struct Suite {
    runtime: Arc<Runtime>,
    plane: Option<Arc<ControlPlane>>,
    /// A test that runs alone holds it for writing.
    turn: RwLock<()>,
}

impl Suite {
    fn trial(self: &Arc<Self>, test: Test) -> Trial {
        let Test { name, alone, body } = test;
        // Drops the crate's name in front of the module path.
        let name = name.split_once("::").map_or(&*name, |(_, rest)| rest).to_owned();
        let suite = Arc::clone(self);
        Trial::test(name, move || suite.run(alone, body))
    }

    fn run(&self, alone: bool, body: Body) -> Result<(), Failed> {
        let plane = self.plane.as_ref().ok_or("only listed tests have no control plane")?;
        let turn = async || {
            if alone {
                (Some(self.turn.write().await), None)
            } else {
                (None, Some(self.turn.read().await))
            }
        };
        let test = async {
            let _turn = turn().await;
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
        };
        self.runtime.block_on(test)
    }
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

#[expect(clippy::print_stderr, reason = "a suite reports to the person who runs it")]
pub(crate) fn report(line: &str) {
    eprintln!("{line}");
}

fn refuse(error: &anyhow::Error) -> ExitCode {
    report(&format!("error: {error:#}"));
    ExitCode::FAILURE
}
