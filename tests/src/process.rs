//! A program that lives no longer than the test that started it.
//!
//! - When it is dropped, also while a test panics, its whole process group is killed and the
//!   program itself is reaped.
//! - When the test process itself is killed, the kernel kills the program (but not what it
//!   started), by `PR_SET_PDEATHSIG`, which util-linux's `setpriv` sets and keeps over `execve`.
//!
//! That signal is sent when the *thread* that created the child ends. A single thread, which ends
//! with the process, therefore creates all children.

use std::{
    fmt,
    fs::{self, File},
    io::{self, Read, Seek, SeekFrom},
    os::unix::process::CommandExt,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::{LazyLock, Mutex, PoisonError, mpsc},
    thread,
    time::Duration,
};

use anyhow::Context;
use rustix::process::{
    Pid, Signal, WaitId, WaitIdOptions, kill_process, kill_process_group, waitid,
};

use crate::{
    eventually::{Check, eventually},
    readiness,
};

/// A program to start.
#[derive(Clone, Debug)]
pub struct Program {
    /// Its name in messages, and its log file's name before `.log`.
    pub name: String,
    /// The executable.
    pub path: PathBuf,
    /// Its arguments.
    pub args: Vec<String>,
    /// Additional environment variables.
    pub env: Vec<(String, String)>,
    /// The directory of its log file.
    pub logs: PathBuf,
}

impl Program {
    /// A program with the name of its executable, without arguments.
    pub fn new(path: impl Into<PathBuf>, logs: impl Into<PathBuf>) -> Self {
        let path = path.into();
        let name = path.file_name().map_or_else(String::new, |n| n.to_string_lossy().into_owned());
        Self { name, path, args: Vec::new(), env: Vec::new(), logs: logs.into() }
    }

    /// Appends arguments.
    #[must_use]
    pub fn args<S: Into<String>>(mut self, args: impl IntoIterator<Item = S>) -> Self {
        self.args.extend(args.into_iter().map(Into::into));
        self
    }

    /// Adds an environment variable.
    #[must_use]
    pub fn env(mut self, name: &str, value: &str) -> Self {
        self.env.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Sets another name, for a second program of the same kind.
    #[must_use]
    pub fn named(mut self, name: &str) -> Self {
        name.clone_into(&mut self.name);
        self
    }

    /// Starts the program.
    pub fn spawn(self) -> anyhow::Result<Process> {
        Process::spawn(self)
    }

    fn command(&self, log: File) -> io::Result<Command> {
        let mut command = Command::new("setpriv");
        command
            .args(["--pdeathsig", "KILL", "--"])
            .arg(&self.path)
            .args(&self.args)
            .envs(self.env.iter().map(|(name, value)| (name, value)))
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            .process_group(0);
        Ok(command)
    }
}

/// A running program; it is killed when dropped.
pub struct Process {
    name: String,
    child: Child,
    log: Log,
    /// The length of the log at the start, since another program may have written to it before.
    log_start: u64,
}

impl Process {
    fn spawn(program: Program) -> anyhow::Result<Self> {
        let path = &program.path;
        anyhow::ensure!(path.is_file(), "cannot start `{}`: it does not exist", path.display());
        let log = Log::at(program.logs.join(format!("{}.log", program.name)));
        let log_start = log.len();
        let child = log
            .create()
            .and_then(|file| program.command(file))
            .and_then(spawn_on_lasting_thread)
            .with_context(|| format!("failed to start `{}` by setpriv", path.display()))?;
        Ok(Self { name: program.name, child, log, log_start })
    }

    /// Its name in messages.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its process id, which is also the id of its process group.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Its output.
    pub fn log(&self) -> &Log {
        &self.log
    }

    /// The last lines of its output.
    pub fn tail(&self, lines: usize) -> String {
        self.log.tail(lines, self.log_start)
    }

    /// Returns true if it has ended. It stays unreaped, so that its ID is not reused.
    pub fn has_ended(&self) -> bool {
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT | WaitIdOptions::NOHANG;
        !matches!(waitid(WaitId::Pid(self.group()), options), Ok(None))
    }

    /// The signal that ended it; `None` while it runs, or if it ended by itself.
    pub fn ended_by_signal(&self) -> Option<i32> {
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT | WaitIdOptions::NOHANG;
        waitid(WaitId::Pid(self.group()), options).ok()??.terminating_signal()
    }

