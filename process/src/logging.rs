//! Log lines on standard error.

use crate::args::{LogArgs, LogFormat};
use crate::chain::without_dumps;
use std::io::{self, Write};
use tracing_subscriber::filter::{LevelFilter, ParseError, Targets};
use tracing_subscriber::fmt;
use tracing_subscriber::prelude::*;

/// The filter of `--log` is invalid.
#[derive(Debug, thiserror::Error)]
#[error("invalid log filter `{filter}`: write a level, or `target=level,…`")]
pub struct FilterError {
    filter: String,
    source: ParseError,
}

/// Sets up logging for the process. A second call has no effect.
pub fn init(args: &LogArgs) -> Result<(), FilterError> {
    let filter: Targets =
        args.log.parse().map_err(|source| FilterError { filter: args.log.clone(), source })?;
    let filter = without_frames(filter);
    let lines = fmt::layer().with_writer(|| WithoutDumps(io::stderr()));
    let registry = tracing_subscriber::registry();
    // Fails only if a subscriber is set already, which then stays.
    let _ = match args.log_format {
        LogFormat::Text => registry.with(lines.with_filter(filter)).try_init(),
        LogFormat::Json => {
            registry.with(lines.json().flatten_event(true).with_filter(filter)).try_init()
        }
    };
    Ok(())
}

/// Writes lines without the debug output that libraries add to their errors, whoever logs them: a program,
/// or a library by itself.
struct WithoutDumps<W>(W);

impl<W: Write> Write for WithoutDumps<W> {
    /// The layer writes each line as a whole.
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        match str::from_utf8(line) {
            Ok(text) => self.0.write_all(without_dumps(text).as_bytes())?,
            Err(_) => self.0.write_all(line)?,
        }
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

/// Crates whose lines below `INFO` are about frames and connections.
const WIRE: [&str; 6] = ["h2", "hyper", "hyper_util", "rustls", "tonic", "tower"];

/// A level without a target is about our programs: it shows the frames of connections only where the
/// filter names the crate.
fn without_frames(filter: Targets) -> Targets {
    if filter.default_level().is_none_or(|level| level <= LevelFilter::INFO) {
        return filter;
    }
    let named: Vec<String> = filter.iter().map(|(target, _)| target.to_owned()).collect();
    let quiet = WIRE.iter().filter(|name| !named.iter().any(|target| target.starts_with(**name)));
    quiet.fold(filter, |filter, name| filter.with_target(*name, LevelFilter::INFO))
}

#[cfg(test)]
mod tests {
    use super::*;
    use tracing::Level;

    /// What `kube::Error` says of a refusal, in both forms of lines.
    #[test]
    fn lines_have_no_debug_output() {
        for (line, expected) in [
            (
                "WARN no: Forbidden (Status { message: \"(b\", code: 403 }) a=1\n",
                "WARN no: Forbidden a=1\n",
            ),
            (r#"{"error":"no (Status { message: \"(b\" })","a":1}"#, r#"{"error":"no","a":1}"#),
        ] {
            let mut lines = WithoutDumps(Vec::new());
            lines.write_all(line.as_bytes()).unwrap();
            assert_eq!(String::from_utf8(lines.0).unwrap(), expected);
        }
    }

    #[test]
    fn frames_are_logged_only_where_the_filter_names_them() {
        for (filter, shows_frames, shows_ours) in [
            ("info", false, false),
            ("debug", false, true),
            ("trace", false, true),
            ("debug,h2=trace", true, true),
            ("h2=debug", true, false),
            ("warn", false, false),
        ] {
            let targets = without_frames(filter.parse().unwrap());
            let frames = targets.would_enable("h2::codec::framed_read", &Level::DEBUG);
            let ours = targets.would_enable("admission::server", &Level::DEBUG);
            assert_eq!((frames, ours), (shows_frames, shows_ours), "{filter}");
        }
    }
}
