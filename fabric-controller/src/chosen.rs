//! What the fabric controller has chosen for a pod, as text of an annotation: a fabric, and perhaps
//! domains of levels below it. Values of labels contain neither `,` nor `=`.

use cluster_model::fabric_level::{FabricLevel, LevelDomain};

/// The value of the annotation.
pub(crate) fn text(fabric: &str, domains: &[LevelDomain]) -> String {
    let mut text = fabric.to_owned();
    for LevelDomain { level, name } in domains {
        text.extend([",", level.name(), "=", name]);
    }
    text
}

/// The fabric and the domains of a value.
pub(crate) fn parse(value: &str) -> (&str, Vec<LevelDomain>) {
    let mut parts = value.split(',');
    let fabric = parts.next().unwrap_or_default();
    (
        fabric,
        parts
            .filter_map(|part| {
                let (level, name) = part.split_once('=')?;
                Some(LevelDomain { level: FabricLevel::named(level)?, name: name.to_owned() })
            })
            .collect(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn choices_are_read_back() {
        let nvlink = LevelDomain { level: FabricLevel::Nvlink, name: "u-1.2".to_owned() };
        let block = LevelDomain { level: FabricLevel::Block, name: "b".to_owned() };
        for (fabric, domains) in
            [("f", vec![]), ("f.1", vec![nvlink.clone()]), ("f", vec![nvlink, block])]
        {
            let value = text(fabric, &domains);
            assert_eq!(parse(&value), (fabric, domains), "{value}");
        }
        assert_eq!(parse("f,spine=s"), ("f", vec![]));
    }
}
