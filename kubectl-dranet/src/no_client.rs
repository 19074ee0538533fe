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

    pub(crate) fn default_namespace(&self) -> String {
        match *self {}
    }

    pub(crate) fn pause(&self, _: Duration) {
        match *self {}
    }

    pub(crate) fn version(&self) -> anyhow::Result<String> {
        match *self {}
    }

    pub(crate) fn drivers(&self) -> anyhow::Result<Result<Option<String>, Missing>> {
        match *self {}
    }

    pub(crate) fn feature_gates(&self) -> BTreeMap<String, bool> {
        match *self {}
    }

    pub(crate) fn read(
        &self,
        _: &Query,
        _: &mut dyn FnMut(&RawValue),
    ) -> anyhow::Result<Result<(), Missing>> {
        match *self {}
    }

    pub(crate) fn dry_run_pod(&self, _: &str, _: &Value) -> anyhow::Result<Probe> {
        match *self {}
    }

    pub(crate) fn is_allowed(&self, _: &Value) -> anyhow::Result<Option<bool>> {
        match *self {}
    }

    pub(crate) fn kubelet_config(&self, _: &str) -> (Option<Value>, Option<String>) {
        match *self {}
    }

    pub(crate) fn proxied(&self, _: &str) -> Proxied {
        match *self {}
    }

    pub(crate) fn pod(&self, _: Option<&str>, _: &str) -> anyhow::Result<Value> {
        match *self {}
    }

    pub(crate) fn catch_signals(&self) -> anyhow::Result<Signals> {
        match *self {}
    }

    pub(crate) fn pause_or_end(&self, _: &mut Signals, _: Duration) -> anyhow::Result<()> {
        match *self {}
    }

    pub(crate) fn request_object(
        &self,
        _: &mut Signals,
        _: Kind,
        _: (&str, &str),
        _: Verb<'_>,
    ) -> anyhow::Result<Option<Value>> {
        match *self {}
    }
}
