//! One fabric for the pods of a group, or one domain of a level below it, and a channel of their
//! `ComputeDomain`.

use super::Asker;
use crate::denial::Denial;
use crate::dns::is_label;
use crate::group::{Fabric, SAME};
use cluster_model::fabric_level::{BadLevels, LevelRequests};
use cluster_model::machines::Machine;
use cluster_model::names::{annotation, attribute, label};
use cluster_model::view::ClusterView;
use k8s_openapi::api::core::v1::Pod;

/// Longest label value, which the name of a group can become.
const LABEL_MAX: usize = 63;

/// The smallest group of pods.
const GROUP_MIN: u32 = 2;

/// The value with which a pod asks for a `ComputeDomain`.
const AUTO: &str = "auto";

/// The wish of a pod for the fabric of its group.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct FabricWish {
    /// The pods with which the pod shares a fabric.
    pub group: Fabric,
    /// The levels below the fabric that the group asks for.
    pub levels: LevelRequests,
    /// Whether slices of the group each share a domain of the level, and not the whole group.
    pub is_sliced: bool,
}

/// The wish of a pod for a channel of the `ComputeDomain` that is made for its group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ComputeDomain;

impl ComputeDomain {
    pub(super) fn read(asker: &Asker<'_>) -> Result<Option<Self>, Denial> {
        match asker.annotation(annotation::COMPUTE_DOMAIN) {
            None => Ok(None),
            Some(AUTO) => Ok(Some(Self)),
            Some(value) => {
                let denial = Denial::new(annotation::COMPUTE_DOMAIN, value, "invalid value");
                Err(denial.allowed(format!("\"{AUTO}\"")))
            }
        }
    }

    /// Denies a pod that cannot get a channel.
    pub(crate) fn deny(why: String) -> Denial {
        Denial::new(annotation::COMPUTE_DOMAIN, AUTO, why)
    }
}

impl FabricWish {
    /// Reads the fabric and the levels, and checks the size of the group and how long it waits, which
    /// the fabric controller reads from the pod itself.
    pub(super) fn read(asker: &Asker<'_>) -> Result<Option<Self>, Denial> {
        let Some(group) = read_group(asker)? else { return Ok(None) };
        let is_sliced = asker.annotation(annotation::DOMAIN_SIZE).is_some();
        Ok(Some(Self { group, levels: read_levels(asker)?, is_sliced }))
    }

    /// Warns about a named group whose size nobody says: it is not placed as a whole.
    pub(crate) fn warning(&self, pod: &Pod) -> Option<String> {
        let Fabric::Named(name) = &self.group else { return None };
        let annotations = pod.metadata.annotations.as_ref();
        let is_sized = annotations.is_some_and(|all| all.contains_key(annotation::FABRIC_SIZE));
        (!is_sized).then(|| {
            format!(
                "group {name} has no {}, so its pods are placed one by one and some may run while \
                 others wait for room; add the number of pods, or use {}: \"{SAME}\" for the pods of \
                 one job",
                annotation::FABRIC_SIZE,
                annotation::FABRIC
            )
        })
    }

