//! Builds OCI archives of images: the one that most pods here run, with busybox and a program that
//! locks memory, and images from a layer that a test supplies.

use std::{fs, path::Path, process::Command};

use anyhow::Context;
use serde_json::json;
use sha2::{Digest, Sha256};
use tar::{Builder, EntryType, Header};

use crate::binaries::{self, in_tests};

/// The image that pods name.
pub const IMAGE: &str = "localhost/busybox:test";

/// Debian's package `busybox-static`.
const BUSYBOX: &str = "busybox";

/// The commands that tests use.
const COMMANDS: [&str; 12] =
    ["sh", "sleep", "cat", "ls", "env", "ip", "echo", "ping", "test", "stat", "true", "wc"];

/// Writes the archive of [`IMAGE`].
pub(crate) fn write(path: &Path) -> anyhow::Result<()> {
    write_layer(path, IMAGE, &layer()?)
}

/// Writes the archive of an image with this name, of one layer, an uncompressed tar.
pub fn write_layer(path: &Path, image: &str, layer: &[u8]) -> anyhow::Result<()> {
    let config = json!({
        "architecture": "amd64",
        "os": "linux",
        "config": {"Env": ["PATH=/bin:/usr/bin"], "Cmd": ["/bin/sleep", "2147483647"]},
        "rootfs": {"type": "layers", "diff_ids": [digest(layer)]},
    });
    let config = serde_json::to_vec(&config)?;
    let describe = |kind: &str, blob: &[u8]| {
        json!({
            "mediaType": format!("application/vnd.oci.image.{kind}"),
            "digest": digest(blob),
            "size": blob.len(),
        })
    };
    let manifest = json!({
        "schemaVersion": 2,
        "mediaType": "application/vnd.oci.image.manifest.v1+json",
        "config": describe("config.v1+json", &config),
        "layers": [describe("layer.v1.tar", layer)],
    });
    let manifest = serde_json::to_vec(&manifest)?;
    let mut reference = describe("manifest.v1+json", &manifest);
    reference["annotations"] = json!({"io.containerd.image.name": image});
    let index = json!({"schemaVersion": 2, "manifests": [reference]});
    let mut archive = Builder::new(Vec::new());
    add(&mut archive, "oci-layout", br#"{"imageLayoutVersion":"1.0.0"}"#, 0o644)?;
    add(&mut archive, "index.json", &serde_json::to_vec(&index)?, 0o644)?;
    for blob in [layer, &config, &manifest] {
        let name = digest(blob).replace("sha256:", "blobs/sha256/");
        add(&mut archive, &name, blob, 0o644)?;
    }
    fs::write(path, archive.into_inner()?).with_context(|| format!("`{}`", path.display()))
}

fn layer() -> anyhow::Result<Vec<u8>> {
    let busybox = binaries::on_path(BUSYBOX).context("Debian: busybox-static")?;
    let busybox = fs::read(busybox)?;
    let mut layer = Builder::new(Vec::new());
    add(&mut layer, "bin/busybox", &busybox, 0o755)?;
    for command in COMMANDS {
        let mut header = Header::new_ustar();
        header.set_entry_type(EntryType::Symlink);
        header.set_size(0);
        header.set_mode(0o777);
        layer.append_link(&mut header, format!("bin/{command}"), "busybox")?;
    }
    add(&mut layer, "bin/lock", &lock()?, 0o755)?;
    for folder in ["etc/", "tmp/", "proc/", "sys/", "dev/"] {
        let mut header = Header::new_ustar();
        header.set_entry_type(EntryType::Directory);
        header.set_size(0);
        header.set_mode(0o755);
        layer.append_data(&mut header, folder, &[][..])?;
    }
    Ok(layer.into_inner()?)
}

/// The program that locks memory.
fn lock() -> anyhow::Result<Vec<u8>> {
    let folder = tempfile::tempdir()?;
    let program = folder.path().join("lock");
    let output = Command::new("cc")
        .args(["-static", "-Os", "-o"])
        .args([&program, &in_tests("node/lock.c")])
        .output()
        .context("failed to start `cc` (Debian: gcc)")?;
    let error = String::from_utf8_lossy(&output.stderr);
    anyhow::ensure!(output.status.success(), "lock.c: {}", error.trim());
    Ok(fs::read(program)?)
}

fn add(
    archive: &mut Builder<Vec<u8>>,
    name: &str,
    content: &[u8],
    mode: u32,
) -> anyhow::Result<()> {
    let mut header = Header::new_ustar();
    header.set_size(u64::try_from(content.len())?);
    header.set_mode(mode);
    Ok(archive.append_data(&mut header, name, content)?)
}

fn digest(blob: &[u8]) -> String {
    Sha256::digest(blob)
        .iter()
        .fold("sha256:".to_owned(), |text: String, byte: &u8| text + &format!("{byte:02x}"))
}
