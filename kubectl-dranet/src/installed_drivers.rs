//! The drivers that the cluster's programs know from the chart's values. This program knows the same,
//! unless `--drivers` names a file.

use crate::live::Cluster;
use anyhow::Context as _;
use cluster_model::drivers::use_text;

/// Takes the drivers of a snapshot.
pub(crate) fn of_snapshot(drivers: Option<&str>) -> anyhow::Result<()> {
    let Some(text) = drivers else { return Ok(()) };
    use_text(text).context("failed to use the drivers in the snapshot")
}

/// Takes the drivers of a cluster. Returns the content of its file, and a note if that is unknown.
pub(crate) fn of_cluster(cluster: &Cluster) -> anyhow::Result<(Option<String>, Option<String>)> {
    let Ok(found) = cluster.drivers()? else {
        let unknown = "you may not list ConfigMaps, so drivers that the chart's values name are \
                       unknown; --drivers names their file";
        return Ok((None, Some(unknown.to_owned())));
    };
    if let Some(text) = &found {
        use_text(text).context("failed to use the drivers of the cluster")?;
    }
    Ok((found, None))
}
