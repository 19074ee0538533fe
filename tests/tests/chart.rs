//! The suite `chart`: what the Helm chart renders, whether Kubernetes accepts it, and what remains
//! after installing, upgrading and uninstalling it.

#![allow(clippy::panic, clippy::unwrap_used, reason = "a test may panic")]

mod chart {
    pub(crate) mod accepted;
    pub(crate) mod annotation_use;
    pub(crate) mod images;
    pub(crate) mod lifecycle;
    pub(crate) mod monitoring;
    pub(crate) mod network_config;
    pub(crate) mod queries;
    pub(crate) mod release;
    pub(crate) mod render;
    pub(crate) mod values;
}

use std::process::ExitCode;

use chart::{
    accepted, annotation_use, images, lifecycle, monitoring, network_config, queries, release,
    render, values,
};
use tests::{Options, suite};

fn main() -> ExitCode {
    let all = [
        render::tests(),
        values::tests(),
        monitoring::tests(),
        queries::tests(),
        accepted::tests(),
        network_config::tests(),
        annotation_use::tests(),
        images::tests(),
        lifecycle::tests(),
        release::tests(),
    ];
    suite::run(&Options::default(), all.into_iter().flatten())
}
