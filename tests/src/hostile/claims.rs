//! What tenants try with pods, claims and templates.

use super::Attempt;

pub(super) const ATTEMPTS: &[Attempt] = &[
    Attempt::in_suite(
        "unit",
        "fields_of_the_class_win_over_those_of_the_claim",
        "Tenant with `edit`: a claim with the configuration `{}` or other values, for a DeviceClass with parameters",
        "Each field that the class sets wins",
    ),
    Attempt::in_suite(
        "chart",
        "only_allowed_namespaces_set_addresses_and_routes",
        "Tenant with `edit`: addresses, routes and other guarded fields in claims and templates",
        "Refused by the admission policy, except in allowed namespaces",
    ),
    Attempt::in_suite(
        "node",
        "guarded_fields_need_an_allowed_namespace",
        "The same, in a claim that was written before the policy",
        "The driver does not prepare it",
    ),
    Attempt::in_suite(
        "unit",
        "patterns_that_are_cheap_for_kubernetes_are_cheap",
        "Tenant with `edit`: 9 KB of CEL, 240 alternatives with `\\pL{400}`",
        "Evaluated in milliseconds, as in Kubernetes",
    ),
    Attempt::here(
        "expressions_of_a_tenant_delay_nobody",
        "20 waiting pods with such a claim, and more such claims by dry run",
        "Another tenant's gang is placed, every score and advice comes in time, and the extender keeps its memory",
    ),
    Attempt::in_suite(
        "unit",
        "gangs_whose_expressions_take_too_long_wait_alone",
        "Gated pods with expressions that take seconds",
        "They wait with the reason `Expensive`; others are placed, and come first from then on",
    ),
    Attempt::in_suite(
        "unit",
        "expressions_end_when_there_is_no_time_left",
        "Pods with such expressions, to scheduler-ext",
        "The neutral score, in time",
    ),
    Attempt::in_suite(
        "unit",
        "a_claim_with_expensive_expressions_is_not_checked",
        "A claim with such expressions, to the webhook for claims",
        "The warning `not-checked`, in time",
    ),
    Attempt::in_suite(
        "unit",
        "large_pods_are_refused_at_once",
        "Tenant: pods of three megabytes, with long keys, many annotations, many containers or large node affinities",
        "Refused at once; quoted values are cut",
    ),
    Attempt::in_suite(
        "unit",
        "a_claim_that_escapes_a_quota_is_denied_or_warned_about",
        "Tenant with a quota on `nvidia.com/gpu`: `dranet.io/gpus` without limits",
        "Denied, or a warning (`--quota-escape`)",
    ),
    Attempt::here(
        "a_template_of_another_namespace_is_not_copied",
        "Tenant who may create pods, with a quota of one GPU: a pod without annotations, or with a forged `dranet.io/plan`, that names a template for four GPUs of another namespace",
        "No template is created, and an event on the pod says why; `dranet.io/plan` cannot be added later",
    ),
    Attempt::here(
        "a_namespace_gets_few_compute_domains",
        "Tenant who may create pods: more jobs with `dranet.io/compute-domain` than `--max-compute-domains`, and pods without annotations that name channels",
        "So many ComputeDomains are created, none for the others, and an event says why",
    ),
    Attempt::in_suite(
        "unit",
        "what_is_created_again_and_again_is_created_more_and_more_rarely",
        "Tenant: pods that name an owner that does not exist, so that Kubernetes deletes their ComputeDomain",
        "It is created again after 10 seconds, and then more and more rarely, up to every 5 minutes",
    ),
    Attempt::here(
        "names_of_jobs_that_cannot_exist_flood_no_log",
        "Tenant: 100 groups with names of JobSets such as `mine?watch=true`, `../pods/p` or with line breaks",
        "No request has such a name; each pod has a condition that says why it waits, and the log stays short",
    ),
    Attempt::in_suite(
        "unit",
        "an_owner_that_cannot_be_read_is_read_more_and_more_rarely",
        "Groups whose job the API server cannot read",
        "Each read is logged once and repeated more and more rarely, up to every 2 minutes; the pods say why they wait",
    ),
    Attempt::in_suite(
        "unit",
        "short_files_that_unpack_to_much_are_refused",
        "A compressed `--snapshot` of a few MB with millions of objects, an object without end, or YAML without end",
        "Refused after 2 GiB, each object counted with at least 2 KiB (`--max-unpacked-mib`)",
    ),
    Attempt::in_suite(
        "unit",
        "a_compute_domain_is_made_for_admitted_pods_only",
        "The same tenant: a pod without annotations that names the channel of a ComputeDomain",
        "No ComputeDomain is created",
    ),
    Attempt::in_suite(
        "control-plane",
        "the_fabric_controller_writes_only_its_own_fields",
        "Tenant: `dranet.io/fabric-chosen` on its own waiting pods",
        "Refused by the admission policy",
    ),
    Attempt::in_suite(
        "unit",
        "lists_are_no_objects",
        "Tenant: a configuration with lists instead of objects",
        "Refused by the admission policy and the driver",
    ),
    Attempt::in_suite(
        "control-plane",
        "pools_are_limited_to_namespaces_and_drivers_to_their_node",
        "Tenant: a NicPool of other namespaces",
        "The driver gives no address",
    ),
    Attempt::in_suite(
        "node",
        "a_second_pod_of_a_claim_is_refused",
        "Tenant: a second pod for a claim whose interface is in a running pod",
        "Not prepared; the running pod keeps its network",
    ),
    Attempt::in_suite(
        "unit",
        "admin_access_takes_no_interface_and_no_address",
        "Tenant who may label its namespace: a claim with `adminAccess` for another tenant's NIC",
        "It gets the RDMA device beside its holder, which keeps the interface and the addresses",
    ),
    Attempt::in_suite(
        "node",
        "a_forged_interface_stays_in_the_pod",
        "Pod with `NET_ADMIN`: an interface with the name and index of its NIC",
        "Stays in the pod; the NIC returns",
    ),
    Attempt::in_suite(
        "network",
        "alternative_names_of_a_pod_keep_no_interface_there",
        "Pod with `NET_ADMIN`: alternative names for its NIC, of host interfaces and of its own",
        "The NIC returns without them",
    ),
    Attempt::in_suite(
        "network",
        "thousands_of_interfaces_of_a_pod_take_little_memory",
        "Pod with `NET_ADMIN`: 10,000 interfaces of its own, with 160,000 alternative names",
        "The NIC returns; the driver takes less than 64 MiB for it",
    ),
];
