//! Answers of the other commands: `bench`, `version`, `diff` and `migrate`.

use super::Object;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;

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

/// `kubectl dranet version -o json`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Version {
    /// Version of this program.
    pub(crate) client: String,
    /// Version of the API server.
    pub(crate) server: Option<String>,
    /// What runs in the cluster.
    pub(crate) components: Vec<Component>,
}

/// A part of the project in the cluster.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Component {
    /// Its name.
    pub(crate) name: String,
    /// Tag or digest of its image.
    pub(crate) version: String,
    /// How many replicas are ready, as `1/2`.
    pub(crate) ready: String,
    /// Its image.
    pub(crate) image: String,
}

/// `kubectl dranet diff -o json`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Diff {
    /// The objects that differ.
    pub(crate) objects: Vec<Different>,
}

/// An object that differs.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Different {
    /// Its kind.
    pub(crate) kind: String,
    /// Its namespace and name.
    pub(crate) name: String,
    /// How.
    pub(crate) change: ChangeKind,
    /// For a changed object: its fields.
    pub(crate) fields: Vec<FieldChange>,
}

/// How an object differs.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum ChangeKind {
    /// It was not there before.
    Added,
    /// It is no longer there.
    Removed,
    /// A field has a different value.
    Changed,
}

/// A field with a different value.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct FieldChange {
    /// Where it is.
    pub(crate) path: String,
    /// Its value before.
    pub(crate) before: Value,
    /// Its value after.
    pub(crate) after: Value,
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
