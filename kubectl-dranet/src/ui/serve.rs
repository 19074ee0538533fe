//! Serves the page on the loopback interface, to whoever has its address with the token.

mod guard;
mod watched;
mod what_if;

use super::ask::Known;
use super::board::Board;
use super::page::{self, Page};
use super::{known, read, title};
use crate::Output;
use crate::args::UiArgs;
use crate::source::Source;
use anyhow::Context as _;
use axum::extract::{Query, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{Html, IntoResponse, Response};
use axum::routing::get;
use axum::{Router, middleware};
use futures::stream::{self, Stream};
use guard::Token;
use jiff::Timestamp;
use serde::Deserialize;
use std::convert::Infallible;
use std::io::{Write as _, stdout};
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::net::TcpListener;
use tokio::runtime::Builder;
use tokio::sync::watch;
use watched::Watched;

/// What requests read.
pub(super) struct Site {
    token: Token,
    title: String,
    notes: Vec<String>,
    cluster: Shown,
    board: Mutex<Board>,
    /// The revision of the board.
    revision: watch::Sender<u64>,
}

/// The cluster that is shown.
enum Shown {
    /// One that does not change.
    File(Arc<Known>),
    Live(Arc<Watched>),
}

pub(super) fn serve(args: &UiArgs, source: &Source) -> anyhow::Result<Output> {
    let runtime = Builder::new_multi_thread().enable_all().build()?;
    let (cluster, notes) = match source {
        Source::File(..) => {
            let seen = read(args, source)?;
            let notes = seen.notes.clone();
            (Shown::File(Arc::new(known(args, seen)?)), notes)
        }
        Source::Live(cluster) => {
            let watched = Watched::new(args, cluster, source)?;
            let notes = watched.notes().to_vec();
            (Shown::Live(Arc::new(watched)), notes)
        }
    };
    let site = Site {
        token: Token::new()?,
        title: title(args),
        notes,
        cluster,
        board: Mutex::default(),
        revision: watch::Sender::new(0),
    };
    runtime.block_on(run(args, Arc::new(site)))?;
    Ok(Output::from(String::new()))
}

async fn run(args: &UiArgs, site: Arc<Site>) -> anyhow::Result<()> {
    let place = SocketAddr::from((Ipv4Addr::LOCALHOST, args.port));
    let listener = TcpListener::bind(place).await;
    let listener = listener.with_context(|| format!("failed to listen on {place}"))?;
    let place = listener.local_addr()?;
    let follow = match &site.cluster {
        Shown::Live(watched) => Some(watched::follow(args, Arc::clone(watched), &site).await?),
        Shown::File(known) => {
            *site.board() = Board::of_cluster(known)?;
            None
        }
    };
    writeln!(stdout(), "http://{place}/?token={}\n\nCtrl-C ends it.", site.token.text())?;
    let server = axum::serve(listener, routes(Arc::clone(&site)));
    tokio::select! {
        ended = server => ended.context("the page is no longer served"),
        () = async { match follow { Some(follow) => follow.await, None => std::future::pending().await } } => {
            anyhow::bail!("the cluster is no longer watched")
        }
        interrupted = tokio::signal::ctrl_c() => Ok(interrupted?),
    }
}

impl Site {
    pub(super) fn board(&self) -> MutexGuard<'_, Board> {
        self.board.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Ends a change of the board, and wakes the pages if anything differs.
    pub(super) fn publish(&self, mut board: MutexGuard<'_, Board>) {
        if let Some(revision) = board.commit() {
            self.revision.send_replace(revision);
        }
    }

    fn page(&self) -> anyhow::Result<String> {
        let everything = self.board().since(0);
        let page = Page::served(self.title.clone(), Timestamp::now(), everything);
        let page = page.with_notes(self.notes.clone());
        let is_live = matches!(self.cluster, Shown::Live(_));
        if is_live { page.live() } else { page }.html()
    }

    /// The cluster as it is now.
    fn known(&self) -> anyhow::Result<Arc<Known>> {
        match &self.cluster {
            Shown::File(known) => Ok(Arc::clone(known)),
            Shown::Live(watched) => watched.known().map(Arc::new),
        }
    }
}

fn routes(site: Arc<Site>) -> Router {
    Router::new()
        .route("/", get(show))
        .route("/picture", get(picture))
        .route("/explain", get(explain))
        .route("/what-if", get(supposed))
        .route("/events", get(events))
        .layer(middleware::from_fn_with_state(Arc::clone(&site), guard::check))
        .with_state(site)
}

/// An answer that could not be given.
struct Failure(StatusCode, String);

impl IntoResponse for Failure {
    fn into_response(self) -> Response {
        (self.0, self.1).into_response()
    }
}

impl From<anyhow::Error> for Failure {
    fn from(error: anyhow::Error) -> Self {
        Self(StatusCode::UNPROCESSABLE_ENTITY, process::exit::one_line(&error))
    }
}

/// Runs what takes its time where no other request waits for it.
async fn apart<T: Send + 'static>(
    site: Arc<Site>,
    work: impl FnOnce(&Site) -> anyhow::Result<T> + Send + 'static,
) -> Result<T, Failure> {
    match tokio::task::spawn_blocking(move || work(&site)).await {
        Ok(done) => Ok(done?),
        Err(error) => Err(anyhow::Error::from(error).into()),
    }
}

