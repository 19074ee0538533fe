//! The kinds of objects that commands read, and their API paths.

/// A kind of object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Kind {
    /// API version, for example `resource.k8s.io/v1`.
    pub(crate) version: &'static str,
    pub(crate) name: &'static str,
    /// Plural name, for URLs and roles.
    pub(crate) plural: &'static str,
}

const fn kind(version: &'static str, name: &'static str, plural: &'static str) -> Kind {
    Kind { version, name, plural }
}

pub(crate) const NODES: Kind = kind("v1", "Node", "nodes");
pub(crate) const PODS: Kind = kind("v1", "Pod", "pods");
pub(crate) const NAMESPACES: Kind = kind("v1", "Namespace", "namespaces");
pub(crate) const QUOTAS: Kind = kind("v1", "ResourceQuota", "resourcequotas");
pub(crate) const LIMIT_RANGES: Kind = kind("v1", "LimitRange", "limitranges");
pub(crate) const PRIORITY_CLASSES: Kind =
    kind("scheduling.k8s.io/v1", "PriorityClass", "priorityclasses");
pub(crate) const BUDGETS: Kind = kind("policy/v1", "PodDisruptionBudget", "poddisruptionbudgets");
pub(crate) const VOLUMES: Kind = kind("v1", "PersistentVolume", "persistentvolumes");
pub(crate) const VOLUME_CLAIMS: Kind =
    kind("v1", "PersistentVolumeClaim", "persistentvolumeclaims");
pub(crate) const STORAGE_CLASSES: Kind =
    kind("storage.k8s.io/v1", "StorageClass", "storageclasses");
pub(crate) const CSI_DRIVERS: Kind = kind("storage.k8s.io/v1", "CSIDriver", "csidrivers");
pub(crate) const CSI_NODES: Kind = kind("storage.k8s.io/v1", "CSINode", "csinodes");
pub(crate) const STORAGE_CAPACITIES: Kind =
    kind("storage.k8s.io/v1", "CSIStorageCapacity", "csistoragecapacities");
pub(crate) const ATTACHMENTS: Kind =
    kind("storage.k8s.io/v1", "VolumeAttachment", "volumeattachments");
pub(crate) const SERVICES: Kind = kind("v1", "Service", "services");
pub(crate) const RUNTIME_CLASSES: Kind = kind("node.k8s.io/v1", "RuntimeClass", "runtimeclasses");
pub(crate) const CONFIG_MAPS: Kind = kind("v1", "ConfigMap", "configmaps");
pub(crate) const SLICES: Kind = kind("resource.k8s.io/v1", "ResourceSlice", "resourceslices");
pub(crate) const CLASSES: Kind = kind("resource.k8s.io/v1", "DeviceClass", "deviceclasses");
pub(crate) const CLAIMS: Kind = kind("resource.k8s.io/v1", "ResourceClaim", "resourceclaims");
pub(crate) const TAINT_RULES: Kind =
    kind("resource.k8s.io/v1", "DeviceTaintRule", "devicetaintrules");
pub(crate) const TEMPLATES: Kind =
    kind("resource.k8s.io/v1", "ResourceClaimTemplate", "resourceclaimtemplates");
pub(crate) const GRAPHS: Kind =
    kind("topology.dranet.io/v1alpha1", "NodeTopology", "nodetopologies");
pub(crate) const NIC_POOLS: Kind = kind("topology.dranet.io/v1alpha1", "NicPool", "nicpools");
pub(crate) const NIC_ADDRESSES: Kind =
    kind("topology.dranet.io/v1alpha1", "NicAddress", "nicaddresses");
pub(crate) const POD_GROUPS: Kind = kind("scheduling.k8s.io/v1beta1", "PodGroup", "podgroups");
pub(crate) const COMPOSITE_POD_GROUPS: Kind =
    kind("scheduling.k8s.io/v1alpha3", "CompositePodGroup", "compositepodgroups");
pub(crate) const COMPUTE_DOMAINS: Kind =
    kind("resource.nvidia.com/v1beta1", "ComputeDomain", "computedomains");
pub(crate) const EVENTS: Kind = kind("events.k8s.io/v1", "Event", "events");
pub(crate) const TOPOLOGIES: Kind = kind("kueue.x-k8s.io/v1beta2", "Topology", "topologies");
pub(crate) const WORKLOADS: Kind = kind("kueue.x-k8s.io/v1beta2", "Workload", "workloads");
pub(crate) const CLUSTER_QUEUES: Kind =
    kind("kueue.x-k8s.io/v1beta2", "ClusterQueue", "clusterqueues");
pub(crate) const HYPER_NODES: Kind =
    kind("topology.volcano.sh/v1alpha1", "HyperNode", "hypernodes");
pub(crate) const DEPLOYMENTS: Kind = kind("apps/v1", "Deployment", "deployments");
pub(crate) const DAEMON_SETS: Kind = kind("apps/v1", "DaemonSet", "daemonsets");
pub(crate) const STATEFUL_SETS: Kind = kind("apps/v1", "StatefulSet", "statefulsets");
pub(crate) const JOBS: Kind = kind("batch/v1", "Job", "jobs");
pub(crate) const CRON_JOBS: Kind = kind("batch/v1", "CronJob", "cronjobs");
pub(crate) const ENDPOINTS: Kind = kind("discovery.k8s.io/v1", "EndpointSlice", "endpointslices");
pub(crate) const WEBHOOKS: Kind = kind(
    "admissionregistration.k8s.io/v1",
    "MutatingWebhookConfiguration",
    "mutatingwebhookconfigurations",
);
pub(crate) const LINT_WEBHOOKS: Kind = kind(
    "admissionregistration.k8s.io/v1",
    "ValidatingWebhookConfiguration",
    "validatingwebhookconfigurations",
);
pub(crate) const DEFINITIONS: Kind =
    kind("apiextensions.k8s.io/v1", "CustomResourceDefinition", "customresourcedefinitions");

