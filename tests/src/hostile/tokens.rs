//! What a stolen token of one of our service accounts can do.

use super::Attempt;

pub(super) const ATTEMPTS: &[Attempt] = &[
    Attempt::here(
        "a_node_token_takes_no_address_under_another_name_or_label",
        "Node token: a NicAddress whose name or labels differ from its pool, address and claim",
        "Refused by the admission policy",
    ),
    Attempt::here(
        "a_node_token_gives_no_address_to_a_claim_of_another_node",
        "Node token: an address of a pool in the name of another node's claim, inside the pool, outside it, or the gateway",
        "That claim gets an address that its own driver took; the forged ones are deleted",
    ),
    Attempt::here(
        "a_node_token_empties_no_pool",
        "Node token: all addresses of a pool, in the names of living claims",
        "The fabric controller deletes all but one address per device, pool and IP family of claims on that node",
    ),
    Attempt::here(
        "a_node_token_publishes_no_slice_in_the_pool_of_another_node",
        "Node token: a ResourceSlice whose pool has the name of another node",
        "Refused by the admission policy",
    ),
    Attempt::here(
        "a_node_token_reports_no_event_of_another",
        "Node token: an event about another node, from another controller, or about an object that the driver does not report on",
        "Refused by the admission policy",
    ),
    Attempt::here(
        "controllers_report_events_in_their_own_name_only",
        "Tokens of admission, fabric-controller and scheduler-ext: events in the name of the kubelet or of each other, or about a Secret or another object that they do not decide on; changes of the kubelet's events",
        "Refused by the admission policy",
    ),
    Attempt::here(
        "an_admission_token_writes_compute_domains_of_its_own_only",
        "Token of admission: a ComputeDomain in `kube-system`, or without a job; an absent owner on a tenant's ComputeDomain, which Kubernetes would delete",
        "Refused by the admission policy",
    ),
    Attempt::here(
        "an_admission_token_changes_no_webhook",
        "Token of admission: its webhook configuration for all resources",
        "Refused: only the service account `admission-authority` may write it, whose pod opens no port but that of health",
    ),
    Attempt::here(
        "a_fabric_controller_token_writes_its_condition_only",
        "Token of fabric-controller: reason, addresses, container states and other fields of the status of a pod with a fabric",
        "Refused by the admission policy",
    ),
    Attempt::here(
        "a_fabric_controller_token_evicts_pods_with_a_fabric_only",
        "Token of fabric-controller with `fabric-evict`: an eviction of a pod without `dranet.io/fabric`, or without grace period",
        "Refused by the admission policy",
    ),
    Attempt::here(
        "a_preemptor_token_keeps_single_devices_only",
        "Token of preemptor: a DeviceTaintRule with `NoExecute`, with another taint, for all devices or those of a pool; the deletion of an administrator's rule",
        "Refused by the admission policy",
    ),
    Attempt::here(
        "a_preemptor_token_allocates_unused_claims_only",
        "Token of preemptor: the user of a claim, another allocation of one that has devices, labels, annotations and other finalizers",
        "Refused by the admission policy or kube-apiserver",
    ),
    Attempt::here(
        "a_preemptor_token_evicts_no_pods_of_the_cluster_itself",
        "Token of preemptor: an eviction of a pod of the class `system-cluster-critical`, without UID, or without grace period",
        "Refused by the admission policy",
    ),
    Attempt::here(
        "a_preemptor_token_reports_events_in_its_own_name_only",
        "Token of preemptor: events in the name of the kubelet or of admission, or about a Secret",
        "Refused by the admission policy",
    ),
    Attempt::here(
        "tokens_can_do_what_the_table_says",
        "Tokens of all service accounts: every verb on every resource, in every namespace and by every name",
        "Allowed is exactly what `tests/tests/hostile/rights.txt` lists",
    ),
    Attempt::in_suite(
        "control-plane",
        "a_driver_writes_for_its_own_node_only",
        "Node token with all rights: slices and graphs of another node, of all nodes, of another driver; deletion of collections",
        "Refused by the admission policy",
    ),
    Attempt::in_suite(
        "control-plane",
        "a_driver_writes_the_status_of_its_own_devices_only",
        "Node token: the allocation, the consumers or other drivers' devices in a claim's status",
        "Refused by the admission policy",
    ),
    Attempt::in_suite(
        "control-plane",
        "the_fabric_controller_writes_only_its_own_fields",
        "Token of fabric-controller: images, labels, tolerations, gates of others",
        "Refused by the admission policy",
    ),
];
