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
        "node",
        "a_forged_interface_stays_in_the_pod",
        "Pod with `NET_ADMIN`: an interface with the name and index of its NIC",
        "Stays in the pod; the NIC returns",
    ),
];
