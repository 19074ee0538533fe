//! Metrics of our programs, from `/metrics` of their operations port.

use std::collections::BTreeMap;

use anyhow::Context;

use crate::readiness::Probe;

/// The page of a program.
pub async fn page(operations: u16) -> anyhow::Result<String> {
    let probe = Probe::new(&format!("http://127.0.0.1:{operations}/metrics"))?;
    probe.look().await.map_err(anyhow::Error::msg)
}

/// The samples of a program, by name and labels.
pub async fn samples(operations: u16) -> anyhow::Result<BTreeMap<String, f64>> {
    let text = page(operations).await?;
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    lines
        .map(|line| {
            let (name, value) = line.rsplit_once(' ').context("a sample has a value")?;
            Ok((name.to_owned(), value.parse().context("it is a number")?))
        })
        .collect()
}
