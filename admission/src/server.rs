//! The webhook server: watches, its certificate, `POST /mutate`, and the creation of templates for
//! pods that exist; and the leader's work beside it.
//!
//! The program's main runtime only answers requests and creates templates. Other watches, renewal of plans and the leader's
//! work run on threads with lower priority, with a separate client. Applying a slice of a large
//! node takes a fraction of a millisecond, and a copy of the view several milliseconds; no request
//! is queued behind these.

mod advice;
mod args;
pub(crate) mod authority;
pub(crate) mod certificate;
mod decisions;
mod handlers;
pub(crate) mod metrics;
mod plans;
mod recent;
mod review;
pub(crate) mod templates;
mod told;
mod writer;

pub use args::{Args, LeaderArgs, OwnArgs, PolicyArgs, UnknownShape};
pub use plans::{Plans, Renewer};

use crate::leader::Leader;
use crate::plan::Policy;
use crate::waiting_pods::WaitingPods;
use anyhow::Context as _;
use cluster_model::compute_domain::ComputeDomain;
use cluster_model::names::object;
use cluster_model::nic_pool::NicPool;
use cluster_model::watch::{self, SharedView, follow_into};
use decisions::Decisions;
use handlers::App;
use k8s_openapi::api::core::v1::{ConfigMap, Pod, ResourceQuota};
use k8s_openapi::api::scheduling::v1alpha3::CompositePodGroup;
use k8s_openapi::api::scheduling::v1beta1::PodGroup;
use kube::runtime::watcher;
use kube::{Api, Client};
use metrics::Metrics;
use process::background::Background;
use prometheus_client::registry::Registry;
use recent::RecentPins;
use serve::http::{Bound, Limits};
use serve::lease::Lease;
use serve::readiness::{Readiness, Wait};
use serve::tls::clients::Clients;
use std::sync::Arc;
use templates::Templates;
use tokio_util::sync::CancellationToken;

/// Runs the webhook, or what writes its authority, until SIGTERM or SIGINT.
pub async fn run(args: Args) -> anyhow::Result<()> {
    process::logging::init(&args.log)?;
    let stop = process::run::stop_on_signal().context("failed to listen for signals")?;
    let client = process::client::connect(&args.kube).await?;
    if args.write_authority {
        let namespace = args.own.namespace.unwrap_or_else(|| client.default_namespace().to_owned());
        let operations = Bound::plain(args.operations.operations_listen)?;
        return authority::run(client, namespace, operations, stop).await;
    }
    Box::pin(run_webhook(args, client, stop)).await
}

