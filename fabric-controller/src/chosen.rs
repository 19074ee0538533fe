//! What the fabric controller has chosen for a pod, as text of an annotation: a fabric, and perhaps a
//! domain of a level below it. Values of labels contain neither `,` nor `=`.

use cluster_model::fabric_level::{FabricLevel, LevelDomain};

/// The value of the annotation.
pub(crate) fn text(fabric: &str, domain: Option<&LevelDomain>) -> String {
    match domain {
        Some(LevelDomain { level, name }) => format!("{fabric},{}={name}", level.name()),
        None => fabric.to_owned(),
    }
}

/// The fabric and the domain of a value.
pub(crate) fn parse(value: &str) -> (&str, Option<LevelDomain>) {
    let Some((fabric, rest)) = value.split_once(',') else { return (value, None) };
    let domain = rest.split_once('=').and_then(|(level, name)| {
        Some(LevelDomain { level: FabricLevel::named(level)?, name: name.to_owned() })
    });
    (fabric, domain)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn choices_are_read_back() {
        let nvlink = LevelDomain { level: FabricLevel::Nvlink, name: "u-1.2".to_owned() };
        for (fabric, domain) in [("f", None), ("f.1", Some(nvlink))] {
            let value = text(fabric, domain.as_ref());
            assert_eq!(parse(&value), (fabric, domain), "{value}");
        }
        assert_eq!(parse("f,spine=s"), ("f", None));
    }
}
