//! Answers of `bench` and `migrate`.

#[cfg(test)]
use super::Object;
#[cfg(test)]
use schemars::JsonSchema;
#[cfg(test)]
use serde::Deserialize;
use serde::Serialize;
use serde_json::Value;
use topology_graph::PathKind;

/// `kubectl dranet bench -o json`.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(Deserialize, JsonSchema))]
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
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[cfg_attr(test, derive(Deserialize, JsonSchema))]
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
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(test, derive(Deserialize, JsonSchema))]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(crate) struct BenchNic {
    /// The name of the device.
    pub(crate) name: String,
    /// The path to the nearest GPU of the pod, if known.
    #[cfg_attr(test, schemars(with = "Option<String>"))]
    pub(crate) path: Option<PathKind>,
    /// Rate of its port.
    pub(crate) port_gbps: Option<f64>,
    /// Rate of its PCIe link at its current speed and width.
    pub(crate) pcie_gbps: Option<f64>,
}

/// `kubectl dranet bench --against unaligned -o json`.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(Deserialize, JsonSchema))]
#[serde(deny_unknown_fields)]
pub(crate) struct BenchAgainst {
    /// The placements, in the order in which they were measured.
    pub(crate) placements: Vec<BenchPlacement>,
}

/// Where the NICs of pods with one GPU are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(Deserialize))]
#[serde(rename_all = "camelCase")]
pub(crate) enum Placement {
    /// One, next to the GPU.
    OneNear,
    /// One, far from the GPU.
    OneFar,
    /// Two, next to the GPU.
    TwoNear,
}

/// A placement and its measurement.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(Deserialize, JsonSchema))]
#[serde(deny_unknown_fields)]
pub(crate) struct BenchPlacement {
    /// `oneNear`, `oneFar`, `twoNear`: the NICs next to the GPU of each pod, or far from it.
    #[cfg_attr(test, schemars(with = "String"))]
    pub(crate) placement: Placement,
    /// The measurement.
    pub(crate) result: Bench,
}

/// `kubectl dranet migrate -o json`.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(Deserialize, JsonSchema))]
#[serde(deny_unknown_fields)]
pub(crate) struct Migrate {
    /// Values of the chart.
    #[cfg_attr(test, schemars(with = "Object"))]
    pub(crate) values: Value,
    /// Objects to apply.
    #[cfg_attr(test, schemars(with = "Vec<Object>"))]
    pub(crate) documents: Vec<Value>,
    /// What has no counterpart.
    pub(crate) notes: Vec<MigrateNote>,
}

/// What has no counterpart.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(Deserialize, JsonSchema))]
#[serde(deny_unknown_fields)]
pub(crate) struct MigrateNote {
    /// The object.
    pub(crate) object: String,
    /// What to know about it.
    pub(crate) note: String,
}