async fn run_webhook(args: Args, client: Client, stop: CancellationToken) -> anyhow::Result<()> {
    let Args { server, own, operations, kube, lease, policy, drivers, leader, .. } = args;
    cluster_model::drivers::use_file(drivers.as_deref())?;
    for counted in &policy.counted {
        counted
            .driver()
            .with_context(|| format!("--counted {}={}", counted.class, counted.resource))?;
    }
    let background = Background::start().context("failed to start background threads")?;
    // The threads that create a client also serve its connections.
    let watching = background.spawn(async move { process::client::connect(&kube).await });
    let watching = watching.await.context("failed to set up the watches")??;
    let namespace = own.namespace.unwrap_or_else(|| client.default_namespace().to_owned());
    let operations = Bound::plain(operations.operations_listen)?;
    let limits = Limits::requests(handlers::BODY_MAX);
    let webhook = match &server.tls_cert {
        Some(_) => Some(Bound::from_args(&server, limits).await?),
        None => None,
    };
    let clients = Clients::from_args(&server).await?;
    let names = webhook.is_none().then(|| certificate::names(&own.service, &namespace, own.names));
    tracing::info!(operations = %operations.address(), "Starting");

    let mut registry = Registry::with_prefix("dranet_admission");
    let metrics = Metrics::register(&mut registry);
    let (readiness, synced) = (Readiness::default(), Readiness::default());
    let view = SharedView::default();
    let policy: Arc<Policy> = Arc::new(policy.into());
    let templates = Templates::new(client.clone(), view.clone(), leader.keep_unused());
    let waiting = WaitingPods::default();
    let (plans, renewer) = Plans::new(&metrics);
    background.spawn(process::memory::keep_small());
    let renewing = background.spawn(renewer.run(view.clone(), Arc::clone(&policy)));
    let leader = Leader {
        templates: templates.with_client(watching.clone()),
        waiting: waiting.clone(),
        policy: Policy::clone(&policy),
        namespace: namespace.clone(),
        names,
        keep_unused: leader.keep_unused(),
        max_compute_domains: leader.max_compute_domains as usize,
        retention: leader.retention(),
        metrics: metrics.clone(),
    };
    let listed = [readiness.wait_for("pods"), synced.wait_for("pods")];
    let creation = create_templates(templates.clone(), waiting, listed, metrics.clone());
    let app = App {
        templates,
        policy,
        plans,
        recent: RecentPins::default(),
        decisions: Decisions::new(clients.are_preferred()),
        advice: Decisions::new(clients.are_preferred()),
        readiness: readiness.clone(),
        metrics,
    };
    let lease = Lease::new(watching.clone(), &namespace, object::LEASE, lease.duration());
    let watches =
        background.spawn(follow(watching, &namespace, view, [readiness.clone(), synced.clone()]));
    let operations_router = serve::operations::router(readiness.clone(), registry);
    let router = handlers::router(Arc::new(app));
    let no_certificate = webhook.is_none().then(|| readiness.wait_for("certificate"));
    let served = async {
        if let Some(bound) = webhook {
            return serve_on(bound, router, &stop).await;
        }
        let mut secret = certificate::OwnCertificate::watch(client, &namespace);
        let identity = secret.first(&clients).await;
        let bound = Bound::with_identity(server.listen, identity.clone(), limits)?;
        drop(no_certificate);
        tokio::select! {
            served = serve_on(bound, router, &stop) => served,
            () = secret.follow(&identity) => anyhow::bail!("the watch of the certificate ended"),
        }
    };
    let ended = stop.clone();
    let serving = async {
        let operations = async { Ok(operations.serve(operations_router, stop.clone()).await?) };
        let result = tokio::select! {
            ended = watches => Err(ended.err().map_or_else(|| anyhow::anyhow!("every watch ended"), Into::into)),
            error = creation => Err(error),
            _ = renewing => Err(anyhow::anyhow!("the renewal of plans ended")),
            result = async { tokio::try_join!(served, operations) } => result.map(drop),
        };
        ended.cancel();
        result
    };
    let leading = {
        let (stop, synced) = (stop.clone(), synced.clone());
        let lead = async move { Box::pin(lease.lead(stop, || leader.work(&synced))).await };
        background.spawn(lead)
    };
    // The leader's task ends with the program, or by a panic. Then the program ends too, so that it
    // is restarted.
    let leading = async {
        let led = leading.await;
        stop.cancel();
        led
    };
    let (result, led) = tokio::join!(serving, leading);
    result?;
    led.context("the leader's work failed")
}

/// Watches the pods without a node and creates their templates; returns why it ended. It runs on
/// the threads that answer requests, since pods wait for their templates.
async fn create_templates(
    templates: Templates,
    waiting: WaitingPods,
    listed: [Wait; 2],
    metrics: Metrics,
) -> anyhow::Error {
    let pods: Api<Pod> = Api::all(templates.client.clone());
    let config = watcher::Config::default().fields("spec.nodeName=");
    tokio::select! {
        () = follow_into(pods, config, waiting.clone(), listed) => {
            anyhow::anyhow!("the watch of pods ended")
        }
        () = writer::write(templates, waiting, metrics) => {
            anyhow::anyhow!("the creation of templates ended")
        }
    }
}

async fn serve_on(
    bound: Bound,
    router: axum::Router,
    stop: &CancellationToken,
) -> anyhow::Result<()> {
    tracing::info!(webhook = %bound.address(), "Listening");
    Ok(bound.serve(router, stop.clone()).await?)
}

/// Watches without end. Readiness waits from this call on, not only from the start of the
/// watches.
fn follow(
    client: Client,
    namespace: &str,
    view: SharedView,
    readiness: [Readiness; 2],
) -> impl Future<Output = ()> + use<> {
    let machines = Api::<ConfigMap>::namespaced(client.clone(), namespace);
    let listed = move |kind| readiness.each_ref().map(|readiness| readiness.wait_for(kind));
    let begun = listed("watches");
    async move {
        // The watches start in this order.
        futures::join!(
            watch::follow(client.clone(), view.clone(), listed.clone()),
            watch::follow_kind::<ResourceQuota, _>(
                client.clone(),
                view.clone(),
                listed("resourcequotas")
            ),
            watch::follow_if_served::<PodGroup, _>(
                client.clone(),
                view.clone(),
                listed("podgroups")
            ),
            watch::follow_if_served::<CompositePodGroup, _>(
                client.clone(),
                view.clone(),
                listed("compositepodgroups")
            ),
            watch::follow_if_served::<ComputeDomain, _>(
                client.clone(),
                view.clone(),
                listed("computedomains")
            ),
            // A cluster without NicPools may lack their definition, so readiness does not wait.
            watch::follow_kind::<NicPool, _>(client, view.clone(), ()),
            watch::follow_object(machines, object::MACHINES, view, listed("machines")),
            async { drop(begun) },
        );
    }
}
