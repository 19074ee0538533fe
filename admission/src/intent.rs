//! What the pod asks for: its annotations and its containers' GPU limits, read
//! and checked without a look at the cluster.

use crate::denial::Denial;
use cluster_model::gpu_drivers::{GPU_DRIVERS, GpuDriver};
use cluster_model::names::annotation;
use k8s_openapi::api::core::v1::{Container, Pod};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use std::collections::BTreeMap;

/// Devices that one claim can hold (`AllocationResultsMaxSize` of
/// `resource.k8s.io/v1`).
pub const CLAIM_DEVICES_MAX: u32 = 32;

/// Annotations of ours that this version acts on.
const KNOWN: &[&str] = &[annotation::ALIGNED_NICS, annotation::PLAN];

/// What a pod with our trigger asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Intent {
    /// NICs for the pod, at least 1.
    pub nics: u32,
    /// GPUs for the pod, at least 1.
    pub gpus: u32,
    /// Driver of the GPUs, found from the name of the extended resource.
    pub gpu_driver: &'static GpuDriver,
    /// Name of the container whose limits named the GPUs and that gets the claim.
    pub container: String,
}

impl Intent {
    /// The annotation as the user wrote it, for texts.
    pub fn annotation(&self) -> String {
        format!("{}: \"{}\"", annotation::ALIGNED_NICS, self.nics)
    }
}

/// Reads the intent. `None` where the pod does not have the trigger.
pub fn read(pod: &Pod) -> Result<Option<Intent>, Denial> {
    let Some(value) = annotations(pod).get(annotation::ALIGNED_NICS) else { return Ok(None) };
    let nics = parse_nics(value)?;
    let (container, gpu_driver, gpus) = gpus(pod, value)?;
    let devices = nics + gpus;
    if devices > CLAIM_DEVICES_MAX {
        return Err(Denial::new(
            annotation::ALIGNED_NICS,
            value,
            format!(
                "{nics} NICs and {gpus} GPUs are {devices} devices; a claim holds at most \
                 {CLAIM_DEVICES_MAX}"
            ),
        ));
    }
    Ok(Some(Intent { nics, gpus, gpu_driver, container }))
}

/// One warning for each annotation in our domain that has no effect.
pub fn warnings(pod: &Pod) -> Vec<String> {
    annotations(pod)
        .keys()
        .filter(|key| key.starts_with(annotation::DOMAIN) && !KNOWN.contains(&key.as_str()))
        .map(|key| {
            format!("annotation {key} is not known to this version of dranet and has no effect")
        })
        .collect()
}

/// Names of the extended resources that a claim of ours stands for.
pub fn extended_resources() -> impl Iterator<Item = &'static str> {
    GPU_DRIVERS.iter().flat_map(|driver| driver.extended_resources.iter().copied())
}

fn annotations(pod: &Pod) -> &BTreeMap<String, String> {
    static NONE: BTreeMap<String, String> = BTreeMap::new();
    pod.metadata.annotations.as_ref().unwrap_or(&NONE)
}

fn parse_nics(value: &str) -> Result<u32, Denial> {
    let digits = !value.is_empty() && value.bytes().all(|byte| byte.is_ascii_digit());
    let number = if digits { value.parse().ok() } else { None };
    match number {
        Some(nics @ 1..CLAIM_DEVICES_MAX) => Ok(nics),
        Some(_) => Err(Denial::new(
            annotation::ALIGNED_NICS,
            value,
            format!(
                "a claim holds at most {CLAIM_DEVICES_MAX} devices and at least one is a GPU; \
                 allowed is a whole number from 1 to {}",
                CLAIM_DEVICES_MAX - 1
            ),
        )),
        None => Err(Denial::new(
            annotation::ALIGNED_NICS,
            value,
            format!(
                "it is not a number of NICs; allowed is a whole number from 1 to {}, for example \
                 \"2\"",
                CLAIM_DEVICES_MAX - 1
            ),
        )),
    }
}

