//! `ui`: a page that shows the cluster, on this machine or in a file.
//!
//! [`model`] is what the page shows and [`ask`] what it can be asked; both take what the other commands
//! decide. [`page`] is the page itself.

mod ask;
mod board;
mod model;
mod page;
#[cfg(feature = "live")]
mod serve;

use crate::Output;
use crate::args::UiArgs;
use crate::kinds::{PODS, USE};
use crate::settings;
use crate::source::{self, ReadCluster, Source};
use crate::subject::KINDS;
use anyhow::Context as _;
use ask::Known;
use jiff::Timestamp;
use page::Page;
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

pub(crate) fn run(args: &UiArgs) -> anyhow::Result<Output> {
    let source = Source::open(&args.source)?;
    if let Some(path) = &args.output {
        let seen = read(args, &source)?;
        let notes = seen.notes.clone();
        let page = Page::of_file(&known(args, seen)?, title(args), Timestamp::now())?;
        let page = page.with_notes(notes.clone());
        fs::write(path, page.html()?)
            .with_context(|| format!("failed to write `{}`", path.display()))?;
        return Ok(Output { notes, ..Output::from(format!("Written to {}\n", path.display())) });
    }
    serve(args, &source)
}

#[cfg(feature = "live")]
use serve::serve;

#[cfg(not(feature = "live"))]
fn serve(_: &UiArgs, _: &Source) -> anyhow::Result<Output> {
    anyhow::bail!(
        "this build serves no page: write it to a file with -o FILE, or build with `--features live`"
    )
}

/// Everything that the page shows and can be asked.
fn read(args: &UiArgs, source: &Source) -> anyhow::Result<ReadCluster> {
    let namespace = source.namespace(args.admission.namespace.as_deref());
    let mut queries = source::of_admission(&args.admission, &BTreeSet::new());
    queries.push(PODS.all("it is not known which pods have devices or wait"));
    queries.extend(source::of_preemption(&args.admission.admission_namespace));
    let mut seen = source.read(&queries, KINDS)?;
    seen.must_know(&USE)?;
    seen.must_know(&[PODS])?;
    seen.namespace = namespace.or(seen.namespace);
    Ok(seen)
}

fn known(args: &UiArgs, seen: ReadCluster) -> anyhow::Result<Known> {
    let policy = settings::policy(&args.policy, &seen.kept);
    Known::new(seen, policy)
}

/// What the page is about.
fn title(args: &UiArgs) -> String {
    let file = args.source.snapshot.as_deref().and_then(Path::file_name);
    let file = file.map(|name| name.to_string_lossy().into_owned());
    file.or_else(|| args.source.kube.context.clone()).unwrap_or_else(|| "cluster".to_owned())
}
