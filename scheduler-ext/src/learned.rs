//! What an extender has learned, as its metrics say it: with it `simulate` ranks nodes as the running
//! extender does.

use crate::arrivals::Arrivals;
use crate::expected::Expected;
use crate::score::{Demand, Mix, shape};
use std::collections::BTreeMap;

/// The metric of shares, without its prefix.
pub(crate) const SHARE: &str = "expected_share";
/// The metric of pods that came most recently, without its prefix.
pub(crate) const RECENT: &str = "recent_pods";
/// The label of both for the shape.
pub(crate) const SHAPE: &str = "shape";
/// The label of [`SHARE`] for the mix.
pub(crate) const MIX: &str = "mix";
/// The mix of the flags.
pub(crate) const CONFIGURED: &str = "configured";
/// The mix with which nodes are ranked.
pub(crate) const LEARNED: &str = "learned";

const PREFIX: &str = "dranet_scheduler_ext_";

/// One, in the unit of a mix.
const WHOLE: f64 = 1e6;

/// A sample of these metrics.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Sample {
    pub(crate) metric: &'static str,
    pub(crate) labels: Vec<(&'static str, String)>,
    pub(crate) value: f64,
}

/// The samples that say what an extender expects.
pub(crate) fn samples(expected: &Expected) -> Vec<Sample> {
    let mixes = [(CONFIGURED, &expected.prior), (LEARNED, &expected.mix)];
    let shares = mixes.into_iter().flat_map(|(name, mix)| {
        mix.shares().iter().map(move |(demand, share)| Sample {
            metric: SHARE,
            labels: vec![(MIX, name.to_owned()), (SHAPE, demand.to_string())],
            value: f64::from(*share) / WHOLE,
        })
    });
    let recent = expected.arrivals.counts().into_iter().map(|(demand, count)| Sample {
        metric: RECENT,
        labels: vec![(SHAPE, demand.to_string())],
        value: f64::from(count),
    });
    shares.chain(recent).collect()
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
        Some(Self { prior, mix, arrivals, ..Self::default() })
    }
}

/// The metric of a line without its prefix, its labels, and its value.
fn sample(line: &str) -> Option<(&str, BTreeMap<&str, &str>, f64)> {
    let (metric, rest) = line.strip_prefix(PREFIX)?.split_once('{')?;
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
        let line = |Sample { metric, labels, value }: Sample| {
            let labels: Vec<_> =
                labels.iter().map(|(name, it)| format!("{name}=\"{it}\"")).collect();
            format!("{PREFIX}{metric}{{{}}} {value}\n", labels.join(","))
        };
        samples(expected).into_iter().map(line).collect()
    }

    #[test]
    fn metrics_give_the_same_expectations() {
        let prior: Mix = "1x1=3,2x2=7,3*8x8=1".parse().unwrap();
        let mut arrivals = Arrivals::default();
        for demand in [Demand::gpus(4), Demand::gpus(1), Demand::gpus(4)] {
            arrivals.add(demand);
        }
        let mix = arrivals.mix(&prior, &prior).unwrap();
        let expected = Expected { prior, mix, arrivals, ..Expected::default() };
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
