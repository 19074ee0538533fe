//! Points for images that are on a node already (`plugins/imagelocality`).

use super::MOST;
use crate::pod_containers::in_order;
use k8s_openapi::api::core::v1::{Node, Pod};
use std::collections::{BTreeMap, HashMap};

const MIB: i64 = 1024 * 1024;
/// Fewer bytes count as none (`minThreshold`).
const LEAST: i64 = 23 * MIB;
/// More bytes of a container count as this (`maxContainerThreshold`).
const MOST_OF_CONTAINER: i64 = 1000 * MIB;

/// The images on nodes.
#[derive(Clone, Debug, Default)]
pub struct Images {
    /// The bytes of each image by name; `None` if the images of the node are not known.
    on_nodes: BTreeMap<String, Option<HashMap<String, i64>>>,
}

impl Images {
    /// Adds what a node says of its images.
    pub fn add(&mut self, node: &Node) {
        let images = node.status.as_ref().and_then(|status| status.images.as_ref());
        let sizes = images.map(|images| {
            let names = images.iter().flat_map(|image| {
                let size = image.size_bytes.unwrap_or_default();
                image.names.iter().flatten().map(move |name| (name.clone(), size))
            });
            names.collect()
        });
        self.on_nodes.insert(node.metadata.name.clone().unwrap_or_default(), sizes);
    }

    /// The points of a node for a pod with these images; `None` if its images are not known.
    pub(super) fn points(&self, node: &str, images: &[String]) -> Option<i64> {
        let own = self.on_nodes.get(node)?.as_ref()?;
        let there = images.iter().filter_map(|image| Some((image, *own.get(image)?)));
        let sum: i64 = there.map(|(image, size)| self.spread(image, size)).sum();
        let most = MOST_OF_CONTAINER * i64::try_from(images.len().max(1)).unwrap_or(1);
        Some(MOST * (sum.clamp(LEAST, most) - LEAST) / (most - LEAST))
    }

    /// The bytes of an image in relation to how many nodes have it (`scaledImageScore`).
    #[expect(
        clippy::cast_precision_loss,
        clippy::cast_possible_truncation,
        reason = "kube-scheduler computes with the same conversions"
    )]
    fn spread(&self, image: &str, size: i64) -> i64 {
        let known = self.on_nodes.values().flatten();
        let nodes = known.filter(|own| own.contains_key(image)).count();
        (size as f64 * (nodes as f64 / self.on_nodes.len() as f64)) as i64
    }
}

/// The images of a pod's containers and volumes, with a tag.
pub(super) fn of(pod: &Pod) -> Vec<String> {
    let Some(spec) = &pod.spec else { return Vec::new() };
    let images = in_order(spec).filter_map(|(_, container)| container.image.as_deref());
    let volumes = spec.volumes.iter().flatten();
    let of_volumes = volumes.filter_map(|volume| volume.image.as_ref()?.reference.as_deref());
    images.chain(of_volumes).map(with_tag).collect()
}

/// `normalizedImageName`.
fn with_tag(name: &str) -> String {
    let has_tag = name.rfind(':') > name.rfind('/');
    if has_tag { name.to_owned() } else { format!("{name}:latest") }
}
