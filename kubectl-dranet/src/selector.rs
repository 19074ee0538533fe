//! Label selectors as kubectl takes them (`labels.Parse` in `k8s.io/apimachinery`).

use std::collections::BTreeMap;
use std::str::FromStr;

/// Requirements, all of which must hold.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Selector(Vec<Requirement>);

#[derive(Clone, Debug, PartialEq, Eq)]
enum Requirement {
    In(String, Vec<String>),
    NotIn(String, Vec<String>),
    Exists(String),
    NotExists(String),
}

/// A text that is no selector.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "invalid label selector `{0}`: write `key=value`, `key!=value`, `key in (a,b)`, `key notin (a,b)`, \
     `key` or `!key`, separated by commas"
)]
pub struct SelectorError(String);

impl Selector {
    /// Returns true if labels meet it.
    pub fn matches(&self, labels: &BTreeMap<String, String>) -> bool {
        self.0.iter().all(|requirement| match requirement {
            Requirement::In(key, values) => labels.get(key).is_some_and(|it| values.contains(it)),
            Requirement::NotIn(key, values) => {
                labels.get(key).is_none_or(|it| !values.contains(it))
            }
            Requirement::Exists(key) => labels.contains_key(key),
            Requirement::NotExists(key) => !labels.contains_key(key),
        })
    }
}

impl FromStr for Selector {
    type Err = SelectorError;

    fn from_str(text: &str) -> Result<Self, SelectorError> {
        let parts: Option<Vec<_>> = split(text).into_iter().map(requirement).collect();
        parts.map(Self).ok_or_else(|| SelectorError(text.to_owned()))
    }
}

/// At the commas that are in no parentheses.
fn split(text: &str) -> Vec<&str> {
    let mut depth = 0_i32;
    let parts = text.split(|c| {
        depth += i32::from(c == '(') - i32::from(c == ')');
        c == ',' && depth == 0
    });
    parts.map(str::trim).collect()
}

fn requirement(text: &str) -> Option<Requirement> {
    if let Some((name, value)) = text.split_once("!=") {
        return Some(Requirement::NotIn(key(name)?, vec![value.trim().to_owned()]));
    }
    if let Some((name, value)) = text.split_once("==").or_else(|| text.split_once('=')) {
        return Some(Requirement::In(key(name)?, vec![value.trim().to_owned()]));
    }
    if let Some((name, list)) = text.split_once(" notin ") {
        return Some(Requirement::NotIn(key(name)?, values(list)?));
    }
    if let Some((name, list)) = text.split_once(" in ") {
        return Some(Requirement::In(key(name)?, values(list)?));
    }
    match text.strip_prefix('!') {
        Some(name) => Some(Requirement::NotExists(key(name)?)),
        None => Some(Requirement::Exists(key(text)?)),
    }
}

fn key(text: &str) -> Option<String> {
    let text = text.trim();
    (!text.is_empty() && text.chars().all(|c| c.is_ascii_alphanumeric() || "-_./".contains(c)))
        .then(|| text.to_owned())
}

/// The values of `(a,b)`.
fn values(text: &str) -> Option<Vec<String>> {
    let list = text.trim().strip_prefix('(')?.strip_suffix(')')?;
    Some(list.split(',').map(|value| value.trim().to_owned()).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_selected_as_kubectl_selects_them() {
        let labels = BTreeMap::from([
            ("app".to_owned(), "train".to_owned()),
            ("a.b/c".to_owned(), "1".to_owned()),
        ]);
        for (text, expected) in [
            ("app=train", true),
            ("app==train,a.b/c=1", true),
            ("app=train,a.b/c=2", false),
            ("app!=train", false),
            ("other!=x", true),
            ("app in (serve, train)", true),
            ("app notin (serve,train),app", false),
            ("other notin (x)", true),
            ("app", true),
            ("!app", false),
            ("!other", true),
            ("app=", false),
        ] {
            assert_eq!(text.parse::<Selector>().unwrap().matches(&labels), expected, "{text}");
        }
        for text in ["", "a b", "app in train", "=x", "app=x,,b", "app in (x"] {
            text.parse::<Selector>().unwrap_err();
        }
    }
}
