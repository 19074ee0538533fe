//! The node's own file with the rails of its NICs, which an operator or an LLDP daemon writes. Each line
//! has a NIC, by PCI address, RDMA device or interface, and the number of its rail; `#` begins a comment.

use std::collections::BTreeMap;

/// What the file says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RailsFile {
    /// The rail of each NIC by the name that the file has for it, or why the file is not used.
    pub rails: Result<BTreeMap<String, u32>, String>,
}

impl RailsFile {
    /// What a file with this text says.
    pub fn new(text: &str) -> Self {
        Self { rails: parse(text) }
    }
}

fn parse(text: &str) -> Result<BTreeMap<String, u32>, String> {
    let mut rails = BTreeMap::new();
    for (number, line) in (1..).zip(text.lines()) {
        let line = line.split('#').next().unwrap_or_default();
        let words: Vec<&str> = line.split_whitespace().collect();
        let (nic, rail) = match words[..] {
            [] => continue,
            [nic, rail] => (nic, rail),
            _ => return Err(format!("line {number} must be a NIC and the number of its rail")),
        };
        let rail: u32 = rail
            .parse()
            .map_err(|_| format!("line {number}: `{rail}` must be the number of a rail"))?;
        if rails.insert(nic.to_owned(), rail).is_some() {
            return Err(format!("line {number}: `{nic}` has a rail already"));
        }
    }
    Ok(rails)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(text: &str) -> Result<BTreeMap<String, u32>, String> {
        RailsFile::new(text).rails
    }

    #[test]
    fn each_line_is_a_nic_and_its_rail() {
        let two = [("0101:00:00.0".to_owned(), 1), ("mlx5_1".to_owned(), 0)];
        assert_eq!(said("# leaf7\n0101:00:00.0 1\n\n mlx5_1\t0 # leaf3\n"), Ok(two.into()));
        assert_eq!(said(""), Ok(BTreeMap::new()));
        for (text, why) in [
            ("mlx5_0", "line 1 must be a NIC and the number of its rail"),
            ("mlx5_0 0\nmlx5_1 leaf3", "line 2: `leaf3` must be the number of a rail"),
            ("mlx5_0 -1", "line 1: `-1` must be the number of a rail"),
            ("mlx5_0 0\nmlx5_0 1", "line 2: `mlx5_0` has a rail already"),
        ] {
            assert_eq!(said(text), Err(why.to_owned()));
        }
    }
}
