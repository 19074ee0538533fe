//! A pod shape: the numbers of GPUs and NICs, and their alignment level.

use cluster_model::names::annotation;
use serde_json::{Value, json};
use std::fmt;
use std::str::FromStr;
use topology_graph::Level;

/// The devices that a pod requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PodShape {
    /// GPUs.
    pub gpus: u32,
    /// NICs of the whole pod.
    pub nics: u32,
    /// The required level; `None` means as near as admission can plan.
    pub level: Option<Level>,
}

/// Not a shape.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{0}` is not a shape: write `<GPUs>gpu:<NICs>nic` with an optional level \
     (`switch`, `root-port`, `root`, `numa`, `socket`), as in `1gpu:2nic` or `2gpu:2nic:switch`"
)]
pub struct PodShapeError(String);

/// The shapes that are counted by default.
pub(crate) const USUAL: [PodShape; 4] = [equal(1), equal(2), equal(4), equal(8)];

const fn equal(number: u32) -> PodShape {
    PodShape { gpus: number, nics: number, level: None }
}

impl PodShape {
    /// A pod that requests this shape by annotation, with GPUs of a class if one is named.
    pub(crate) fn pod(self, namespace: &str, gpu_class: Option<&str>) -> Value {
        let mut pod = json!({
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {
                "name": "capacity",
                "namespace": namespace,
                "annotations": {
                    annotation::ALIGNED_NICS: self.nics.to_string(),
                    annotation::GPUS: self.gpus.to_string(),
                },
            },
            "spec": { "containers": [{ "name": "main", "image": "main" }] },
        });
        if let Some(class) = gpu_class {
            pod["metadata"]["annotations"][annotation::GPU_CLASS] = class.into();
        }
        if let Some(level) = self.level {
            pod["metadata"]["annotations"][annotation::ALIGNMENT] = level.to_string().into();
        }
        pod
    }

    /// A pod that requests this shape with GPUs by a limit, as pods do where a device plugin offers
    /// them.
    pub(crate) fn pod_by_limit(self, namespace: &str, resource: &str) -> Value {
        let mut pod = self.pod(namespace, None);
        if let Some(annotations) = pod["metadata"]["annotations"].as_object_mut() {
            annotations.remove(annotation::GPUS);
        }
        let amounts = json!({ resource: self.gpus.to_string() });
        pod["spec"]["containers"][0]["resources"] = json!({ "limits": amounts });
        pod
    }

    fn parse(text: &str) -> Option<Self> {
        let mut parts = text.split(':');
        let gpus = parts.next()?.strip_suffix("gpu")?.parse().ok().filter(|gpus| *gpus > 0)?;
        let nics = parts.next()?.strip_suffix("nic")?.parse().ok().filter(|nics| *nics > 0)?;
        let level = match parts.next() {
            Some(level) => Some(level.parse().ok()?),
            None => None,
        };
        parts.next().is_none().then_some(Self { gpus, nics, level })
    }
}

impl FromStr for PodShape {
    type Err = PodShapeError;

    fn from_str(text: &str) -> Result<Self, PodShapeError> {
        Self::parse(text).ok_or_else(|| PodShapeError(text.to_owned()))
    }
}

impl fmt::Display for PodShape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}gpu:{}nic", self.gpus, self.nics)?;
        self.level.map_or(Ok(()), |level| write!(f, ":{level}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shapes_are_read_as_they_are_written() {
        for text in ["1gpu:2nic", "8gpu:8nic", "2gpu:2nic:root-port"] {
            assert_eq!(text.parse::<PodShape>().unwrap().to_string(), text);
        }
        for text in
            ["", "1gpu", "0gpu:1nic", "1gpu:0nic", "1nic:1gpu", "1gpu:1nic:far", "1gpu:1nic:numa:x"]
        {
            assert_eq!(text.parse::<PodShape>(), Err(PodShapeError(text.to_owned())), "{text}");
        }
    }
}
