//! What happens when a part is down, hangs or has a wrong clock.

use super::Attempt;

pub(super) const ATTEMPTS: &[Attempt] = &[
    Attempt::in_suite(
        "unit",
        "in_a_month_nothing_grows_and_nothing_needed_is_lost",
        "For a month, leaders of admission take turns and are away for hours; two of three have a clock \
         that is ten minutes wrong",
        "Every template that a pod needs exists, unused ones are collected, machines are forgotten in \
         time, the certificate is valid",
    ),
    Attempt::in_suite(
        "unit",
        "what_a_clock_that_was_ahead_has_made_is_replaced",
        "A leader of admission with a wrong clock renews the certificate",
        "It uses the API server's clock; what an earlier version has made is replaced at once",
    ),
    Attempt::in_suite(
        "control-plane",
        "pods_are_aligned_with_a_frozen_extender",
        "scheduler-ext hangs",
        "Pods are aligned; each waits for `httpTimeout` until the kubelet restarts the extender",
    ),
    Attempt::in_suite(
        "control-plane",
        "whenever_the_leader_dies_no_group_is_split",
        "The leader of fabric-controller is killed at any time",
        "No group is split",
    ),
    Attempt::in_suite(
        "control-plane",
        "another_replica_leads_when_the_leader_is_killed",
        "The leader of admission is killed",
        "Another replica leads; pods are admitted",
    ),
    Attempt::here(
        "an_api_server_that_hangs_loses_nothing",
        "kube-apiserver hangs for 20 seconds",
        "Pods are created and aligned when it is back; no program restarts",
    ),
    Attempt::here(
        "a_killed_etcd_loses_nothing",
        "etcd is killed",
        "Pods are created and aligned when it is back; no program restarts",
    ),
    Attempt::here(
        "every_pod_gets_its_claim_although_the_leader_dies",
        "The leader of admission is killed while 150 pods are created, each with its own template",
        "Every pod gets its claim",
    ),
    Attempt::here(
        "damaged_graphs_stop_no_program",
        "1,500 NodeTopologies with fields that are missing, doubled, or of another type or size",
        "The API server refuses some; the programs read the others, none ends, and pods on healthy nodes are aligned",
    ),
    Attempt::here(
        "contradictory_gangs_stop_no_other_gang",
        "400 gangs whose annotations contradict themselves and each other",
        "Admission refuses some; the others wait, no program ends, and another gang is placed",
    ),
    Attempt::in_suite(
        "control-plane",
        "an_orphaned_webhook_blocks_no_pod",
        "The namespace of admission is deleted",
        "The webhook is deleted with it; pods are created",
    ),
    Attempt::in_suite(
        "control-plane",
        "random_gangs_are_never_split_and_all_run",
        "Tenants: gangs of any form and size, which come and go",
        "None is split, and all run in the end",
    ),
];
