//! The time from the creation of a pod until it is bound, side by side: by annotation, by an equal claim
//! that somebody has written, and without devices.

use std::{
    collections::BTreeMap,
    sync::Arc,
    time::{Duration, Instant},
};

use anyhow::Context;
use futures::{StreamExt, TryStreamExt, stream};
use k8s_openapi::api::{
    core::v1::{Namespace, Pod},
    resource::v1::ResourceClaimTemplate,
};
use kube::{
    Api,
    api::{DeleteParams, ObjectMeta, PostParams},
};
use tests::{
    Check, ControlPlane, Scope, eventually,
    figures::{cpu_times, percentile},
    suite::report,
};

use super::{
    bars::Bars,
    gang,
    instant::InstantWebhook,
    observer::{Observer, PodSteps},
    shapes::{BY_HAND, SHAPES, Shape},
    size::Size,
};

pub(crate) const LONG: Duration = Duration::from_mins(5);
/// The number of pods that are created in parallel.
const TOGETHER: usize = 32;
/// The number of dry runs in parallel.
const DRY_TOGETHER: usize = 4;
/// The longest that admission may delay a pod, from its creation until it has a claim.
const OURS_MAX: Duration = Duration::from_secs(1);
/// The least share of the rate of claims that somebody has written.
const RATE_MIN: f64 = 0.95;

/// The most time of a request with our webhook, by that with one that answers at once.
const INSTANT_MAX: f64 = 1.3;

/// What gives a pod its devices.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Way {
    /// An annotation; all pods have one template.
    Annotation,
    /// An annotation; each pod is in a namespace of its own, so each needs a template that nobody needed
    /// before.
    NewTemplates,
    /// A template that somebody has written, equal to that of [`Self::Annotation`].
    ByHand,
    /// The pod has no devices.
    None,
    /// The pod has no devices, and another webhook answers for it at once.
    Instant,
}

const WAYS: [Way; 5] = [Way::Annotation, Way::NewTemplates, Way::ByHand, Way::None, Way::Instant];

impl Way {
    fn name(self) -> &'static str {
        match self {
            Self::Annotation => "annotation",
            Self::NewTemplates => "annotation, each a new template",
            Self::ByHand => "claim by hand",
            Self::None => "no device",
            Self::Instant => "no device, a webhook that answers at once",
        }
    }

    fn shape(self) -> Shape {
        match self {
            Self::Annotation | Self::NewTemplates => SHAPES[0],
            Self::ByHand => Shape::ByHand,
            Self::None => Shape::Plain,
            Self::Instant => Shape::Instant,
        }
    }
}

/// The pods of a way in all rounds.
#[derive(Debug, Default)]
struct Measured {
    /// From the request until kube-apiserver has answered.
    admitted: Vec<Duration>,
    /// From the creation until the template exists.
    template: Vec<Duration>,
    /// From the creation until the claim exists.
    claimed: Vec<Duration>,
    /// From the claim, or else the creation, until the pod is bound.
    scheduled: Vec<Duration>,
    /// From the request until the pod is bound.
    whole: Vec<Duration>,
    /// From the first request until the first pod was bound, of each round.
    first: Vec<Duration>,
    /// Pods a second from the first request until the last pod was bound, in each round.
    rates: Vec<f64>,
    /// The CPU time of each program while the pods were bound and deleted.
    cpu: BTreeMap<String, Duration>,
}

/// Measures every way in each round, and each second round in reverse order: rates fall during the run.
pub(crate) async fn measure(
    plane: &ControlPlane,
    (scope, observer): (&Scope, &Arc<Observer>),
    size: Size,
    bars: &mut Bars,
) -> anyhow::Result<()> {
    let comparison = Comparison { scope, observer };
    let _instant = InstantWebhook::start(plane, scope).await?;
    let mut all: BTreeMap<Way, Measured> = BTreeMap::new();
    for round in 0..=size.rounds {
        for step in 0..WAYS.len() {
            let way = WAYS[if round % 2 == 0 { step } else { WAYS.len() - 1 - step }];
            comparison.burst(way, round, size.burst, all.entry(way).or_default()).await?;
        }
        // While much is new to the programs, all is slower.
        if round == 0 {
            all.clear();
        }
    }
    for (way, measured) in &mut all {
        measured.report(way.name(), size);
    }
    bars.at_most(
        "request of an annotated pod, p99 by that with an instant webhook",
        comparison.compare_requests(size).await?,
        INSTANT_MAX,
    );
    gang::measure((scope, observer), size, bars).await?;
    let mut figure = |way: Way, pick: fn(&mut Measured) -> f64| all.get_mut(&way).map_or(0.0, pick);
    let share = figure(Way::Annotation, Measured::rate) / figure(Way::ByHand, Measured::rate);
    bars.at_least("annotated pods, part of the rate of claims by hand", share, RATE_MIN);
    let by_hand = figure(Way::ByHand, Measured::p99_claimed);
    for way in [Way::Annotation, Way::NewTemplates] {
        let ours = figure(way, Measured::p99_claimed) - by_hand;
        let what =
            format!("{}: seconds until the claim exists, p99 beyond that by hand", way.name());
        bars.at_most(&what, ours, OURS_MAX.as_secs_f64());
    }
    Ok(())
}

