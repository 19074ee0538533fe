//! Draws the documentation's pictures into a folder.

#![expect(clippy::disallowed_methods, reason = "it writes the pictures")]

#[path = "../tests/pictures/shown.rs"]
mod shown;

use std::path::Path;
use std::{env, fs, io};

fn main() -> io::Result<()> {
    let folder = env::args_os().nth(1).ok_or_else(|| {
        io::Error::new(io::ErrorKind::InvalidInput, "name the folder, such as docs/images")
    })?;
    for (name, machine, size, _) in shown::SHOWN {
        fs::write(Path::new(&folder).join(name), shown::picture(machine, *size))?;
    }
    Ok(())
}