    /// Waits until `url` responds with success. Fails with the last lines of output if the program
    /// ends before.
    pub async fn wait_until_ready(&self, url: &str, max: Duration) -> anyhow::Result<()> {
        let probe = readiness::Probe::new(url)?;
        let result = eventually(max, async || {
            anyhow::ensure!(!self.has_ended(), "{} ended", self.name);
            Ok(match probe.look().await {
                Ok(_) => Check::Done(()),
                Err(status) => Check::NotYet(status),
            })
        });
        result.await.with_context(|| {
            format!("{} is not ready; it wrote last:\n{}", self.name, self.tail(30))
        })
    }

    /// Waits until it ends by itself with exit code 0; returns its output.
    pub async fn wait_for_success(mut self, max: Duration) -> anyhow::Result<String> {
        eventually(max, async || Ok(Check::that(self.has_ended(), || "it still runs".into())))
            .await
            .with_context(|| {
                format!("{} does not end; it wrote last:\n{}", self.name, self.tail(30))
            })?;
        let status = self.child.wait()?;
        anyhow::ensure!(
            status.success(),
            "{}: {status}; it wrote last:\n{}",
            self.name,
            self.tail(30)
        );
        Ok(self.tail(usize::MAX))
    }

    /// Sends SIGTERM and waits until it has ended.
    pub async fn terminate(&self, max: Duration) -> anyhow::Result<()> {
        kill_process_group(self.group(), Signal::TERM)
            .with_context(|| format!("failed to signal {}", self.name))?;
        eventually(max, async || Ok(Check::that(self.has_ended(), || "it still runs".into())))
            .await
            .with_context(|| format!("{} does not end on SIGTERM", self.name))
    }

    /// Stops it for some time without ending it: its connections stay, and nothing answers.
    pub async fn pause(&self, time: Duration) -> anyhow::Result<()> {
        pause(self.pid(), time).await
    }

    /// Kills it with its whole process group, as dropping does.
    pub fn kill(self) {}

    fn group(&self) -> Pid {
        Pid::from_child(&self.child)
    }
}

/// Stops a process for some time without ending it.
pub(crate) async fn pause(pid: u32, time: Duration) -> anyhow::Result<()> {
    let pid = Pid::from_raw(pid.try_into()?).context("it has an ID")?;
    kill_process(pid, Signal::STOP)?;
    tokio::time::sleep(time).await;
    Ok(kill_process(pid, Signal::CONT)?)
}

impl Drop for Process {
    fn drop(&mut self) {
        // Both fail only if there is nothing left to kill or to reap.
        let _ = kill_process_group(self.group(), Signal::KILL);
        let _ = self.child.wait();
    }
}

impl fmt::Debug for Process {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Process")
            .field("name", &self.name)
            .field("pid", &self.pid())
            .finish_non_exhaustive()
    }
}

/// The standard output and error of a program.
#[derive(Clone, Debug)]
pub struct Log {
    path: PathBuf,
}

impl Log {
    /// The log in this file.
    pub fn at(path: impl Into<PathBuf>) -> Self {
        Self { path: path.into() }
    }

    fn create(&self) -> io::Result<File> {
        File::options().create(true).append(true).open(&self.path)
    }

    /// The file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The current length in bytes.
    pub fn len(&self) -> u64 {
        fs::metadata(&self.path).map_or(0, |metadata| metadata.len())
    }

    /// Returns true if nothing was written yet.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The last lines of what was written after the first `from` bytes.
    pub fn tail(&self, lines: usize, from: u64) -> String {
        let mut bytes = Vec::new();
        let read = File::open(&self.path).and_then(|mut file| {
            file.seek(SeekFrom::Start(from))?;
            file.read_to_end(&mut bytes)
        });
        if let Err(error) = read {
            return format!("(`{}`: {error})", self.path.display());
        }
        let text = String::from_utf8_lossy(&bytes);
        let all: Vec<&str> = text.lines().collect();
        all[all.len().saturating_sub(lines)..].join("\n")
    }
}

type Job = (Command, mpsc::Sender<io::Result<Child>>);

/// Creates the child on the thread that ends with the process.
fn spawn_on_lasting_thread(command: Command) -> io::Result<Child> {
    static JOBS: LazyLock<Mutex<mpsc::Sender<Job>>> = LazyLock::new(|| {
        let (sender, jobs) = mpsc::channel::<Job>();
        thread::spawn(move || {
            for (mut command, answer) in jobs {
                // The receiver is gone only if its thread has panicked.
                let _ = answer.send(command.spawn());
            }
        });
        Mutex::new(sender)
    });
    let (answer, child) = mpsc::channel();
    let jobs = JOBS.lock().unwrap_or_else(PoisonError::into_inner).clone();
    jobs.send((command, answer)).map_err(io::Error::other)?;
    child.recv().map_err(io::Error::other)?
}
