//! The matrices of hwloc's XML: distances between NUMA nodes, and links between GPUs, which hwloc has from
//! the vendors' libraries (`topology-nvml.c`, `topology-rsmi.c`).

use std::collections::{BTreeMap, BTreeSet};

use roxmltree::Node;
use topology_graph::class::is_display;
use topology_graph::{NumaNodeFacts, NvLinkFacts, PciAddress, XgmiLink};

use super::wrong;
use crate::machine::{Functions, PostedError};

const NVIDIA: u16 = 0x10de;

/// A value for every two objects, which have numbers.
struct Matrix {
    objects: Vec<u64>,
    values: Vec<u64>,
}

impl Matrix {
    /// The first matrix that is meant.
    fn named(
        top: Node<'_, '_>,
        is_meant: impl Fn(Node<'_, '_>) -> bool,
    ) -> Result<Option<Self>, PostedError> {
        let mut matrices = top.children().filter(|child| {
            child.has_tag_name("distances2") || child.has_tag_name("distances2hetero")
        });
        let Some(matrix) = matrices.find(|matrix| is_meant(*matrix)) else { return Ok(None) };
        Self::read(matrix).map(Some).ok_or_else(|| {
            let name = matrix.attribute("name").unwrap_or("distances2");
            wrong(matrix, name, "a matrix that is not square")
        })
    }

    fn read(matrix: Node<'_, '_>) -> Option<Self> {
        // `332`, or `OSDev:332` if the objects are of several types.
        let numbers = words(matrix, "indexes").map(|word| word.rsplit(':').next()?.parse().ok());
        let objects: Vec<u64> = numbers.collect::<Option<_>>()?;
        let values: Vec<u64> =
            words(matrix, "u64values").map(|word| word.parse().ok()).collect::<Option<_>>()?;
        (objects.len() * objects.len() == values.len()).then_some(Self { objects, values })
    }

    /// The row and the column of an object.
    fn place(&self, object: u64) -> Option<usize> {
        self.objects.iter().position(|known| *known == object)
    }

    fn value(&self, from: usize, to: usize) -> u64 {
        self.values[from * self.objects.len() + to]
    }

    /// The values above 0 between two functions, each pair once, the lower address first.
    fn between_functions(
        &self,
        numbers: &BTreeMap<u64, PciAddress>,
    ) -> BTreeMap<(PciAddress, PciAddress), u64> {
        let mut pairs = BTreeMap::new();
        for (from, a) in self.objects.iter().enumerate() {
            for (to, b) in self.objects.iter().enumerate() {
                let (Some(a), Some(b)) = (numbers.get(a), numbers.get(b)) else { continue };
                if a < b && self.value(from, to) > 0 {
                    pairs.insert((*a, *b), self.value(from, to));
                }
            }
        }
        pairs
    }
}

/// The words in the children with this tag.
fn words<'d>(matrix: Node<'d, '_>, tag: &'static str) -> impl Iterator<Item = &'d str> {
    let texts = matrix.children().filter(move |child| child.has_tag_name(tag));
    texts.filter_map(|child| child.text()).flat_map(str::split_whitespace)
}

/// Sets the distances between NUMA nodes, in the units of the SLIT.
pub(super) fn numa_distances(
    top: Node<'_, '_>,
    nodes: &mut [NumaNodeFacts],
) -> Result<(), PostedError> {
    let matrix = Matrix::named(top, |matrix| {
        matrix.attribute("type") == Some("NUMANode")
            && matrix.attribute("name").is_none_or(|name| name == "NUMALatency")
    })?;
    let Some(matrix) = matrix else { return Ok(()) };
    let order: Vec<u64> = nodes.iter().map(|node| u64::from(node.node.0)).collect();
    for facts in nodes {
        let Some(row) = matrix.place(u64::from(facts.node.0)) else { continue };
        let distances =
            order.iter().map_while(|to| u32::try_from(matrix.value(row, matrix.place(*to)?)).ok());
        facts.distances = distances.collect();
    }
    Ok(())
}

/// The NVLinks between two GPUs. hwloc adds up the bandwidths of the links in one direction.
pub(super) fn nvlinks(
    top: Node<'_, '_>,
    numbers: &BTreeMap<u64, PciAddress>,
    functions: &Functions,
) -> Result<Vec<NvLinkFacts>, PostedError> {
    let pairs = between_functions(top, "NVLinkBandwidth", numbers)?;
    let links = pairs.into_iter().filter_map(|((a, b), bandwidth)| {
        let of_one = of_one_nvlink(functions, a)?;
        let is_one_kind = of_one_nvlink(functions, b) == Some(of_one);
        let links = u32::try_from(bandwidth / of_one).ok()?;
        let is_known = is_one_kind && bandwidth.is_multiple_of(of_one);
        is_known.then_some(NvLinkFacts { a, b, links })
    });
    Ok(links.collect())
}

/// The bandwidth of one NVLink of a GPU in MB/s, as hwloc counts it: P100 has version 1, Blackwell version
/// 5. `None` for what is no GPU, such as an `NVSwitch`.
fn of_one_nvlink(functions: &Functions, gpu: PciAddress) -> Option<u64> {
    let function = functions.get(&gpu)?;
    (function.vendor == NVIDIA && is_display(function.class)).then_some(match function.device {
        0x15f0..=0x15ff => 20_000,
        0x2900..=0x29ff | 0x3180..=0x31ff => 50_000,
        _ => 25_000,
    })
}

/// XGMI between two GPUs. The bandwidth is unknown: hwloc writes one for all versions.
pub(super) fn xgmi(
    top: Node<'_, '_>,
    numbers: &BTreeMap<u64, PciAddress>,
) -> Result<Vec<XgmiLink>, PostedError> {
    let hops = between_functions(top, "XGMIHops", numbers)?;
    let linked = between_functions(top, "XGMIBandwidth", numbers)?;
    let gpus: BTreeSet<_> = linked.keys().chain(hops.keys()).copied().collect();
    let links = gpus.into_iter().map(|(a, b)| XgmiLink {
        a,
        b,
        hops: hops.get(&(a, b)).and_then(|hops| u32::try_from(*hops).ok()),
        bandwidth: None,
    });
    Ok(links.collect())
}

/// The values between two functions in the matrix with this name; empty if there is none.
fn between_functions(
    top: Node<'_, '_>,
    name: &str,
    numbers: &BTreeMap<u64, PciAddress>,
) -> Result<BTreeMap<(PciAddress, PciAddress), u64>, PostedError> {
    let matrix = Matrix::named(top, |it| it.attribute("name") == Some(name))?;
    Ok(matrix.map(|matrix| matrix.between_functions(numbers)).unwrap_or_default())
}