/// The kinds that every view needs.
pub(crate) const VIEW: [Kind; 7] = [NODES, SLICES, TAINT_RULES, CLASSES, CLAIMS, TEMPLATES, GRAPHS];

/// The kinds without which nothing is known about devices.
pub(crate) const DEVICES: [Kind; 4] = [NODES, SLICES, CLASSES, GRAPHS];

/// The kinds without which it is not known which devices are free.
pub(crate) const USE: [Kind; 6] = [NODES, SLICES, TAINT_RULES, CLASSES, CLAIMS, GRAPHS];

/// Kubernetes' own kinds that create pods.
pub(crate) const WITH_PODS: [Kind; 5] = [DEPLOYMENTS, DAEMON_SETS, STATEFUL_SETS, JOBS, CRON_JOBS];

/// The kinds of which the installation consists.
pub(crate) const INSTALLATION: [Kind; 6] =
    [DEPLOYMENTS, DAEMON_SETS, ENDPOINTS, WEBHOOKS, LINT_WEBHOOKS, DEFINITIONS];

/// Selects objects of a kind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Scope {
    All,
    Namespace(String),
    /// One object. The namespace is empty for cluster-scoped kinds.
    Object {
        namespace: String,
        name: String,
    },
    /// Events with this reason.
    Reason(&'static str),
}

/// Objects to read from the API server, and what the answer lacks if that is not allowed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Query {
    pub(crate) kind: Kind,
    pub(crate) scope: Scope,
    /// Such as `quotas are not checked`.
    pub(crate) without: &'static str,
}

impl Kind {
    /// Every object.
    pub(crate) fn all(self, without: &'static str) -> Query {
        Query { kind: self, scope: Scope::All, without }
    }

    /// The objects of a namespace, or of all.
    pub(crate) fn of(self, namespace: Option<&str>, without: &'static str) -> Query {
        let scope = namespace.map_or(Scope::All, |name| Scope::Namespace(name.to_owned()));
        Query { kind: self, scope, without }
    }

    /// The events with this reason.
    pub(crate) fn because(self, reason: &'static str, without: &'static str) -> Query {
        Query { kind: self, scope: Scope::Reason(reason), without }
    }

    /// One object.
    pub(crate) fn one(self, namespace: &str, name: &str, without: &'static str) -> Query {
        let scope = Scope::Object { namespace: namespace.to_owned(), name: name.to_owned() };
        Query { kind: self, scope, without }
    }

    /// The resource's name in roles and in `kubectl auth can-i`, for example
    /// `resourceslices.resource.k8s.io`.
    pub(crate) fn resource(self) -> String {
        match self.version.split_once('/') {
            Some((group, _)) => format!("{}.{group}", self.plural),
            None => self.plural.to_owned(),
        }
    }
}

impl Query {
    /// Path of the URL.
    #[cfg(any(feature = "live", test))]
    pub(crate) fn path(&self) -> String {
        let Kind { version, plural, .. } = self.kind;
        let root = if version.contains('/') { "apis" } else { "api" };
        let namespace = match &self.scope {
            Scope::Namespace(namespace) | Scope::Object { namespace, .. } => namespace.as_str(),
            Scope::All | Scope::Reason(_) => "",
        };
        let namespace =
            if namespace.is_empty() { String::new() } else { format!("/namespaces/{namespace}") };
        let rest = match &self.scope {
            Scope::Object { name, .. } => format!("/{name}"),
            Scope::Reason(reason) => format!("?fieldSelector=reason%3D{reason}"),
            Scope::All | Scope::Namespace(_) => String::new(),
        };
        format!("/{root}/{version}{namespace}/{plural}{rest}")
    }

    /// The right that it needs, such as `list nodes in the whole cluster`.
    pub(crate) fn right(&self) -> String {
        let resource = self.kind.resource();
        match &self.scope {
            Scope::All | Scope::Reason(_) => format!("list {resource} in the whole cluster"),
            Scope::Namespace(namespace) => format!("list {resource} in namespace `{namespace}`"),
            Scope::Object { namespace, name } if namespace.is_empty() => {
                format!("get {resource} `{name}`")
            }
            Scope::Object { namespace, name } => {
                format!("get {resource} `{name}` in namespace `{namespace}`")
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_and_rights_are_those_of_the_api_server() {
        for (query, path, right) in [
            (NODES.all(""), "/api/v1/nodes", "list nodes in the whole cluster"),
            (
                CLAIMS.of(Some("a"), ""),
                "/apis/resource.k8s.io/v1/namespaces/a/resourceclaims",
                "list resourceclaims.resource.k8s.io in namespace `a`",
            ),
            (
                CONFIG_MAPS.one("a", "b", ""),
                "/api/v1/namespaces/a/configmaps/b",
                "get configmaps `b` in namespace `a`",
            ),
            (
                EVENTS.because("Why", ""),
                "/apis/events.k8s.io/v1/events?fieldSelector=reason%3DWhy",
                "list events.events.k8s.io in the whole cluster",
            ),
            (
                DEFINITIONS.one("", "b", ""),
                "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/b",
                "get customresourcedefinitions.apiextensions.k8s.io `b`",
            ),
        ] {
            assert_eq!((query.path().as_str(), query.right().as_str()), (path, right));
        }
    }
}
