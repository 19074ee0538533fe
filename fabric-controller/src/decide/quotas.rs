//! Divides pods evenly over the fewest domains.

/// Divides cohorts evenly over the fewest domains, given how many each has room for. `None` if
/// there is too little room.
pub(super) fn quotas<D: Ord>(
    mut slots: Vec<(D, usize)>,
    cohorts: usize,
) -> Option<Vec<(D, usize)>> {
    slots.retain(|(_, slots)| *slots > 0);
    // Least room first.
    slots.sort_by(|(a, least), (b, more)| (least, a).cmp(&(more, b)));
    let mut chosen = Vec::new();
    let mut left = cohorts;
    while left > 0 {
        let enough = slots.iter().position(|(_, slots)| *slots >= left);
        let at = match enough {
            Some(at) => at,
            None => slots.len().checked_sub(1)?,
        };
        let (name, room) = slots.remove(at);
        left = left.saturating_sub(room);
        chosen.push((name, room));
    }
    chosen.sort_by(|(a, least), (b, more)| (least, a).cmp(&(more, b)));
    let mut left = cohorts;
    let count = chosen.len();
    let mut quotas = Vec::new();
    for (index, (name, room)) in chosen.into_iter().enumerate() {
        let share = left.div_ceil(count - index).min(room);
        left -= share;
        quotas.push((name, share));
    }
    Some(quotas)
}
#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cohorts_are_divided_evenly_over_the_fewest_domains() {
        let slots = |rooms: &[usize]| {
            let named = rooms.iter().enumerate().map(|(index, room)| (format!("d{index}"), *room));
            named.collect::<Vec<_>>()
        };
        for (rooms, cohorts, expected) in [
            (&[18, 18][..], 16, Some(vec![("d0", 16)])),
            // The smallest domain that is large enough.
            (&[18, 12, 16], 10, Some(vec![("d1", 10)])),
            (&[18, 18, 18], 32, Some(vec![("d0", 16), ("d2", 16)])),
            (&[18, 4, 18], 36, Some(vec![("d0", 18), ("d2", 18)])),
            (&[18, 4, 18], 38, Some(vec![("d1", 4), ("d0", 17), ("d2", 17)])),
            (&[2, 2], 5, None),
            (&[0, 0], 1, None),
            (&[], 1, None),
        ] {
            let found = quotas(slots(rooms), cohorts);
            let expected = expected.map(|all| {
                all.into_iter().map(|(name, share)| (name.to_owned(), share)).collect::<Vec<_>>()
            });
            assert_eq!(found, expected, "{cohorts} over {rooms:?}");
        }
    }
}
