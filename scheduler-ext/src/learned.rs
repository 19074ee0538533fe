//! What an extender has learned, as its metrics say it: with it `simulate` ranks nodes as the running
//! extender does.

use crate::arrivals::Arrivals;
use crate::expected::Expected;
use crate::score::{Demand, Mix, shape};
use std::collections::BTreeMap;

/// The metrics, with the prefix of the program.
const SHARE: &str = "dranet_scheduler_ext_expected_share";
const RECENT: &str = "dranet_scheduler_ext_recent_pods";
/// The label of both for the shape.
const SHAPE: &str = "shape";
/// The label of [`SHARE`] for the mix.
const MIX: &str = "mix";
/// The mix of the flags.
const CONFIGURED: &str = "configured";
/// The mix with which nodes are ranked.
const LEARNED: &str = "learned";

/// One, in the unit of a mix.
const WHOLE: f64 = 1e6;

/// The labels and the value of a metric.
#[cfg(any(test, feature = "server"))]
pub(crate) type Sample = (Vec<(&'static str, String)>, f64);

/// The shares of shapes, `expected_share`.
#[cfg(any(test, feature = "server"))]
pub(crate) fn shares(expected: &Expected) -> Vec<Sample> {
    let mixes = [(CONFIGURED, &expected.prior), (LEARNED, &expected.mix)];
    let samples = mixes.into_iter().flat_map(|(name, mix)| {
        mix.shares().iter().map(move |(demand, share)| {
            let labels = vec![(MIX, name.to_owned()), (SHAPE, demand.to_string())];
            (labels, f64::from(*share) / WHOLE)
        })
    });
    samples.collect()
}

/// The shapes of the pods that came most recently, `recent_pods`.
#[cfg(any(test, feature = "server"))]
pub(crate) fn recent(expected: &Expected) -> Vec<Sample> {
    let counts = expected.arrivals.counts().into_iter();
    counts.map(|(demand, count)| (vec![(SHAPE, demand.to_string())], f64::from(count))).collect()
}

impl Expected {
    /// What an extender with these metrics expects; `None` if they do not say it. Which of its recent
    /// pods came first is not known.
    pub fn of_metrics(metrics: &str) -> Option<Self> {
        let mut shares: BTreeMap<String, Vec<(Demand, u32)>> = BTreeMap::new();
        let mut arrivals = Arrivals::default();
        for (metric, labels, value) in metrics.lines().filter_map(sample) {
            let Some(demand) = labels.get(SHAPE).and_then(|text| shape(text)) else { continue };
            match (metric, labels.get(MIX)) {
                (SHARE, Some(mix)) => {
                    shares
                        .entry((*mix).to_owned())
                        .or_default()
                        .push((demand, whole(value * WHOLE)?));
                }
                (RECENT, None) => (0..whole(value)?).for_each(|_| arrivals.add(demand)),
                _ => {}
            }
        }
        let mix = Mix::of_shares(shares.remove(LEARNED)?);
        let prior = Mix::of_shares(shares.remove(CONFIGURED)?);
        Some(Self { prior, arrivals, mix, ..Self::default() })
    }
}

/// The metric of a line, its labels, and its value.
fn sample(line: &str) -> Option<(&str, BTreeMap<&str, &str>, f64)> {
    let (metric, rest) = line.split_once('{')?;
    let (labels, value) = rest.rsplit_once('}')?;
    let labels = labels.split(',').filter_map(|label| {
        let (name, value) = label.split_once('=')?;
        Some((name, value.trim_matches('"')))
    });
    Some((metric, labels.collect(), value.trim().parse().ok()?))
}

/// A value as a number of things; `None` if an extender cannot have written it.
fn whole(value: f64) -> Option<u32> {
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "in its range")]
    (0.0..=WHOLE).contains(&value).then(|| value.round() as u32)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(expected: &Expected) -> String {
        lines(SHARE, shares(expected)) + &lines(RECENT, recent(expected))
    }

    fn lines(metric: &str, samples: Vec<Sample>) -> String {
        let lines = samples.into_iter().map(|(labels, value)| {
            let labels: Vec<_> =
                labels.iter().map(|(name, it)| format!("{name}=\"{it}\"")).collect();
            format!("{metric}{{{}}} {value}\n", labels.join(","))
        });
        lines.collect()
    }

    #[test]
    fn metrics_give_the_same_expectations() {
        let prior: Mix = "1x1=3,2x2=7,3*8x8=1".parse().unwrap();
        let mut arrivals = Arrivals::default();
        for demand in [Demand::gpus(4), Demand::gpus(1), Demand::gpus(4)] {
            arrivals.add(demand);
        }
        let mix = arrivals.mix(&prior, &prior).unwrap();
        let expected = Expected { prior, arrivals, mix, ..Expected::default() };
        let read = Expected::of_metrics(&text(&expected)).unwrap();
        assert_eq!(read.prior, expected.prior);
        assert_eq!(read.mix, expected.mix);
        assert_eq!(read.arrivals.counts(), expected.arrivals.counts());
    }

    #[test]
    fn other_texts_say_nothing() {
        for text in [
            "",
            "<html>",
            "dranet_scheduler_ext_late_total 3\n",
            "dranet_scheduler_ext_expected_share{mix=\"learned\",shape=\"1x1\"} 1.0\n",
            "dranet_scheduler_ext_expected_share{mix=\"learned\",shape=\"1x1\"} NaN\n\
             dranet_scheduler_ext_expected_share{mix=\"configured\",shape=\"1x1\"} 1.0\n",
            "dranet_scheduler_ext_recent_pods{shape=\"1x1\"} 1e9\n",
        ] {
            assert!(Expected::of_metrics(text).is_none(), "{text}");
        }
    }
}