    /// Denies the pod unless fabrics are known: from an attribute of the NICs, or from a
    /// label that the operator has set on nodes.
    pub(super) fn check_machines(
        &self,
        machines: &[Machine<'_>],
        view: &ClusterView,
    ) -> Result<(), Denial> {
        let mut machines_of_fabrics = machines.iter().filter(|machine| {
            machine.nics_have(attribute::FABRIC) || has_label(machine, label::NODE_FABRIC, view)
        });
        if machines_of_fabrics.next().is_some() {
            return self.check_level_labels(machines, view);
        }
        Err(Denial::new(
            annotation::FABRIC,
            self.group.to_string(),
            format!(
                "no node that can serve the pod publishes {} on its NICs or has the label {}, so \
                 their fabric is unknown",
                attribute::FABRIC,
                label::NODE_FABRIC,
            ),
        ))
    }

    /// Denies a required level of which no node that can serve the pod has a domain.
    fn check_level_labels(
        &self,
        machines: &[Machine<'_>],
        view: &ClusterView,
    ) -> Result<(), Denial> {
        for level in self.levels.required() {
            let key = level.label();
            if !machines.iter().any(|machine| has_label(machine, key, view)) {
                return Err(Denial::new(
                    annotation::FABRIC_LEVEL,
                    level.name(),
                    format!(
                        "no node that can serve the pod has the label {key}, so its domains are \
                         unknown; label the nodes, or see --level-labels of fabric-controller"
                    ),
                ));
            }
        }
        Ok(())
    }
}

/// Whether a node of a machine has the label.
fn has_label(machine: &Machine<'_>, key: &str, view: &ClusterView) -> bool {
    machine.nodes.iter().any(|node| view.node_label(node, key).is_some())
}

/// Reads the levels below the fabric that the group asks for.
fn read_levels(asker: &Asker<'_>) -> Result<LevelRequests, Denial> {
    let requests = match asker.annotation(annotation::FABRIC_LEVEL) {
        None => LevelRequests::NONE,
        Some(value) => LevelRequests::parse(value).map_err(|bad| bad_levels(value, bad))?,
    };
    match asker.annotation(annotation::DOMAIN_SIZE) {
        Some(size) if requests.is_empty() => {
            let why = format!(
                "without a level in {}, slices have no domain to share; add it or remove this",
                annotation::FABRIC_LEVEL
            );
            Err(Denial::new(annotation::DOMAIN_SIZE, size, why))
        }
        _ => Ok(requests),
    }
}

fn bad_levels(value: &str, bad: BadLevels) -> Denial {
    let denial = Denial::new(annotation::FABRIC_LEVEL, value, format!("invalid value: {bad}"));
    denial.allowed(
        "\"nvlink\" or \"block\", each also with \"=required\" or \"=preferred\", or both \
         separated by a comma; or \"fabric\"",
    )
}

/// Reads the group, and checks the numbers that need one.
fn read_group(asker: &Asker<'_>) -> Result<Option<Fabric>, Denial> {
    let Some(value) = asker.annotation(annotation::FABRIC) else {
        for (name, why) in [
            (annotation::FABRIC_SIZE, ", which names the group, the size has no effect"),
            (annotation::FABRIC_LEVEL, ", which names the group, the level has no effect"),
            (annotation::DOMAIN_SIZE, ", which names the group, the size has no effect"),
            (annotation::FABRIC_WAIT, ", which names the group, the time has no effect"),
        ] {
            if let Some(value) = asker.annotation(name) {
                let why = format!("without {}{why}; add it or remove this", annotation::FABRIC);
                return Err(Denial::new(name, value, why));
            }
        }
        return Ok(None);
    };
    for (name, why, min) in [
        (annotation::FABRIC_SIZE, "invalid value: not a number of pods", GROUP_MIN),
        (annotation::DOMAIN_SIZE, "invalid value: not a number of pods", GROUP_MIN),
        (annotation::FABRIC_WAIT, "invalid value: not a number of seconds", 1),
    ] {
        if let Some(number) = asker.annotation(name)
            && number.parse::<u32>().map_or(true, |number| number < min)
        {
            let allowed = format!("a whole number of {min} or more");
            return Err(Denial::new(name, number, why).allowed(allowed));
        }
    }
    match value {
        SAME => Ok(Some(Fabric::Same)),
        name if is_label(name) && name.len() <= LABEL_MAX => {
            Ok(Some(Fabric::Named(name.to_owned())))
        }
        _ => Err(Denial::new(annotation::FABRIC, value, "invalid value: not a name of a group")
            .allowed(format!(
                "\"{SAME}\" for the pod's own job, or a name of at most {LABEL_MAX} lowercase \
                 letters, digits and hyphens"
            ))),
    }
}
