//! The node's own file with the rails of its NICs, which an operator or an LLDP daemon writes. Each line
//! has a NIC, by PCI address, RDMA device or interface, and the number of its rail; `#` begins a comment.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, ErrorKind, Read as _};
use std::path::Path;

/// The name of the file in the driver's run directory.
pub const RAILS_FILE: &str = "rails";

/// More than the lines of a thousand NICs.
const MOST_BYTES: u64 = 64 * 1024;

/// What the file says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RailsFile {
    /// The rail of each NIC by the name that the file has for it, or why the file is not used.
    pub rails: Result<BTreeMap<String, u32>, String>,
}

impl RailsFile {
    /// Reads the file; `None` if there is none.
    pub fn read(run_dir: &Path) -> Option<Self> {
        let rails = match read(&run_dir.join(RAILS_FILE)) {
            Ok(text) => parse(&text),
            Err(error) if error.kind() == ErrorKind::NotFound => return None,
            Err(error) => Err(error.to_string()),
        };
        Some(Self { rails })
    }
}

fn read(path: &Path) -> io::Result<String> {
    let mut text = String::new();
    let length = File::open(path)?.take(MOST_BYTES + 1).read_to_string(&mut text)? as u64;
    if length > MOST_BYTES {
        let why = format!("it is longer than {MOST_BYTES} bytes");
        return Err(io::Error::new(ErrorKind::FileTooLarge, why));
    }
    Ok(text)
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
    use std::fs;

    #[test]
    fn each_line_is_a_nic_and_its_rail() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(RailsFile::read(folder.path()), None);
        let said = |text: &str| {
            fs::write(folder.path().join(RAILS_FILE), text).unwrap();
            RailsFile::read(folder.path()).unwrap().rails
        };
        let two = [("0101:00:00.0".to_owned(), 1), ("mlx5_1".to_owned(), 0)];
        assert_eq!(said("# leaf7\n0101:00:00.0 1\n\n mlx5_1\t0 # leaf3\n"), Ok(two.into()));
        assert_eq!(said(""), Ok(BTreeMap::new()));
        for (text, why) in [
            ("mlx5_0", "line 1 must be a NIC and the number of its rail"),
            ("mlx5_0 0\nmlx5_1 leaf3", "line 2: `leaf3` must be the number of a rail"),
            ("mlx5_0 -1", "line 1: `-1` must be the number of a rail"),
            ("mlx5_0 0\nmlx5_0 1", "line 2: `mlx5_0` has a rail already"),
            (&"#".repeat(70_000), "it is longer than 65536 bytes"),
        ] {
            assert_eq!(said(text), Err(why.to_owned()));
        }
        fs::write(folder.path().join(RAILS_FILE), b"mlx5_0 \xff").unwrap();
        let error = RailsFile::read(folder.path()).unwrap().rails.unwrap_err();
        assert!(error.contains("UTF-8"), "{error}");
    }
}
