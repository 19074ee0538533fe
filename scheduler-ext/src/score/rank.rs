//! Converts outcomes to points.

use super::{Cost, Gets};

/// The largest score (`MaxExtenderPriority`); kube-scheduler does not clamp.
pub const SCORE_MAX: i64 = 10;

/// The score if nothing is known: neither preferred nor avoided.
pub const NEUTRAL: i64 = SCORE_MAX / 2;

/// Number of different points.
const POINTS: usize = 11;

/// The predicted outcome on one candidate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Outcome {
    /// What the pod gets there.
    pub gets: Gets,
    /// What is lost there for other pods.
    pub cost: Cost,
}

/// Nodes on which the pod gets the same.
#[derive(Debug)]
struct Band {
    gets: Gets,
    /// The distinct outcomes, best first.
    outcomes: Vec<Outcome>,
    /// Points of its best node.
    top: usize,
    /// Number of points that it spans.
    width: usize,
}

/// The points of each candidate of one request, from 0 to [`SCORE_MAX`].
///
/// Candidates on which the pod gets the same form a band; within a band, a lower cost
/// gives a higher step. Up to eleven bands never overlap. If there are more, degraded
/// NICs only make steps within a band; if there are still more, bands share points. The
/// best node of a band is alone on its top step if there are enough steps. Points that no
/// step needs are left between bands. Equal outcomes get equal points. Unknown outcomes
/// get [`NEUTRAL`].
pub fn rank(candidates: &[Option<Outcome>]) -> Vec<i64> {
    let mut known: Vec<Outcome> = candidates.iter().copied().flatten().collect();
    known.sort_unstable();
    known.dedup();
    let mut key: fn(&Outcome) -> Gets = |outcome| outcome.gets;
    let mut bands = bands(&known, key);
    if bands.len() > POINTS {
        key = |outcome| Gets { degraded: 0, ..outcome.gets };
        bands = self::bands(&known, key);
    }
    candidates
        .iter()
        .map(|candidate| match candidate {
            Some(outcome) => points(&bands, &key(outcome), outcome),
            None => NEUTRAL,
        })
        .collect()
}

fn points(bands: &[Band], gets: &Gets, outcome: &Outcome) -> i64 {
    let Ok(number) = bands.binary_search_by(|band| band.gets.cmp(gets)) else {
        return NEUTRAL;
    };
    let points = if bands.len() > POINTS {
        POINTS - 1 - number * POINTS / bands.len()
    } else {
        let band = &bands[number];
        let place = band.outcomes.binary_search(outcome).unwrap_or_default();
        band.top - step(place, band.outcomes.len(), band.width)
    };
    i64::try_from(points).unwrap_or(NEUTRAL)
}

/// Steps below the top: 0 for the first of `count`, and only for it if possible; the full
/// width for the last.
fn step(place: usize, count: usize, width: usize) -> usize {
    match count {
        0 | 1 => 0,
        _ => (place * (width - 1)).div_ceil(count - 1),
    }
}

/// Groups the distinct outcomes, best first, into bands with points.
fn bands(known: &[Outcome], key: fn(&Outcome) -> Gets) -> Vec<Band> {
    let same = known.chunk_by(|a, b| key(a) == key(b));
    let mut bands: Vec<Band> = same
        .map(|outcomes| Band {
            gets: key(&outcomes[0]),
            outcomes: outcomes.to_vec(),
            top: POINTS - 1,
            width: 1,
        })
        .collect();
    if bands.len() <= POINTS {
        place(&mut bands);
    }
    bands
}

/// Gives each band one point, then the best band as many as it can use, then the next.
/// The remaining points are left between bands, more of them between better ones.
fn place(bands: &mut [Band]) {
    let mut spare = POINTS - bands.len();
    if let [only] = bands {
        only.width = POINTS;
        return;
    }
    for band in &mut *bands {
        let more = spare.min(band.outcomes.len() - 1);
        band.width += more;
        spare -= more;
    }
    let gaps = bands.len().saturating_sub(1);
    let mut top = POINTS;
    for (number, band) in bands.iter_mut().enumerate() {
        band.top = top - 1;
        let gap = match gaps {
            0 => 0,
            _ => spare / gaps + usize::from(number < spare % gaps),
        };
        top = top.saturating_sub(band.width + gap);
    }
}

#[cfg(test)]
mod tests;
