//! The assignment problem: rows to columns, each used at most once, with the
//! greatest sum. The Hungarian method with potentials in O(n³) (Kuhn 1955,
//! Munkres 1957, in Jonker and Volgenant's form of shortest augmenting paths).

/// Row and column of each assigned pair, by row. All rows have equally many
/// columns; the same gains give the same answer.
pub(super) fn assign(gains: &[Vec<i64>]) -> Vec<(usize, usize)> {
    let rows = gains.len();
    let columns = gains.first().map_or(0, Vec::len);
    if rows <= columns {
        return solve(rows, columns, |row, column| -gains[row][column]);
    }
    let mut swapped = solve(columns, rows, |column, row| -gains[row][column]);
    for pair in &mut swapped {
        *pair = (pair.1, pair.0);
    }
    swapped.sort_unstable();
    swapped
}

/// State of the method; index 0 stands for "none", rows and columns count from 1.
struct Potentials {
    row: Vec<i64>,
    column: Vec<i64>,
    /// The row that each column is assigned to.
    assigned: Vec<usize>,
    /// The column before each on the augmenting path.
    before: Vec<usize>,
}

/// Least cost, for at most as many rows as columns.
fn solve(rows: usize, columns: usize, cost: impl Fn(usize, usize) -> i64) -> Vec<(usize, usize)> {
    let mut state = Potentials {
        row: vec![0; rows + 1],
        column: vec![0; columns + 1],
        assigned: vec![0; columns + 1],
        before: vec![0; columns + 1],
    };
    for row in 1..=rows {
        state.assigned[0] = row;
        let end = state.grow(columns, &cost);
        state.augment(end);
    }
    let taken = (1..=columns).filter(|&column| state.assigned[column] > 0);
    let mut pairs: Vec<_> = taken.map(|column| (state.assigned[column] - 1, column - 1)).collect();
    pairs.sort_unstable();
    pairs
}

impl Potentials {
    /// Grows a tree of shortest paths from column 0 until a free column is found.
    fn grow(&mut self, columns: usize, cost: &impl Fn(usize, usize) -> i64) -> usize {
        let mut slack = vec![i64::MAX; columns + 1];
        let mut seen = vec![false; columns + 1];
        let mut at = 0;
        loop {
            seen[at] = true;
            let row = self.assigned[at];
            let (mut nearest, mut next) = (i64::MAX, 0);
            for column in (1..=columns).filter(|&column| !seen[column]) {
                let reduced = cost(row - 1, column - 1) - self.row[row] - self.column[column];
                if reduced < slack[column] {
                    slack[column] = reduced;
                    self.before[column] = at;
                }
                if slack[column] < nearest {
                    (nearest, next) = (slack[column], column);
                }
            }
            self.shift(nearest, &seen, &mut slack);
            at = next;
            if self.assigned[at] == 0 {
                return at;
            }
        }
    }

    fn shift(&mut self, by: i64, seen: &[bool], slack: &mut [i64]) {
        for column in 0..seen.len() {
            if seen[column] {
                self.row[self.assigned[column]] += by;
                self.column[column] -= by;
            } else if slack[column] != i64::MAX {
                slack[column] -= by;
            }
        }
    }

    /// Moves every row on the path from column 0 to `end` one column on.
    fn augment(&mut self, end: usize) {
        let mut at = end;
        while at != 0 {
            let before = self.before[at];
            self.assigned[at] = self.assigned[before];
            at = before;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    fn sum(gains: &[Vec<i64>], pairs: &[(usize, usize)]) -> i64 {
        pairs.iter().map(|&(row, column)| gains[row][column]).sum()
    }

    /// The greatest sum over all ways to use each column at most once.
    fn brute_force(gains: &[Vec<i64>], used: u32) -> i64 {
        let [first, rest @ ..] = gains else { return 0 };
        let with = (0..first.len()).filter(|column| used & 1 << column == 0);
        let best = with.map(|column| first[column] + brute_force(rest, used | 1 << column)).max();
        best.unwrap_or(i64::MIN).max(brute_force(rest, used))
    }

    #[test]
    fn nothing_to_assign() {
        assert_eq!(assign(&[]), []);
        assert_eq!(assign(&[vec![], vec![]]), []);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2_000))]
        #[test]
        fn equals_brute_force(
            gains in (0..6_usize, 0..6_usize).prop_flat_map(|(rows, columns)| {
                prop::collection::vec(prop::collection::vec(0..9_i64, columns), rows)
            })
        ) {
            let pairs = assign(&gains);
            let columns: BTreeSet<_> = pairs.iter().map(|pair| pair.1).collect();
            prop_assert_eq!(columns.len(), pairs.len());
            prop_assert_eq!(sum(&gains, &pairs), brute_force(&gains, 0));
        }
    }
}
