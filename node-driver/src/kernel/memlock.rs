//! The limit of memory that a process may lock (`RLIMIT_MEMLOCK`, `getrlimit(2)`). RDMA locks what
//! it registers. A capability `IPC_LOCK` of a container is not effective for a process that is not
//! root, so such a process needs the limit.

use rustix::io;
use rustix::process::{Pid, Resource, Rlimit, prlimit};

/// Its name in container specifications.
pub const NAME: &str = "RLIMIT_MEMLOCK";

/// Removes the limit of a container's first process; the container's memory limit remains.
pub fn lift(pid: u32) -> io::Result<()> {
    let pid = i32::try_from(pid).ok().and_then(Pid::from_raw).ok_or(io::Errno::SRCH)?;
    prlimit(Some(pid), Resource::Memlock, Rlimit { current: None, maximum: None }).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::process::{Command, Stdio};

    #[test]
    fn the_limit_of_another_process_is_lifted() {
        let mut child = Command::new("cat").stdin(Stdio::piped()).spawn().unwrap();
        let lifted = lift(child.id());
        let limits = fs::read_to_string(format!("/proc/{}/limits", child.id())).unwrap();
        drop(child.stdin.take());
        child.wait().unwrap();
        let limit = limits.lines().find(|line| line.starts_with("Max locked memory")).unwrap();
        // Needs CAP_SYS_RESOURCE.
        match lifted {
            Ok(()) => assert_eq!(limit.matches("unlimited").count(), 2, "{limit}"),
            Err(error) => assert_eq!(error, io::Errno::PERM),
        }
    }
}