/// Writes the template [`BY_HAND`], equal to the one that admission makes for the first shape.
pub(crate) async fn write_template(scope: &Scope, observer: &Observer) -> anyhow::Result<()> {
    let pods: Api<Pod> = scope.api();
    pods.create(&PostParams::default(), &SHAPES[0].pod("first")?).await?;
    let pod = scope.bound("first", LONG).await?;
    let claims = pod.spec.and_then(|spec| spec.resource_claims).unwrap_or_default();
    let name = claims.first().and_then(|claim| claim.resource_claim_template_name.clone());
    let templates: Api<ResourceClaimTemplate> = scope.api();
    let ours = templates.get(&name.context("it has a template")?).await?;
    let metadata = ObjectMeta { name: Some(BY_HAND.to_owned()), ..ObjectMeta::default() };
    let equal = ResourceClaimTemplate { metadata, spec: ours.spec };
    templates.create(&PostParams::default(), &equal).await?;
    pods.delete("first", &DeleteParams::default().grace_period(0)).await?;
    nothing_held(observer).await
}

struct Comparison<'a> {
    scope: &'a Scope,
    observer: &'a Arc<Observer>,
}

impl Comparison<'_> {
    /// Creates pods together, waits until all are bound, and deletes them.
    async fn burst(
        &self,
        way: Way,
        round: usize,
        count: usize,
        measured: &mut Measured,
    ) -> anyhow::Result<()> {
        let pods = self.places(way, round, count).await?;
        let (begin, cpu) = (Instant::now(), cpu_times());
        let created = stream::iter(&pods).map(async |(namespace, name)| {
            let api: Api<Pod> = Api::namespaced(self.scope.client(), namespace);
            let asked = Instant::now();
            api.create(&PostParams::default(), &way.shape().pod(name)?).await?;
            anyhow::Ok((asked, asked.elapsed()))
        });
        let created: Vec<_> = created.buffered(TOGETHER).try_collect().await?;
        let mut times = Vec::new();
        for ((namespace, name), (asked, admitted)) in pods.iter().zip(created) {
            let (steps, bound) = self.bound(namespace, name).await?;
            times.push(bound);
            measured.add(&steps, asked, admitted, bound);
        }
        if let (Some(first), Some(last)) = (times.iter().min(), times.iter().max()) {
            measured.first.push(first.duration_since(begin));
            let count = f64::from(u32::try_from(times.len())?);
            measured.rates.push(count / last.duration_since(begin).as_secs_f64());
        }
        self.delete(&pods).await?;
        measured.add_cpu(&cpu, cpu_times());
        Ok(())
    }

    /// Compares requests for annotated pods with those that a webhook answers at once: the p99 by the p99. All
    /// are dry runs, of both in turn, so that nothing else happens meanwhile.
    async fn compare_requests(&self, size: Size) -> anyhow::Result<f64> {
        let dry = PostParams { dry_run: true, ..PostParams::default() };
        let pods: Api<Pod> = self.scope.api();
        let asked = stream::iter(0..2 * size.rounds * size.burst).map(async |index| {
            let way = [Way::Annotation, Way::Instant][index % 2];
            let pod = way.shape().pod(&format!("dry-{index}"))?;
            let begin = Instant::now();
            pods.create(&dry, &pod).await?;
            anyhow::Ok((way, begin.elapsed()))
        });
        let asked: Vec<_> = asked.buffer_unordered(DRY_TOGETHER).try_collect().await?;
        let p99 = |way: Way| {
            let of_way = asked.iter().filter(|(its, _)| *its == way);
            let mut times: Vec<_> = of_way.map(|(_, time)| *time).collect();
            let [p50, p99] = [50, 99].map(|percent| percentile(&mut times, percent));
            report(&format!("dry run, {}: p50 {p50:.2?}, p99 {p99:.2?}", way.name()));
            p99.as_secs_f64()
        };
        Ok(p99(Way::Annotation) / p99(Way::Instant))
    }

    /// The namespaces and names of new pods.
    async fn places(
        &self,
        way: Way,
        round: usize,
        count: usize,
    ) -> anyhow::Result<Vec<(String, String)>> {
        let own = self.scope.namespace();
        let name = |index: usize| format!("{}-{round}-{index}", way.name().replace([' ', ','], ""));
        if way != Way::NewTemplates {
            return Ok((0..count).map(|index| (own.to_owned(), name(index))).collect());
        }
        let namespaces: Api<Namespace> = Api::all(self.scope.client());
        let made = stream::iter(0..count).map(async |index| {
            let place = format!("{own}-{round}-{index}");
            let metadata = ObjectMeta { name: Some(place.clone()), ..ObjectMeta::default() };
            let namespace = Namespace { metadata, ..Namespace::default() };
            namespaces.create(&PostParams::default(), &namespace).await?;
            anyhow::Ok((place, name(index)))
        });
        made.buffered(TOGETHER).try_collect().await
    }

    async fn bound(&self, namespace: &str, name: &str) -> anyhow::Result<(PodSteps, Instant)> {
        eventually(LONG, async || {
            let steps = self.observer.pod(namespace, name);
            Ok(match steps.and_then(|steps| Some((steps.clone(), steps.bound?))) {
                Some(bound) => Check::Done(bound),
                None => Check::NotYet(format!("pod `{namespace}/{name}` is not bound")),
            })
        })
        .await
    }

    /// Deletes pods, and waits until their devices are free.
    async fn delete(&self, pods: &[(String, String)]) -> anyhow::Result<()> {
        let now = DeleteParams::default().grace_period(0);
        let deleted = stream::iter(pods).map(async |(namespace, name)| {
            let api: Api<Pod> = Api::namespaced(self.scope.client(), namespace);
            api.delete(name, &now).await.map(drop)
        });
        deleted.buffer_unordered(TOGETHER).try_collect::<()>().await?;
        nothing_held(self.observer).await
    }
}

