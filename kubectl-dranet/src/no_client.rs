//! Replaces the live cluster in builds without the feature `live`. Connecting always fails, so no
//! value of it exists.

use crate::args::UserArgs;
use crate::kinds::{Kind, Query};
use crate::reply::{Missing, Probe, Proxied, Verb};
use process::args::KubeArgs;
use serde_json::Value;
use serde_json::value::RawValue;
use std::collections::BTreeMap;
use std::time::Duration;

/// A cluster that is never there.
pub(crate) enum Cluster {}

/// Signals that are never caught.
pub(crate) enum Signals {}

impl Cluster {
    pub(crate) fn connect(_: &KubeArgs, _: &UserArgs) -> anyhow::Result<Self> {
        anyhow::bail!(
            "this build reads files only: name a snapshot with --snapshot, or build with \
             `--features live` to read a live cluster"
        )
    }
}

/// Methods that are never called.
macro_rules! never {
    ($($name:ident($($argument:ty),*) -> $answer:ty;)+) => {
        impl Cluster {
            $(pub(crate) fn $name(&self, $(_: $argument),*) -> $answer {
                match *self {}
            })+
        }
    };
}

never! {
    default_namespace() -> String;
    pause(Duration) -> ();
    version() -> anyhow::Result<String>;
    drivers() -> anyhow::Result<Result<Option<String>, Missing>>;
    feature_gates() -> BTreeMap<String, bool>;
    read(&Query, &mut dyn FnMut(&RawValue)) -> anyhow::Result<Result<(), Missing>>;
    dry_run_pod(&str, &Value) -> anyhow::Result<Probe>;
    is_allowed(&Value) -> anyhow::Result<Option<bool>>;
    kubelet_config(&str) -> (Option<Value>, Option<String>);
    proxied(&str) -> Proxied;
    pod(Option<&str>, &str) -> anyhow::Result<Value>;
    names(Kind, Option<&str>) -> Vec<String>;
    catch_signals() -> anyhow::Result<Signals>;
    pause_or_end(&mut Signals, Duration) -> anyhow::Result<()>;
    request_object(&mut Signals, Kind, (&str, &str), Verb<'_>) -> anyhow::Result<Option<Value>>;
}
