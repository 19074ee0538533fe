//! Log lines on standard error.

use crate::args::{LogArgs, LogFormat};
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
    let lines = fmt::layer().with_writer(std::io::stderr);
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
