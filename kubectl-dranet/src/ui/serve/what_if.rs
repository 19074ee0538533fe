//! Where a pod with given annotations would go. The answer is that of `plan`.

use crate::args::PlanFormat;
use crate::capacity;
use crate::plan::{self, Surroundings};
use crate::shape::PodShape;
use crate::subject::Subject;
use crate::ui::ask::Known;
use anyhow::Context as _;
use cluster_model::names::annotation;
use serde::Serialize;
use serde_json::Value;

/// The domain of annotations that are typed without one.
const DOMAIN: &str = "dranet.io";

/// The pod to which annotations are added.
const SMALLEST: PodShape = PodShape { gpus: 1, nics: 1, level: None };

/// Where a pod would go.
#[derive(Debug, Serialize)]
pub(super) struct WhatIf {
    /// The words of `plan`.
    text: String,
    /// The nodes on which it fits now.
    nodes: Vec<String>,
}

/// Where a pod with these annotations would go, one in a line, as in YAML.
pub(super) fn what_if(known: &Known, annotations: &str) -> anyhow::Result<WhatIf> {
    let Known { view, policy, in_use, quotas, groups, namespace, .. } = known;
    let mut pod = capacity::pod(view, policy, SMALLEST, namespace);
    pod["metadata"]["name"] = "what-if".into();
    for (key, value) in lines(annotations)? {
        pod["metadata"]["annotations"][key] = value.into();
    }
    let subject = Subject::one(pod, "Pod what-if".to_owned());
    let around = Surroundings { view, in_use, groups, quotas };
    let said = plan::decide(&subject, around, (policy, PlanFormat::Text, &[]))?;
    let objects = plan::decide(&subject, around, (policy, PlanFormat::Json, &[]))?;
    let answer: Value = serde_json::from_str(&objects.text)?;
    let nodes = answer["nodes"].as_array().into_iter().flatten();
    let nodes = nodes.filter(|node| node["fits"] == true);
    let nodes = nodes.filter_map(|node| node["name"].as_str()).map(str::to_owned).collect();
    let text = said.text.trim_end_matches(plan::MORE).to_owned();
    Ok(WhatIf { text, nodes })
}

/// Annotations as a person types them: `dranet.io/aligned-nics: "2"`, `aligned-nics=2`.
fn lines(text: &str) -> anyhow::Result<Vec<(String, &str)>> {
    let lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
    lines
        .map(|line| {
            let (key, value) = line.split_once([':', '=']).with_context(|| {
                format!("`{line}` is not an annotation: write {}: \"2\"", annotation::ALIGNED_NICS)
            })?;
            let (key, value) = (key.trim(), value.trim().trim_matches(['"', '\'']));
            let has_domain = key.contains('/');
            Ok((if has_domain { key.to_owned() } else { format!("{DOMAIN}/{key}") }, value))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn annotations_are_read_as_people_type_them() {
        let typed = "dranet.io/aligned-nics: \"2\"\n\n gpus=4\nalignment: 'switch' ";
        let expected = [
            ("dranet.io/aligned-nics".to_owned(), "2"),
            ("dranet.io/gpus".to_owned(), "4"),
            ("dranet.io/alignment".to_owned(), "switch"),
        ];
        assert_eq!(lines(typed).unwrap(), expected);
        let error = lines("two NICs").unwrap_err().to_string();
        assert_eq!(error, "`two NICs` is not an annotation: write dranet.io/aligned-nics: \"2\"");
    }
}
