//! Finds how blocks can be merged without losing any placement: merged blocks fit on a
//! machine wherever single blocks would, whatever is free in its cells.

use std::collections::BTreeSet;

/// The fewest sizes that add up to `blocks` and can fill every spread of that many blocks
/// over a machine's cells; larger sizes first. Each machine is given by the capacities of
/// its cells. `None` if only single blocks can.
pub(super) fn sizes(blocks: u32, machines: &[Vec<usize>]) -> Option<Vec<u32>> {
    let splits = machines.iter().flat_map(|rooms| splits(blocks as usize, rooms));
    // The order of the cells does not matter for the sizes.
    let splits: BTreeSet<Vec<usize>> = splits.map(sorted).collect();
    let all = partitions(blocks, blocks);
    let found = all
        .iter()
        .filter(|sizes| splits.iter().all(|split| fills(sizes, &mut split.clone())))
        .min_by_key(|sizes| sizes.len())?;
    (found.len() < blocks as usize).then(|| found.clone())
}

fn sorted(mut split: Vec<usize>) -> Vec<usize> {
    split.sort_unstable();
    split
}

/// Every way to spread `blocks` over cells with these capacities.
pub(super) fn splits(blocks: usize, rooms: &[usize]) -> Vec<Vec<usize>> {
    let Some((room, rest)) = rooms.split_first() else {
        return if blocks == 0 { vec![Vec::new()] } else { Vec::new() };
    };
    (0..=blocks.min(*room))
        .flat_map(|here| {
            splits(blocks - here, rest).into_iter().map(move |there| [vec![here], there].concat())
        })
        .collect()
}

/// Every way to write a number as a sum of parts no larger than `most`, larger parts
/// first.
fn partitions(number: u32, most: u32) -> Vec<Vec<u32>> {
    if number == 0 {
        return vec![Vec::new()];
    }
    (1..=number.min(most))
        .rev()
        .flat_map(|part| {
            partitions(number - part, part).into_iter().map(move |rest| [vec![part], rest].concat())
        })
        .collect()
}

/// Whether the sizes can be distributed so that they fill the cells exactly.
fn fills(sizes: &[u32], cells: &mut [usize]) -> bool {
    let Some((size, rest)) = sizes.split_first() else {
        return cells.iter().all(|left| *left == 0);
    };
    let size = *size as usize;
    (0..cells.len()).any(|cell| {
        if cells[cell] < size {
            return false;
        }
        cells[cell] -= size;
        let done = fills(rest, cells);
        cells[cell] += size;
        done
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Blocks, cell capacities of each machine, expected sizes.
    type Case = (u32, &'static [&'static [usize]], Option<&'static [u32]>);

    const CASES: &[Case] = &[
        (6, &[&[4, 4]], Some(&[3, 2, 1])),
        (4, &[&[4, 4]], Some(&[2, 1, 1])),
        (3, &[&[4, 4]], Some(&[2, 1])),
        (2, &[&[4, 4]], None),
        (8, &[&[4, 4]], Some(&[4, 4])),
        (6, &[&[2, 2, 2, 2]], Some(&[2, 2, 1, 1])),
        (3, &[&[1, 1, 1, 1]], None),
        (4, &[&[4, 4], &[2, 2]], Some(&[2, 1, 1])),
    ];

    #[test]
    fn blocks_are_merged_to_the_fewest_sizes() {
        for (blocks, rooms, expected) in CASES {
            let rooms: Vec<_> = rooms.iter().map(|rooms| rooms.to_vec()).collect();
            assert_eq!(sizes(*blocks, &rooms).as_deref(), *expected, "{blocks} over {rooms:?}");
        }
    }
}
