//! Answers of `bench` and `migrate`.

use super::Object;
use schemars::JsonSchema;
use serde::Deserialize;

/// `kubectl dranet bench -o json`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(crate) struct Bench {
    /// The first pod: it is written to, or runs `mpirun`.
    pub(crate) server: BenchEnd,
    /// The second pod.
    pub(crate) client: BenchEnd,
    /// Bytes of a message; of the data of an NCCL test.
    pub(crate) message_bytes: u64,
    /// Bandwidth in gigabits per second; of an NCCL test the bus bandwidth.
    pub(crate) measured_gbps: f64,
    /// What the links of the slower pod carry, if known: those of its first NIC, for an NCCL test
    /// those of all its NICs.
    pub(crate) promised_gbps: Option<f64>,
    /// The measured percentage of it.
    pub(crate) percent: Option<f64>,
}

/// One end of a measurement.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(crate) struct BenchEnd {
    /// Its node.
    pub(crate) node: String,
    /// The names of the GPUs of its claim.
    pub(crate) gpus: Vec<String>,
    /// The NICs of its claim.
    pub(crate) nics: Vec<BenchNic>,
}

/// A NIC of a measurement.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(crate) struct BenchNic {
    /// The name of the device.
    pub(crate) name: String,
    /// The path to the nearest GPU of the pod, if known.
    pub(crate) path: Option<String>,
    /// Rate of its port.
    pub(crate) port_gbps: Option<f64>,
    /// Rate of its PCIe link at its current speed and width.
    pub(crate) pcie_gbps: Option<f64>,
}

/// `kubectl dranet bench --against unaligned -o json`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct BenchAgainst {
    /// The placements, in the order in which they were measured.
    pub(crate) placements: Vec<BenchPlacement>,
}

/// A placement and its measurement.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct BenchPlacement {
    /// `oneNear`, `oneFar`, `twoNear`: the NICs next to the GPU of each pod, or far from it.
    pub(crate) placement: String,
    /// The measurement.
    pub(crate) result: Bench,
}

/// `kubectl dranet migrate -o json`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Migrate {
    /// Values of the chart.
    pub(crate) values: Object,
    /// Objects to apply.
    pub(crate) documents: Vec<Object>,
    /// What has no counterpart.
    pub(crate) notes: Vec<MigrateNote>,
}

/// What has no counterpart.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct MigrateNote {
    /// The object.
    pub(crate) object: String,
    /// What to know about it.
    pub(crate) note: String,
}
