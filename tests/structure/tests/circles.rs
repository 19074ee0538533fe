//! Tests synthetic crates with and without circles.

use std::fs;

use anyhow::Result;
use structure::{Import, circles, imports, upward, without_parents};

/// The files of each circle in a crate with these files.
fn found(files: &[(&str, &str)]) -> Result<Vec<Vec<String>>> {
    found_by(files, |imports| imports)
}

/// The same, of some of the imports.
fn found_by(
    files: &[(&str, &str)],
    select: fn(Vec<Import>) -> Vec<Import>,
) -> Result<Vec<Vec<String>>> {
    let folder = tempfile::tempdir()?;
    for (name, text) in files {
        let path = folder.path().join(name);
        if let Some(parent) = path.parent() {
            fs::create_dir_all(parent)?;
        }
        fs::write(path, text)?;
    }
    let mut all = Vec::new();
    for circle in circles(&select(imports(folder.path())?)) {
        let files = circle.iter().flat_map(|import| [&import.from, &import.to]);
        let mut files: Vec<_> = files.map(|file| file.display().to_string()).collect();
        files.sort();
        files.dedup();
        all.push(files);
    }
    all.sort();
    Ok(all)
}

#[test]
fn files_that_read_from_the_bottom_up_make_no_circle() -> Result<()> {
    let circles = found(&[
        ("lib.rs", "mod a; mod b; pub use b::B; fn f() { a::f(); }"),
        ("a.rs", "use crate::b::B; pub fn f() {} #[cfg(test)] mod tests { use crate::f; }"),
        ("b.rs", "mod c; pub use c::C; pub struct B(C);"),
        ("b/c.rs", "/// [`crate::f`]\npub struct C; const TEXT: &str = \"crate::f\";"),
    ])?;
    assert!(circles.is_empty(), "{circles:?}");
    Ok(())
}

#[test]
fn two_files_that_use_each_other_are_a_circle() -> Result<()> {
    let circles = found(&[
        ("lib.rs", "mod a; mod b;"),
        ("a.rs", "use crate::b::{self, B}; pub struct A;"),
        ("b.rs", "pub struct B(super::a::A);"),
    ])?;
    assert_eq!(circles, [["a.rs", "b.rs"]]);
    Ok(())
}

#[test]
fn a_parent_and_a_child_that_use_each_other_are_a_circle_that_can_be_left_out() -> Result<()> {
    let files = [
        ("main.rs", "mod a;"),
        ("a.rs", "mod c; pub const MOST: u8 = 1; pub fn f() { c::g() }"),
        ("a/c.rs", "pub fn g() { let _ = super::MOST; }"),
    ];
    assert_eq!(found(&files)?, [["a.rs", "a/c.rs"]]);
    assert!(found_by(&files, without_parents)?.is_empty());
    Ok(())
}

#[test]
fn a_use_of_what_the_root_defines_is_never_left_out() -> Result<()> {
    let files = [
        ("main.rs", "mod d; pub const LEAST: u8 = 0; fn main() { d::h() }"),
        ("d.rs", "pub fn h() { let _ = crate::LEAST; }"),
    ];
    assert_eq!(found_by(&files, without_parents)?, [["d.rs", "main.rs"]]);
    Ok(())
}

#[test]
fn a_comma_at_the_end_of_a_group_names_nothing() -> Result<()> {
    let circles = found(&[
        ("lib.rs", "mod a; pub use a::f;"),
        ("a.rs", "mod b; mod c; pub fn f() { b::g() }"),
        ("a/b.rs", "use crate::{a::c::{h,},}; pub fn g() { h() }"),
        ("a/c.rs", "pub fn h() {}"),
    ])?;
    assert!(circles.is_empty(), "{circles:?}");
    Ok(())
}

#[test]
fn a_name_leads_to_the_file_that_defines_it() -> Result<()> {
    // `d` uses `C` by the name that `a` re-exports, which is not a use of `a`.
    let circles = found(&[
        ("lib.rs", "mod a;"),
        ("a.rs", "mod c; mod d; pub use c::C as Renamed; pub fn f() { d::g() }"),
        ("a/c.rs", "pub struct C;"),
        ("a/d.rs", "use super::Renamed; pub fn g() -> Renamed { todo!() }"),
    ])?;
    assert!(circles.is_empty(), "{circles:?}");
    Ok(())
}

#[test]
fn paths_in_macros_and_in_modules_inside_a_file_count() -> Result<()> {
    let circles = found(&[
        ("lib.rs", "mod a; mod b;"),
        ("a.rs", "pub const A: u8 = 1; fn f() { println!(\"{}\", crate::b::inner::B); }"),
        ("b.rs", "pub mod inner { pub const B: u8 = super::super::a::A; }"),
    ])?;
    assert_eq!(circles, [["a.rs", "b.rs"]]);
    Ok(())
}

#[test]
fn a_folder_without_a_root_is_an_error() {
    let error = found(&[("a.rs", "")]).map_err(|error| error.to_string());
    assert!(error.is_err_and(|error| error.contains("has no lib.rs or main.rs")));
}

#[test]
fn an_import_of_a_folder_above_or_beside_leads_upwards() {
    let import =
        |from: &str, to: &str| Import { from: from.into(), to: to.into(), path: String::new() };
    let order: &[&[&str]] = &[&["low"], &["left", "right"]];
    let down = [
        import("left.rs", "low.rs"),
        import("left/a.rs", "left/b.rs"),
        import("main.rs", "right/a.rs"),
        import("main.rs", "args.rs"),
    ];
    assert!(upward(&down, order).is_empty());
    let up = [
        import("left/a.rs", "right.rs"),
        import("low.rs", "left/a.rs"),
        import("right/a.rs", "main.rs"),
    ];
    assert_eq!(upward(&up, order), up);
}
