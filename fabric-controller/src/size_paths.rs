//! The number of pods of an object, by the paths of its fields: for kinds that are not built in.
//!
//! A rule is `GROUP/VERSION/KIND=TERM+TERM…`. A term is a path of fields with dots, where `[]`
//! stands for every element of a list, followed by `*FIELD` for each field whose number multiplies,
//! and `@TEMPLATE` for the pod template there: without the annotation `dranet.io/fabric` in it, the
//! pods of the term are not of the group. A field that is absent counts one.

use cluster_model::names::annotation;
use serde_json::Value;
use std::str::FromStr;

/// The built-in rules, as the API types of their projects define the fields.
const BUILT_IN: [&str; 1] = [
    // `operator/api/core/v1alpha1/podclique.go` of Grove.
    "grove.io/v1alpha1/PodClique=spec*replicas",
];

/// How many pods an object of one kind has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SizePath {
    api_version: String,
    kind: String,
    terms: Vec<Term>,
}

/// Pods of one template.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Term {
    path: String,
    factors: Vec<String>,
    template: Option<String>,
}

/// A rule is malformed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not of the form GROUP/VERSION/KIND=PATH*FIELD@TEMPLATE+…")]
pub struct BadSizePath(String);

impl FromStr for SizePath {
    type Err = BadSizePath;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Self::parse(text).ok_or_else(|| BadSizePath(text.to_owned()))
    }
}

fn is_field(name: &str) -> bool {
    !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || "-_".contains(c))
}

impl Term {
    fn parse(text: &str) -> Option<Self> {
        let (rest, template) = match text.split_once('@') {
            Some((rest, template)) => (rest, Some(template)),
            None => (text, None),
        };
        let mut parts = rest.split('*');
        let path = parts.next()?;
        let factors: Vec<&str> = parts.collect();
        let with_lists = path.split('.').all(|field| is_field(field.trim_end_matches("[]")));
        let are_fields =
            factors.iter().copied().chain(template).all(|path| path.split('.').all(is_field));
        (with_lists && are_fields).then(|| Self {
            path: path.to_owned(),
            factors: factors.into_iter().map(str::to_owned).collect(),
            template: template.map(str::to_owned),
        })
    }

    fn pods(&self, object: &Value) -> usize {
        let mut places = vec![object];
        for field in self.path.split('.') {
            let name = field.trim_end_matches("[]");
            let found = places.into_iter().filter_map(|place| place.get(name));
            places = if field.ends_with("[]") {
                found.filter_map(Value::as_array).flatten().collect()
            } else {
                found.collect()
            };
        }
        let of_group = places.into_iter().filter(|place| self.is_of_group(place));
        of_group.map(|place| self.product(place)).fold(0, usize::saturating_add)
    }

    fn is_of_group(&self, place: &Value) -> bool {
        self.template.as_ref().is_none_or(|template| is_of_group(at(place, template)))
    }

    fn product(&self, place: &Value) -> usize {
        self.factors
            .iter()
            .map(|field| match at(place, field) {
                Value::Null => 1,
                value => number(value).unwrap_or(0),
            })
            .fold(1, usize::saturating_mul)
    }
}

fn at<'v>(value: &'v Value, path: &str) -> &'v Value {
    path.split('.').fold(value, |value, field| &value[field])
}

pub(super) fn number(value: &Value) -> Option<usize> {
    value.as_u64().and_then(|number| usize::try_from(number).ok())
}

/// Whether pods of the template belong to the group; a launcher without NICs does not.
pub(super) fn is_of_group(template: &Value) -> bool {
    template["metadata"]["annotations"].get(annotation::FABRIC).is_some()
}

/// All rules; those of the operator come first.
#[derive(Clone, Debug)]
pub struct SizePaths(Vec<SizePath>);

impl SizePaths {
    /// The operator's rules, and the built-in ones.
    pub fn with(own: Vec<SizePath>) -> Self {
        let built_in = BUILT_IN.iter().filter_map(|rule| rule.parse().ok());
        Self(own.into_iter().chain(built_in).collect())
    }

    /// The rule for a kind.
    pub fn of(&self, api_version: &str, kind: &str) -> Option<&SizePath> {
        self.0.iter().find(|rule| rule.api_version == api_version && rule.kind == kind)
    }
}

impl Default for SizePaths {
    fn default() -> Self {
        Self::with(Vec::new())
    }
}

impl SizePath {
    fn parse(text: &str) -> Option<Self> {
        let (kind, terms) = text.split_once('=')?;
        let (api_version, kind) = kind.rsplit_once('/')?;
        let is_version =
            api_version.split('/').count() == 2 && !api_version.split('/').any(str::is_empty);
        let terms = terms.split('+').map(Term::parse).collect::<Option<_>>()?;
        let (api_version, is_kind) = (api_version.to_owned(), is_version && is_field(kind));
        is_kind.then(|| Self { api_version, kind: kind.to_owned(), terms })
    }

    /// How many pods an object has.
    pub fn pods(&self, object: &Value) -> usize {
        self.terms.iter().map(|term| term.pods(object)).fold(0, usize::saturating_add)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn pods_are_counted_by_paths() {
        let ours = json!({"metadata": {"annotations": {annotation::FABRIC: "same"}}});
        let own: SizePath = "example.com/v1/Farm=spec.roles[].sets[]*count".parse().unwrap();
        let teams = "example.com/v1/League=spec.captain@template+spec.teams[]*size*courts@template";
        let rules = SizePaths::with(vec![own, teams.parse().unwrap()]);
        let team = |size: usize, template: &Value| json!({"size": size, "template": template});
        let courts = |mut team: Value, courts: usize| {
            team["courts"] = courts.into();
            team
        };
        for (version, kind, object, expected) in [
            (
                "example.com/v1",
                "League",
                json!({"spec": {
                    "captain": {"template": {}},
                    "teams": [team(4, &ours), courts(team(2, &ours), 3)],
                }}),
                10,
            ),
            (
                "example.com/v1",
                "League",
                json!({"spec": {"captain": {"template": ours}, "teams": [team(4, &json!({}))]}}),
                1,
            ),
            ("example.com/v1", "League", json!({"spec": {}}), 0),
            ("grove.io/v1alpha1", "PodClique", json!({"spec": {"replicas": 5, "podSpec": {}}}), 5),
            (
                "example.com/v1",
                "Farm",
                json!({"spec": {"roles": [{"sets": [{"count": 2}, {}]}, {"sets": [{"count": "x"}]}, {}]}}),
                3,
            ),
        ] {
            assert_eq!(rules.of(version, kind).unwrap().pods(&object), expected, "{kind} {object}");
        }
        assert!(rules.of("example.com/v2", "Farm").is_none());
    }

    #[test]
    fn built_in_rules_are_well_formed_and_others_refused() {
        assert_eq!(SizePaths::default().0.len(), BUILT_IN.len());
        for bad in [
            "",
            "Farm=spec",
            "v1/Farm=spec",
            "a.b/v1/Farm",
            "a.b/v1/Farm=",
            "a.b/v1/Farm=spec..x",
            "a.b/v1/Farm=spec*",
            "a.b/v1/Farm=spec@",
            "a.b/v1/=spec",
            "a.b/v1/Farm=spec*a[]",
        ] {
            assert!(bad.parse::<SizePath>().is_err(), "{bad}");
        }
    }
}
