//! Log lines on standard error.

use crate::args::{LogArgs, LogFormat};
use tracing_subscriber::EnvFilter;
use tracing_subscriber::filter::ParseError;

/// The filter of `--log` could not be understood.
#[derive(Debug, thiserror::Error)]
#[error("`{filter}` is no log filter (wanted: a level, or `target=level,…`)")]
pub struct FilterError {
    filter: String,
    source: ParseError,
}

/// Sets up logging for the process; a second call changes nothing.
pub fn init(args: &LogArgs) -> Result<(), FilterError> {
    let filter = EnvFilter::try_new(&args.log)
        .map_err(|source| FilterError { filter: args.log.clone(), source })?;
    let builder = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr);
    // Fails only where a subscriber is set already, which then stays.
    let _ = match args.log_format {
        LogFormat::Text => builder.try_init(),
        LogFormat::Json => builder.json().flatten_event(true).try_init(),
    };
    Ok(())
}
