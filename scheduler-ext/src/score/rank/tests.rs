use super::*;
use crate::score::Reach;
use proptest::prelude::*;
use topology_graph::PathKind;

fn outcome(alternative: u32, path: PathKind, loss: u64) -> Outcome {
    let farthest = Some(Reach { path, leaves_socket: false });
    let gets = Gets { alternative, farthest, ..Gets::default() };
    Outcome { gets, cost: Cost { loss, ..Cost::default() } }
}

/// Outcomes and their points.
#[test]
fn points_depend_first_on_what_the_pod_gets() {
    use PathKind::{Node, Pix, Sys};
    assert_eq!(rank(&[None]), [5]);
    assert_eq!(rank(&[Some(outcome(0, Pix, 7)), None]), [10, 5]);
    let cases: [(&[Outcome], &[i64]); 7] = [
        (&[], &[]),
        (&[outcome(0, Pix, 7)], &[10]),
        (&[outcome(0, Pix, 7), outcome(0, Pix, 7)], &[10, 10]),
        (&[outcome(0, Pix, 9), outcome(0, Pix, 1)], &[0, 10]),
        (&[outcome(0, Pix, 3), outcome(0, Pix, 2), outcome(0, Pix, 1)], &[0, 5, 10]),
        // The first is worse for the pod than the second, but costs nothing.
        (&[outcome(0, Sys, 0), outcome(0, Pix, 999)], &[0, 10]),
        // Spare points are between bands, not within them.
        (
            &[outcome(0, Pix, 1), outcome(0, Pix, 2), outcome(0, Node, 1), outcome(1, Pix, 1)],
            &[10, 9, 4, 0],
        ),
    ];
    for (candidates, points) in cases {
        let candidates: Vec<_> = candidates.iter().copied().map(Some).collect();
        assert_eq!(rank(&candidates), points, "{candidates:?}");
    }
}

#[test]
fn the_best_of_many_is_alone_on_its_step() {
    let many: Vec<_> = (0..500).map(|loss| Some(outcome(0, PathKind::Pix, loss))).collect();
    let points = rank(&many);
    assert_eq!(points.iter().filter(|points| **points == SCORE_MAX).count(), 1);
    assert!((0..=SCORE_MAX).all(|step| points.contains(&step)), "every step is used");
}

fn outcomes() -> impl Strategy<Value = Vec<Option<Outcome>>> {
    let reach = (prop::sample::select(PathKind::WORDS.to_vec()), any::<bool>())
        .prop_map(|(path, leaves_socket)| Reach { path, leaves_socket });
    let outcome = (0..3_u32, prop::option::of(reach), 0..3_u32, 0..6_u64, 0..3_u32).prop_map(
        |(alternative, farthest, degraded, loss, left)| Outcome {
            gets: Gets { alternative, farthest, degraded, ..Gets::default() },
            cost: Cost { loss, left, ..Cost::default() },
        },
    );
    prop::collection::vec(prop::option::weighted(0.9, outcome), 0..40)
}

/// Number of different alternatives and paths.
fn kinds(outcomes: &[Option<Outcome>]) -> usize {
    let gets = |outcome: &Outcome| Gets { degraded: 0, ..outcome.gets };
    let mut gets: Vec<_> = outcomes.iter().flatten().map(gets).collect();
    gets.sort_unstable();
    gets.dedup();
    gets.len()
}

proptest! {
    /// A strictly better outcome has strictly more points while points are left, and
    /// never fewer.
    #[test]
    fn better_outcomes_never_get_fewer_points(outcomes in outcomes()) {
        let points = rank(&outcomes);
        let strict = kinds(&outcomes) <= POINTS;
        let known: Vec<_> = outcomes.iter().zip(&points).filter_map(|(o, p)| Some((o.as_ref()?, p))).collect();
        for (a, of_a) in &known {
            prop_assert!((0..=SCORE_MAX).contains(*of_a));
            for (b, of_b) in &known {
                let of = |outcome: &Outcome| (outcome.gets.alternative, outcome.gets.farthest);
                let better = of(a) < of(b);
                prop_assert!(!better || of_a >= of_b);
                prop_assert!(!better || !strict || of_a > of_b, "{a:?} {of_a}, {b:?} {of_b}");
                prop_assert!(a > b || !strict || of_a >= of_b);
                prop_assert!(a != b || of_a == of_b);
            }
        }
    }

    #[test]
    fn the_order_of_candidates_does_not_matter(
        (mixed, order) in outcomes().prop_flat_map(|all| {
            let order: Vec<usize> = (0..all.len()).collect();
            (Just(all), Just(order).prop_shuffle())
        })
    ) {
        let points = rank(&mixed);
        let shuffled: Vec<_> = order.iter().map(|index| mixed[*index]).collect();
        let expected: Vec<_> = order.iter().map(|index| points[*index]).collect();
        prop_assert_eq!(rank(&shuffled), expected);
    }

    /// If anything is known, some node has 10; if two outcomes differ, some node has 0.
    #[test]
    fn the_highest_and_lowest_points_are_used(outcomes in outcomes()) {
        let mut known: Vec<_> = outcomes.iter().flatten().collect();
        known.sort_unstable();
        known.dedup();
        let points: Vec<_> = rank(&outcomes).into_iter().zip(&outcomes).filter(|(_, o)| o.is_some()).map(|(p, _)| p).collect();
        prop_assert!(known.is_empty() || points.contains(&SCORE_MAX));
        prop_assert!(known.len() < 2 || points.contains(&0));
    }
}
