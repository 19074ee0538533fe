//! Machine types that are built in, without the feature `machines`: there are none.

#![allow(clippy::unnecessary_wraps, reason = "with the feature it can fail")]

use super::NewNode;

/// No type is built in.
pub(crate) fn node(_: &str, _: &str) -> anyhow::Result<Option<NewNode>> {
    Ok(None)
}

/// No type is built in.
pub(crate) fn all(_: &str) -> anyhow::Result<Vec<(&'static str, NewNode)>> {
    Ok(Vec::new())
}
