//! What anyone tries who reaches a port.

use super::Attempt;

pub(super) const ATTEMPTS: &[Attempt] = &[
    Attempt::here(
        "idle_connections_and_slow_bodies_do_not_stop_the_webhook",
        "10,000 connections with no or half a request, and 500 unfinished bodies, to the ports of admission",
        "Reviews and `/healthz` are answered; memory stays within the chart's limit",
    ),
    Attempt::here(
        "idle_connections_do_not_stop_the_fabric_controller",
        "10,000 connections with no or half a request to fabric-controller",
        "`/healthz` is answered; memory stays within the chart's limit",
    ),
    Attempt::here(
        "idle_connections_and_slow_bodies_do_not_stop_the_extender",
        "10,000 connections with no or half a request, and 500 unfinished bodies, to the ports of scheduler-ext",
        "`/prioritize` and `/healthz` are answered; memory stays within the chart's limit",
    ),
    Attempt::here(
        "idle_connections_do_not_stop_the_driver",
        "10,000 connections with no or half a request to node-driver",
        "It publishes a change of the machine; memory stays within the chart's limit",
    ),
    Attempt::here(
        "answers_that_nobody_takes_do_not_fill_the_memory",
        "HTTP/2 with a window of 0: 33 connections to the webhook with 190 finished reviews of 25 KB each, whose answers of 100 KB are never taken; HTTP/1 to `/metrics`, pipelined and never read",
        "Reviews and `/healthz` are answered; memory stays within the chart's limit",
    ),
    Attempt::in_suite(
        "unit",
        "answers_that_nobody_takes_are_limited_and_keep_nobody_out",
        "Answers that are never taken, over HTTP/2",
        "The connections whose answers make no progress are closed; others get their answers",
    ),
    Attempt::in_suite(
        "unit",
        "a_pipeline_that_nobody_reads_is_limited",
        "Hundreds of requests on each connection over HTTP/1, whose answers are never read",
        "The same",
    ),
    Attempt::in_suite(
        "unit",
        "idle_connections_and_half_requests_keep_nobody_out",
        "More connections than a port has places",
        "A new connection replaces the one that has waited longest",
    ),
    Attempt::in_suite(
        "unit",
        "slow_bodies_are_given_up_when_there_are_too_many",
        "Unfinished and oversized bodies",
        "503 for the oldest, 413 for what is too large",
    ),
    Attempt::in_suite(
        "node",
        "routes_of_a_dhcp_server_take_no_traffic_of_the_pod",
        "A DHCP server of the NIC's network: routes to 0.0.0.0/1, 128.0.0.0/1 and the cluster's services",
        "They are in a table that only the lease's address selects; the pod's own traffic stays on its own network",
    ),
    Attempt::in_suite(
        "chart",
        "metrics_are_closed_by_default",
        "Reading metrics and health from the pod network or the host's network",
        "Closed by NetworkPolicies, and on the driver by its address, unless a monitor is set",
    ),
];
