//! The images that `deploy/images` builds: one file each, an unprivileged user except for the
//! driver, and the same bytes each time. They contain the tests' programs without debug
//! information.

use std::{env, fs, iter, os::unix::fs::PermissionsExt, path::Path, sync::Arc};

use anyhow::Context;
use serde_json::{Value, json};
use tests::{ControlPlane, binaries, chart::printed, suite::Test};
use tokio::process::Command;

const PROGRAMS: [(&str, &str); 2] = [("scheduler-ext", "65532:65532"), ("node-driver", "0:0")];

pub(crate) fn tests() -> Vec<Test> {
    tests::tests![an_image_is_a_program_and_nothing_else, a_missing_arm64_target_is_reported,]
}

/// A rustc with only the target of its own machine.
const RUSTC: &str = r#"#!/bin/sh
case "$*" in *aarch64*) echo /nowhere ;; *) echo "host: x86_64-unknown-linux-gnu" ;; esac
"#;

/// Replaces cargo, which would take minutes: creates a program at once.
const CARGO: &str = r#"#!/bin/sh
while [ $# -gt 0 ]; do
  case $1 in --profile) profile=$2 ;; --target) target=$2 ;; -p) program=$2 ;; esac
  shift
done
mkdir -p "$CARGO_TARGET_DIR/$target/$profile"
echo "$program" >"$CARGO_TARGET_DIR/$target/$profile/$program"
"#;

/// The build continues with amd64, unless both are requested.
async fn a_missing_arm64_target_is_reported(_: Arc<ControlPlane>) -> anyhow::Result<()> {
    let folder = tempfile::tempdir()?;
    let tools = folder.path().join("tools");
    fs::create_dir(&tools)?;
    for (name, script) in [("rustc", RUSTC), ("cargo", CARGO)] {
        fs::write(tools.join(name), script)?;
        fs::set_permissions(tools.join(name), fs::Permissions::from_mode(0o755))?;
    }
    let rest = env::var_os("PATH").unwrap_or_default();
    let path = env::join_paths(iter::once(tools).chain(env::split_paths(&rest)))?;
    let to = folder.path().join("images");
    let build = async |flags: &[&str]| {
        Command::new(binaries::in_tests("../deploy/images"))
            .env("PATH", &path)
            .env_remove("RUSTC")
            .env("CARGO_TARGET_DIR", folder.path().join("target"))
            .args(flags)
            .arg(&to)
            .arg("admission")
            .output()
            .await
    };
    let lack = "no arm64; it needs `rustup target add aarch64-unknown-linux-gnu`";
    let refused = build(&["--both"]).await?;
    let said = String::from_utf8(refused.stderr)?;
    assert!(!refused.status.success() && said.contains(&format!("error: {lack}")), "{said}");
    assert!(!folder.path().join("target").exists(), "nothing is built in vain");

    let done = build(&[]).await?;
    let said = String::from_utf8(done.stderr.clone())?;
    printed(done)?;
    assert!(said.contains(&format!("note: {lack}")), "{said}");
    let layout = to.join("admission");
    let images = blob(&layout, &read(&layout.join("index.json"))?["manifests"][0])?;
    let images = images["manifests"].as_array().context("a list")?;
    let [image] = images.as_slice() else { anyhow::bail!("{} images", images.len()) };
    assert_eq!(image["platform"]["architecture"], "amd64");
    Ok(())
}

async fn an_image_is_a_program_and_nothing_else(_: Arc<ControlPlane>) -> anyhow::Result<()> {
    let folder = tempfile::tempdir()?;
    let programs = folder.path().join("programs");
    for architecture in ["amd64", "arm64"] {
        fs::create_dir_all(programs.join(architecture))?;
    }
    for (program, _) in PROGRAMS {
        let to = programs.join("amd64").join(program);
        let own = binaries::ours(program)?;
        printed(Command::new("strip").arg("-o").arg(&to).arg(own).output().await?)?;
    }
    // A program need not run to be packed.
    fs::write(programs.join("arm64/scheduler-ext"), "another architecture's")?;

    let (once, again) = (folder.path().join("once"), folder.path().join("again"));
    for to in [&once, &again] {
        let build = Command::new(binaries::in_tests("../deploy/images"))
            .arg("--programs")
            .arg(&programs)
            .args(["--tag", "1.2.3"])
            .arg(to)
            .args(PROGRAMS.map(|(program, _)| program))
            .output();
        printed(build.await?)?;
    }
    for (program, user) in PROGRAMS {
        let layout = once.join(program);
        let index = read(&layout.join("index.json"))?;
        assert_eq!(index, read(&again.join(program).join("index.json"))?, "{program} differs");
        let images = blob(&layout, &index["manifests"][0])?;
        let platforms: Vec<_> = images["manifests"].as_array().context("a list")?.iter().collect();
        let architectures: Vec<_> =
            platforms.iter().map(|image| image["platform"]["architecture"].clone()).collect();
        let expected =
            if program == "node-driver" { json!(["amd64"]) } else { json!(["amd64", "arm64"]) };
        assert_eq!(Value::from(architectures), expected, "{program}");
        for image in platforms {
            is_only(program, user, &layout, image)?;
        }
    }
    Ok(())
}

fn is_only(program: &str, user: &str, layout: &Path, image: &Value) -> anyhow::Result<()> {
    let manifest = blob(layout, image)?;
    let config = blob(layout, &manifest["config"])?;
    assert_eq!(config["config"]["User"], user, "{program}");
    assert_eq!(config["config"]["Entrypoint"], json!([format!("/{program}")]));
    let labels = config["config"]["Labels"].as_object().context("it has labels")?;
    let label = |name: &str| labels[&format!("org.opencontainers.image.{name}")].as_str();
    assert_eq!(label("title"), Some(program));
    assert_eq!(label("version"), Some("1.2.3"));
    assert_eq!(label("licenses"), Some("Apache-2.0"));
    assert!(label("description").is_some_and(|text| text.ends_with('.')), "{labels:?}");
    assert!(label("revision").is_some_and(|text| text.len() == 40), "{labels:?}");
    let layers = manifest["layers"].as_array().context("it has layers")?;
    let [layer] = layers.as_slice() else { anyhow::bail!("{program}: {} layers", layers.len()) };
    let packed = fs::File::open(path_of(layout, layer)?)?;
    let mut archive = tar::Archive::new(flate2::read::GzDecoder::new(packed));
    let files: Vec<_> = archive
        .entries()?
        .map(|entry| {
            let entry = entry?;
            Ok((entry.path()?.display().to_string(), entry.header().mode()? & 0o7777))
        })
        .collect::<anyhow::Result<_>>()?;
    let [(name, mode)] = files.as_slice() else { anyhow::bail!("{program}: {files:?}") };
    assert_eq!(name, program);
    // Only the owner may write it.
    assert_eq!(mode & 0o022, 0, "{program}: {mode:o}");
    Ok(())
}

/// What an OCI descriptor points to.
fn blob(layout: &Path, descriptor: &Value) -> anyhow::Result<Value> {
    read(&path_of(layout, descriptor)?)
}

fn path_of(layout: &Path, descriptor: &Value) -> anyhow::Result<std::path::PathBuf> {
    let digest = descriptor["digest"].as_str().and_then(|digest| digest.strip_prefix("sha256:"));
    Ok(layout.join("blobs/sha256").join(digest.context("a descriptor has a digest")?))
}

fn read(path: &Path) -> anyhow::Result<Value> {
    let text = fs::read(path).with_context(|| format!("`{}`", path.display()))?;
    Ok(serde_json::from_slice(&text)?)
}
