//! What anyone tries who reaches the webhook, and what tenants try through kube-apiserver.

use super::Attempt;

pub(super) const ATTEMPTS: &[Attempt] = &[
    Attempt::here(
        "a_request_writes_nothing",
        "No credentials, the pod network: 200 AdmissionReviews in the name of `kube-system`",
        "Nothing is written; requests only decide",
    ),
    Attempt::here(
        "a_client_without_a_certificate_gets_no_answer",
        "No credentials, the pod network, with `admission.clientAuthority`: an AdmissionReview",
        "The connection is refused; only kube-apiserver, by its certificate, is answered",
    ),
    Attempt::here(
        "a_flood_of_reviews_delays_no_api_server",
        "No credentials, the pod network, with `admission.clientCertificate: preferred`: 400 different reviews at a time",
        "Every pod that is created meanwhile is admitted; others wait",
    ),
    Attempt::here(
        "pods_that_are_refused_leave_nothing",
        "Tenant who may create pods: 50 annotated pods in a namespace with the quota `pods: 0`",
        "Refused; no template is created",
    ),
    Attempt::in_suite(
        "control-plane",
        "other_pods_never_reach_the_webhook",
        "Tenant: pods without a key `dranet.io/…`, while the webhook is down",
        "Created; only annotated pods depend on the webhook",
    ),
    Attempt::in_suite(
        "unit",
        "deep_expressions_fit_the_smallest_stack",
        "No credentials, the pod network: a claim with the selector `1 in 1 in …`, 2,046 times",
        "Compiled or refused; the program goes on",
    ),
];