async fn show(State(site): State<Arc<Site>>) -> Result<Html<String>, Failure> {
    apart(site, Site::page).await.map(Html)
}

#[derive(Deserialize)]
struct OfNode {
    node: String,
}

async fn picture(
    State(site): State<Arc<Site>>,
    Query(OfNode { node }): Query<OfNode>,
) -> Result<Response, Failure> {
    let picture = apart(site, move |site| site.picture(&node)).await?;
    Ok(([(header::CONTENT_TYPE, "image/svg+xml")], picture).into_response())
}

#[derive(Deserialize)]
struct OfPod {
    pod: String,
}

async fn explain(
    State(site): State<Arc<Site>>,
    Query(OfPod { pod }): Query<OfPod>,
) -> Result<String, Failure> {
    apart(site, move |site| {
        let (namespace, name) = pod.split_once('/').context("write a pod as NAMESPACE/NAME")?;
        site.known()?.explain(namespace, name)
    })
    .await
}

#[derive(Deserialize)]
struct WithAnnotations {
    annotations: String,
}

async fn supposed(
    State(site): State<Arc<Site>>,
    Query(WithAnnotations { annotations }): Query<WithAnnotations>,
) -> Result<Response, Failure> {
    let found = apart(site, move |site| what_if::what_if(&*site.known()?, &annotations)).await?;
    Ok(axum::Json(found).into_response())
}

#[derive(Deserialize)]
struct Since {
    /// The revision that the page shows.
    since: u64,
}

/// What a browser has heard when it connects again.
const LAST_HEARD: &str = "last-event-id";

/// What changes after a revision, as server-sent events.
async fn events(
    State(site): State<Arc<Site>>,
    Query(Since { since }): Query<Since>,
    headers: HeaderMap,
) -> Sse<impl Stream<Item = Result<Event, Infallible>>> {
    let heard = headers.get(LAST_HEARD).and_then(|id| id.to_str().ok()?.parse().ok());
    let start = (Arc::clone(&site), site.revision.subscribe(), heard.unwrap_or(since));
    let changes = stream::unfold(start, |(site, mut revisions, seen)| async move {
        revisions.wait_for(|revision| *revision > seen).await.ok()?;
        let (update, revision) = site.board().since(seen);
        let text = serde_json::to_string(&update).ok()?;
        let event = Event::default().id(revision.to_string()).data(text);
        Some((Ok(event), (site, revisions, revision)))
    });
    Sse::new(changes).keep_alive(KeepAlive::default())
}

impl Site {
    fn picture(&self, node: &str) -> anyhow::Result<String> {
        let picture = match &self.cluster {
            Shown::File(known) => page::picture(&known.view, node),
            Shown::Live(watched) => page::picture(&watched.view(), node),
        };
        picture.with_context(|| format!("no graph is published for node `{node}`"))
    }
}
