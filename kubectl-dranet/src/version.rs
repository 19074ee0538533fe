//! `version`: versions of this program, the API server and the project's components.

use crate::Output;
use crate::answer::{Component, Version};
use crate::args::VersionArgs;
use crate::snapshot::read_components;
use crate::text::{number, table};
use serde_json::Value;
use std::fmt::Write as _;

pub(crate) fn run(args: &VersionArgs) -> anyhow::Result<Output> {
    let client = env!("CARGO_PKG_VERSION").to_owned();
    let (mut answer, mut notes) =
        (Version { client, server: None, components: Vec::new() }, Vec::new());
    if !args.client {
        let seen = read_components(args)?;
        answer.components = seen.kept.iter().flat_map(of_workload).collect();
        answer.components.sort_by(|one, other| one.name.cmp(&other.name));
        (answer.server, notes) = (seen.server, seen.notes);
    }
    let text = args.output.write(&answer, || person(&answer, args.client))?;
    Ok(Output { notes, ..Output::from(text) })
}

/// The project's containers in a workload.
fn of_workload(object: &Value) -> Vec<Component> {
    let labels = &object["metadata"]["labels"];
    let template = &object["spec"]["template"];
    let is_ours = [labels, &template["metadata"]["labels"]]
        .iter()
        .any(|labels| labels["app.kubernetes.io/part-of"] == "dranet");
    if !is_ours {
        return Vec::new();
    }
    let status = &object["status"];
    let ready = match object["kind"].as_str() {
        Some("DaemonSet") => {
            (number(&status["numberReady"]), number(&status["desiredNumberScheduled"]))
        }
        _ => (number(&status["readyReplicas"]), number(&object["spec"]["replicas"])),
    };
    let containers = template["spec"]["containers"].as_array();
    containers
        .into_iter()
        .flatten()
        .map(|container| {
            let image = container["image"].as_str().unwrap_or_default();
            Component {
                name: object["metadata"]["name"].as_str().unwrap_or_default().to_owned(),
                image: image.to_owned(),
                version: version_of(image).to_owned(),
                ready: format!("{}/{}", ready.0, ready.1),
            }
        })
        .collect()
}

/// The tag of an image, otherwise its digest; empty if it has neither.
fn version_of(image: &str) -> &str {
    let (name, digest) = image.split_once('@').map_or((image, ""), |(name, it)| (name, it));
    let last = name.rsplit('/').next().unwrap_or_default();
    last.split_once(':').map_or(digest, |(_, tag)| tag)
}

fn person(answer: &Version, is_client_only: bool) -> anyhow::Result<String> {
    let Version { client, server, components } = answer;
    let mut out = format!("client: {client}\n");
    if is_client_only {
        return Ok(out);
    }
    writeln!(out, "API server: {}", server.as_deref().unwrap_or("not known"))?;
    if components.is_empty() {
        writeln!(out, "components: none found")?;
        return Ok(out);
    }
    let rows: Vec<_> = components
        .iter()
        .map(|it| vec![it.name.clone(), it.version.clone(), it.ready.clone(), it.image.clone()])
        .collect();
    write!(out, "\n{}", table(&["COMPONENT", "VERSION", "READY", "IMAGE"], &rows))?;
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_image_says_its_version() {
        for (image, version) in [
            ("registry:5000/dranet/admission:v1.2", "v1.2"),
            ("registry:5000/dranet/admission", ""),
            ("registry/admission:v1@sha256:ab", "v1"),
            ("registry/admission@sha256:ab", "sha256:ab"),
            ("admission:1", "1"),
        ] {
            assert_eq!(version_of(image), version, "{image}");
        }
    }
}