/// Waits until no claim holds a device.
pub(crate) async fn nothing_held(observer: &Observer) -> anyhow::Result<()> {
    eventually(LONG, async || {
        let held = observer.held();
        Ok(Check::that(held == 0, || format!("{held} devices are held")))
    })
    .await
}

impl Measured {
    fn add(&mut self, steps: &PodSteps, asked: Instant, admitted: Duration, bound: Instant) {
        self.admitted.push(admitted);
        self.whole.push(bound.duration_since(asked));
        let since_creation = |step: Instant| step.saturating_duration_since(steps.created);
        self.template.extend(steps.template.map(since_creation));
        self.claimed.extend(steps.claimed.map(since_creation));
        self.scheduled
            .push(bound.saturating_duration_since(steps.claimed.unwrap_or(steps.created)));
    }

    fn add_cpu(&mut self, before: &BTreeMap<String, Duration>, after: BTreeMap<String, Duration>) {
        for (program, time) in after {
            let before = before.get(&program).copied().unwrap_or_default();
            *self.cpu.entry(program).or_default() += time.saturating_sub(before);
        }
    }

    /// The median of the rates.
    fn rate(&mut self) -> f64 {
        self.rates.sort_unstable_by(f64::total_cmp);
        let middle = [(self.rates.len() - 1) / 2, self.rates.len() / 2];
        middle.map(|index| self.rates[index] / 2.0).iter().sum()
    }

    /// The p99 of the time until the claim exists, in seconds.
    fn p99_claimed(&mut self) -> f64 {
        percentile(&mut self.claimed, 99).as_secs_f64()
    }

    #[expect(clippy::cast_precision_loss, reason = "thousands of pods")]
    fn report(&mut self, name: &str, size: Size) {
        let rate = self.rate();
        report(&format!(
            "{name}: {} times {} pods, {rate:.2} pods a second, of {:.2?}",
            size.rounds, size.burst, self.rates
        ));
        for (what, times) in [
            ("request", &mut self.admitted),
            ("created → template", &mut self.template),
            ("created → claim", &mut self.claimed),
            ("claim → bound", &mut self.scheduled),
            ("request → bound", &mut self.whole),
            ("first bound", &mut self.first),
        ] {
            if !times.is_empty() {
                let [p50, p99] = [50, 99].map(|percent| percentile(times, percent));
                report(&format!("  {what:18} p50 {p50:8.2?}  p99 {p99:8.2?}"));
            }
        }
        let pods = self.whole.len().max(1) as f64;
        let each: Vec<_> = self
            .cpu
            .iter()
            .map(|(program, time)| format!("{program} {:.1}", time.as_secs_f64() * 1_000.0 / pods))
            .collect();
        report(&format!("  CPU ms a pod: {}", each.join(", ")));
    }
}
