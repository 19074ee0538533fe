//! Files that people give to `graph`: in the encodings of other systems, and for another flag.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

use clap::Parser as _;
use kubectl_dranet::args::Args;
use std::fs;
use std::path::Path;

const TREE: &str = include_str!("../../posted/tests/posted/tree.txt");
const HWLOC: &str = include_str!("../../posted/tests/posted/power8-nvlink.hwloc.xml");
const MATRIX: &str = include_str!("../../posted/tests/posted/a800-nccl933-legend.matrix.txt");
const NCCL: &str = include_str!("../../topology-graph/overlays/azure-ndv5-topo.xml");

/// The output of `graph` with a flag for these bytes, or the error in one line.
fn graph(flags: &[&str], bytes: &[u8]) -> String {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("posted");
    fs::write(&file, bytes).unwrap();
    let path = file.display().to_string();
    let flags: Vec<&str> =
        flags.iter().map(|flag| if *flag == "FILE" { path.as_str() } else { flag }).collect();
    let args = Args::try_parse_from([&["kubectl-dranet", "graph"], &*flags].concat()).unwrap();
    let text = match kubectl_dranet::run(&args) {
        Ok(output) => output.text,
        Err(error) => format!("error: {}", process::exit::one_line(&error)),
    };
    text.replace(&path, "FILE")
}

fn utf16(text: &str, bytes: fn(u16) -> [u8; 2]) -> Vec<u8> {
    let units = std::iter::once(0xfeff).chain(text.encode_utf16());
    units.flat_map(bytes).collect()
}

#[test]
fn files_in_any_encoding_are_the_same_graph() {
    for (text, flag) in [(TREE, "--root"), (HWLOC, "--root"), (NCCL, "--nccl-xml")] {
        let flags = [flag, "FILE"];
        let expected = graph(&flags, text.as_bytes());
        assert!(expected.contains("GPU0"), "{expected}");
        let odd = [text.as_bytes(), b"\n<!-- caf\xe9 -->\n"].concat();
        for (name, bytes) in [
            ("a byte order mark", [b"\xef\xbb\xbf", text.as_bytes()].concat()),
            ("UTF-16", utf16(text, u16::to_le_bytes)),
            ("UTF-16, big endian", utf16(text, u16::to_be_bytes)),
            ("NUL", [text.as_bytes(), &[0; 512]].concat()),
            ("a byte that is not UTF-8", odd),
        ] {
            assert_eq!(graph(&flags, &bytes), expected, "{flag}, {name}");
        }
    }
}

#[test]
fn files_for_another_flag_are_named() {
    let machine = Path::new("../topology-graph/tests/trees/a800-nccl-933.tar.gz");
    let machine = machine.display().to_string();
    let compare = ["--root", &machine, "--compare", "FILE"];
    let archive = fs::read(&machine).unwrap();
    let truncated = &archive[..200];
    for (flags, bytes, expected) in [
        (&["--root", "FILE"][..], &b""[..], "error: `FILE` is empty"),
        (&["--root", "FILE"], b" \n\0", "error: "),
        (
            &["--root", "FILE"],
            NCCL.as_bytes(),
            "`FILE` is a topology file of NCCL; give it to --nccl-xml",
        ),
        (&["--root", "FILE"], MATRIX.as_bytes(), "`FILE` is a matrix; give it to --compare"),
        (&["--root", "FILE"], b"hello", "failed to read `FILE`: found no PCI function"),
        (&["--root", "FILE"], truncated, "failed to read the archive `FILE`"),
        (
            &["--nccl-xml", "FILE"],
            HWLOC.as_bytes(),
            "`FILE` is a listing of a machine; give it to --root",
        ),
        (&compare, TREE.as_bytes(), "`FILE` is a listing of a machine; give it to --root"),
        (&compare, b"", "failed to read `FILE`: found no matrix"),
        (&compare, &archive, "it is an archive, no matrix"),
        (&compare, MATRIX.as_bytes(), "cells compared, 0 differ\n"),
    ] {
        let found = graph(flags, bytes);
        assert!(found.contains(expected), "{flags:?}: {found}");
    }
}
