//! Log lines on standard error.

use crate::args::{LogArgs, LogFormat};
use tracing_subscriber::filter::{ParseError, Targets};
use tracing_subscriber::fmt;
use tracing_subscriber::prelude::*;

/// The filter of `--log` could not be understood.
#[derive(Debug, thiserror::Error)]
#[error("invalid log filter `{filter}`: write a level, or `target=level,…`")]
pub struct FilterError {
    filter: String,
    source: ParseError,
}

/// Sets up logging for the process; a second call changes nothing.
pub fn init(args: &LogArgs) -> Result<(), FilterError> {
    let filter: Targets =
        args.log.parse().map_err(|source| FilterError { filter: args.log.clone(), source })?;
    let lines = fmt::layer().with_writer(std::io::stderr);
    let registry = tracing_subscriber::registry();
    // Fails only where a subscriber is set already, which then stays.
    let _ = match args.log_format {
        LogFormat::Text => registry.with(lines.with_filter(filter)).try_init(),
        LogFormat::Json => {
            registry.with(lines.json().flatten_event(true).with_filter(filter)).try_init()
        }
    };
    Ok(())
}
