//! Prints the circles of files below folders with a `lib.rs` or a `main.rs`, without uses of parents:
//! `cargo run -p structure --example circles -- admission/src`.
#![expect(clippy::print_stdout, reason = "a program for people")]

use std::env;
use std::path::Path;

use anyhow::Result;
use structure::{circles, imports, without_parents};

fn main() -> Result<()> {
    for folder in env::args().skip(1) {
        let circles = circles(&without_parents(imports(Path::new(&folder))?));
        println!("{folder}: {} circles", circles.len());
        for (number, circle) in circles.iter().enumerate() {
            println!("circle {}", number + 1);
            for import in circle {
                println!("  {import}");
            }
        }
    }
    Ok(())
}