/// The one container with GPU limits, the driver that they mean and how many.
fn gpus(pod: &Pod, value: &str) -> Result<(String, &'static GpuDriver, u32), Denial> {
    let deny = |why: String| Err(Denial::new(annotation::ALIGNED_NICS, value, why));
    let spec = pod.spec.as_ref();
    let main = spec.map(|spec| spec.containers.as_slice()).unwrap_or_default();
    let init = spec.and_then(|spec| spec.init_containers.as_deref()).unwrap_or_default();
    if let Some(container) = init.iter().find(|container| limits(container).next().is_some()) {
        return deny(format!(
            "init container `{}` has GPU limits; this version gives the claim to one main \
             container only",
            container.name
        ));
    }
    let mut found =
        main.iter().flat_map(|container| limits(container).map(move |l| (container, l)));
    let Some((container, (driver, resource, quantity))) = found.next() else {
        return deny(format!(
            "the pod asks for no GPU to align with; set a limit of one of {} in a container",
            extended_resources().collect::<Vec<_>>().join(", ")
        ));
    };
    if let Some((other, (_, second, _))) = found.next() {
        return deny(format!(
            "container `{}` has a limit on {resource} and container `{}` on {second}; this \
             version gives the claim to one container with one kind of GPU only",
            container.name, other.name
        ));
    }
    match quantity.0.parse::<u32>() {
        Ok(count @ 1..) => Ok((container.name.clone(), driver, count)),
        _ => deny(format!(
            "the limit {resource}: \"{}\" of container `{}` is not a whole number of GPUs",
            quantity.0, container.name
        )),
    }
}

/// The GPU limits of a container; a limit of zero asks for nothing.
fn limits(
    container: &Container,
) -> impl Iterator<Item = (&'static GpuDriver, &'static str, &Quantity)> {
    let limits = container.resources.as_ref().and_then(|resources| resources.limits.as_ref());
    GPU_DRIVERS
        .iter()
        .flat_map(|driver| driver.extended_resources.iter().map(move |name| (driver, *name)))
        .filter_map(move |(driver, name)| Some((driver, name, limits?.get(name)?)))
        .filter(|(_, _, quantity)| quantity.0 != "0")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn pod(nics: &str, containers: &Value) -> Pod {
        serde_json::from_value(json!({
            "metadata": { "annotations": { "dranet.io/aligned-nics": nics } },
            "spec": { "containers": containers },
        }))
        .unwrap()
    }

    fn container(name: &str, limits: &Value) -> Value {
        json!({ "name": name, "resources": { "limits": limits } })
    }

    #[test]
    fn reads_nics_gpus_and_the_container() {
        let pod = pod(
            "2",
            &json!([
                container("log", &json!({})),
                container("nccl", &json!({ "nvidia.com/gpu": "1" }))
            ]),
        );
        let intent = read(&pod).unwrap().unwrap();
        assert_eq!((intent.nics, intent.gpus, intent.container.as_str()), (2, 1, "nccl"));
        assert_eq!(intent.gpu_driver.driver, "gpu.nvidia.com");
    }

    #[test]
    fn a_pod_without_the_trigger_is_not_ours() {
        assert_eq!(read(&Pod::default()), Ok(None));
    }

    #[test]
    fn denials() {
        let one_gpu = || json!([container("nccl", &json!({ "nvidia.com/gpu": "1" }))]);
        let cases = [
            ("two", one_gpu()),
            ("", one_gpu()),
            ("0", one_gpu()),
            ("-1", one_gpu()),
            ("+2", one_gpu()),
            ("2.5", one_gpu()),
            ("32", one_gpu()),
            ("99999999999", one_gpu()),
            ("2", json!([container("nccl", &json!({}))])),
            ("2", json!([container("nccl", &json!({ "nvidia.com/gpu": "0" }))])),
            ("2", json!([container("nccl", &json!({ "nvidia.com/gpu": "1500m" }))])),
            ("31", json!([container("nccl", &json!({ "nvidia.com/gpu": "2" }))])),
            (
                "2",
                json!([
                    container("a", &json!({ "nvidia.com/gpu": "1" })),
                    container("b", &json!({ "amd.com/gpu": "1" }))
                ]),
            ),
        ];
        let texts: Vec<_> = cases
            .into_iter()
            .map(|(nics, containers)| read(&pod(nics, &containers)).unwrap_err().to_string())
            .collect();
        insta::assert_snapshot!(texts.join("\n"));
    }

    #[test]
    fn unknown_annotations_are_warned_about() {
        let pod: Pod = serde_json::from_value(json!({ "metadata": { "annotations": {
            "dranet.io/alined-nics": "2", "dranet.io/aligned-nics": "2", "example.com/x": "y",
        } } }))
        .unwrap();
        insta::assert_snapshot!(warnings(&pod).join("\n"), @"annotation dranet.io/alined-nics is not known to this version of dranet and has no effect");
    }
}
