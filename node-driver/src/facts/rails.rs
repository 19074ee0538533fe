//! Reads the node's own file with the rails of its NICs.

use publication::rails::file::RailsFile;
use std::fs::File;
use std::io::{self, ErrorKind, Read as _};
use std::path::Path;

/// The name of the file in the driver's run directory.
const RAILS_FILE: &str = "rails";

/// More than the lines of a thousand NICs.
const MOST_BYTES: u64 = 64 * 1024;

/// Reads the file; `None` if there is none.
pub(crate) fn rails_file(run_dir: &Path) -> Option<RailsFile> {
    match read(&run_dir.join(RAILS_FILE)) {
        Ok(text) => Some(RailsFile::new(&text)),
        Err(error) if error.kind() == ErrorKind::NotFound => None,
        Err(error) => Some(RailsFile { rails: Err(error.to_string()) }),
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn a_file_that_cannot_be_used_says_why() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(rails_file(folder.path()), None);
        let said = |content: &[u8]| {
            fs::write(folder.path().join(RAILS_FILE), content).unwrap();
            rails_file(folder.path()).unwrap().rails
        };
        assert_eq!(said(b"mlx5_1 0"), Ok([("mlx5_1".to_owned(), 0)].into()));
        assert_eq!(said(&b"#".repeat(70_000)), Err("it is longer than 65536 bytes".to_owned()));
        let error = said(b"mlx5_0 \xff").unwrap_err();
        assert!(error.contains("UTF-8"), "{error}");
    }
}
