//! Images that `deploy/images` builds from the programs of the tests.
//!
//! Unlike the shipped ones, these programs are not optimised and have fault points and checks.
//! `tests/run` links each as one static file, as for shipped programs, since an image contains
//! nothing else.

use std::{
    fs::{self, File},
    path::{Path, PathBuf},
};

use anyhow::Context;
use tar::Builder;
use tokio::process::Command;

use crate::{binaries, chart::printed};

/// Builds images of programs. Returns for each `PROGRAM.tar`, its OCI layout, in `folder`.
pub async fn archives(folder: &Path, programs: &[&str]) -> anyhow::Result<Vec<PathBuf>> {
    let (from, layouts) = (folder.join("programs"), folder.join("images"));
    fs::create_dir_all(from.join("amd64"))?;
    for program in programs {
        let to = from.join("amd64").join(program);
        let own = binaries::ours(program)?;
        printed(Command::new("strip").arg("-o").arg(&to).arg(&own).output().await?)?;
        let headers = Command::new("readelf").arg("--program-headers").arg(&own).output().await?;
        anyhow::ensure!(
            !printed(headers)?.contains("INTERP"),
            "`{}` needs libraries, and an image has none; `tests/run` links it without",
            own.display()
        );
    }
    let build = Command::new(binaries::in_tests("../deploy/images"))
        .arg("--programs")
        .arg(&from)
        .arg(&layouts)
        .args(programs)
        .output();
    printed(build.await?)?;
    programs.iter().map(|program| archive(folder, &layouts.join(program), program)).collect()
}

fn archive(folder: &Path, layout: &Path, program: &str) -> anyhow::Result<PathBuf> {
    let path = folder.join(format!("{program}.tar"));
    let mut archive = Builder::new(File::create(&path)?);
    archive.append_dir_all(".", layout).with_context(|| format!("`{}`", layout.display()))?;
    archive.finish()?;
    Ok(path)
}
