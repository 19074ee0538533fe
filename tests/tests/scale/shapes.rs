//! The pods of the load: ten shapes by annotation, with a template that somebody has written, with GPUs
//! of a device plugin, without devices, and jobs on one fabric.

use std::time::Duration;

use k8s_openapi::api::{batch::v1::Job, core::v1::Pod};
use serde_json::{Value, json};

use super::{kubelets::LIFETIME, observer::FABRIC};

/// The label with the name of a shape.
pub(crate) const SHAPE: &str = "tests.dranet.io/shape";
/// The template that somebody has written.
pub(crate) const BY_HAND: &str = "by-hand";

const NVIDIA: &str = "nvidia.com/gpu";
const AMD: &str = "amd.com/gpu";

/// What a pod of the load asks for.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Shape {
    /// GPUs of a resource, and values of annotations below `dranet.io/`.
    Annotated(&'static str, &'static str, u32, &'static [(&'static str, &'static str)]),
    /// An equal claim of [`BY_HAND`].
    ByHand,
    /// A GPU of a device plugin.
    Plugin,
    /// No device.
    Plain,
    /// No device, and a webhook that answers at once.
    Instant,
}

/// The shapes of the load.
pub(crate) const SHAPES: [Shape; 13] = [
    Shape::Annotated("nvidia-1-1", NVIDIA, 1, &[("aligned-nics", "1")]),
    Shape::Annotated("nvidia-1-2", NVIDIA, 1, &[("aligned-nics", "2")]),
    Shape::Annotated("nvidia-2-2", NVIDIA, 2, &[("aligned-nics", "2"), ("pairing", "group")]),
    Shape::Annotated("nvidia-2-per-gpu", NVIDIA, 2, &[("aligned-nics", "per-gpu")]),
    Shape::Annotated("nvidia-4-per-gpu", NVIDIA, 4, &[("aligned-nics", "per-gpu")]),
    Shape::Annotated("nvidia-8-per-gpu", NVIDIA, 8, &[("aligned-nics", "per-gpu")]),
    Shape::Annotated("nvidia-1-1-numa", NVIDIA, 1, &[("aligned-nics", "1"), ("alignment", "numa")]),
    Shape::Annotated(
        "nvidia-1-1-preferred",
        NVIDIA,
        1,
        &[("aligned-nics", "1"), ("alignment-policy", "preferred")],
    ),
    Shape::Annotated("amd-1-1", AMD, 1, &[("aligned-nics", "1")]),
    Shape::Annotated(
        "amd-4-4",
        AMD,
        4,
        &[("aligned-nics", "4"), ("alignment", "numa"), ("pairing", "group")],
    ),
    Shape::ByHand,
    Shape::Plugin,
    Shape::Plain,
];

impl Shape {
    /// Its name in the report.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Annotated(name, ..) => name,
            Self::ByHand => "by hand",
            Self::Plugin => "device plugin",
            Self::Plain => "no device",
            Self::Instant => "instant",
        }
    }

    /// Whether admission gives it a claim.
    pub(crate) fn is_annotated(self) -> bool {
        matches!(self, Self::Annotated(..))
    }

    /// A pod of this shape that runs until it is deleted.
    pub(crate) fn pod(self, name: &str) -> anyhow::Result<Pod> {
        Ok(serde_json::from_value(self.object(name))?)
    }

    /// A pod of this shape that ends after this time and is then deleted.
    pub(crate) fn pod_for(self, name: &str, lifetime: Duration) -> anyhow::Result<Pod> {
        let mut pod = self.object(name);
        pod["metadata"]["annotations"][LIFETIME] = lifetime.as_secs().to_string().into();
        Ok(serde_json::from_value(pod)?)
    }

    fn object(self, name: &str) -> Value {
        let mut pod = template();
        pod["metadata"]["name"] = name.into();
        pod["metadata"]["labels"] = json!({SHAPE: self.name().replace(' ', "-")});
        match self {
            Self::Annotated(_, resource, gpus, annotations) => {
                for (key, value) in annotations {
                    pod["metadata"]["annotations"][format!("dranet.io/{key}")] = (*value).into();
                }
                ask(&mut pod, resource, gpus);
            }
            Self::ByHand => {
                pod["spec"]["resourceClaims"] =
                    json!([{"name": "devices", "resourceClaimTemplateName": BY_HAND}]);
                pod["spec"]["containers"][0]["resources"]["claims"] = json!([{"name": "devices"}]);
            }
            Self::Plugin => ask(&mut pod, NVIDIA, 1),
            Self::Plain | Self::Instant => {}
        }
        pod
    }
}

/// A job whose pods take whole GB300 nodes of one fabric.
pub(crate) fn job(name: &str, pods: usize, lifetime: Duration) -> anyhow::Result<Job> {
    let mut template = template();
    template["metadata"]["labels"] = json!({SHAPE: "job"});
    template["metadata"]["annotations"] = json!({
        "dranet.io/aligned-nics": "per-gpu",
        "dranet.io/fabric": "same",
        LIFETIME: lifetime.as_secs().to_string(),
    });
    ask(&mut template, NVIDIA, 4);
    job_of(name, pods, &template)
}

/// A job whose pods have a GPU and a NIC each and share a fabric, and run until they are deleted.
pub(crate) fn gang(name: &str, pods: usize) -> anyhow::Result<Job> {
    let mut template = SHAPES[0].object(name);
    template["metadata"]["labels"] = json!({SHAPE: name});
    template["metadata"]["annotations"]["dranet.io/fabric"] = "same".into();
    job_of(name, pods, &template)
}

/// The same by claims and a node selector that somebody has written.
pub(crate) fn gang_by_hand(name: &str, pods: usize, fabric: &str) -> anyhow::Result<Job> {
    let mut template = Shape::ByHand.object(name);
    template["metadata"]["labels"] = json!({SHAPE: name});
    template["spec"]["nodeSelector"] = json!({FABRIC: fabric});
    job_of(name, pods, &template)
}

fn job_of(name: &str, pods: usize, template: &Value) -> anyhow::Result<Job> {
    Ok(serde_json::from_value(json!({
        "metadata": {"name": name},
        "spec": {
            "completions": pods, "parallelism": pods, "completionMode": "Indexed",
            "backoffLimit": 1_000, "ttlSecondsAfterFinished": 0,
            "template": template,
        },
    }))?)
}

fn template() -> Value {
    json!({
        "metadata": {"annotations": {}},
        "spec": {
            "restartPolicy": "Never",
            "terminationGracePeriodSeconds": 0,
            "containers": [{"name": "main", "image": "none", "resources": {"requests": {"cpu": "10m"}}}],
        },
    })
}

fn ask(pod: &mut Value, resource: &str, gpus: u32) {
    pod["spec"]["containers"][0]["resources"]["limits"] = json!({resource: gpus.to_string()});
}
