//! Refuses lists where the configuration has objects.
//!
//! serde reads a struct also from a list of its fields in order. Upstream's Go decoder does not, and
//! the admission policy for hand-written claims looks for fields by name.

use super::{ConfigError, NetworkConfig};
use serde_json::Value;

/// Checks that everything that was parsed as an object is one.
pub(super) fn check(parameters: &Value, config: &NetworkConfig) -> Result<(), ConfigError> {
    let parsed = serde_json::to_value(config)?;
    match first_list(parameters, &parsed, String::new()) {
        None => Ok(()),
        Some(field) => {
            let field = if field.is_empty() { "configuration".to_owned() } else { field };
            let problem = "is a list, and must be an object".to_owned();
            Err(ConfigError::Value { field, problem })
        }
    }
}

/// The path of the first list that was parsed as an object. The configuration is a few levels deep.
fn first_list(given: &Value, parsed: &Value, path: String) -> Option<String> {
    match (given, parsed) {
        (Value::Array(_), Value::Object(_)) => Some(path),
        (Value::Object(given), Value::Object(parsed)) => parsed.iter().find_map(|(key, parsed)| {
            let path = if path.is_empty() { key.clone() } else { format!("{path}.{key}") };
            first_list(given.get(key)?, parsed, path)
        }),
        (Value::Array(given), Value::Array(parsed)) => {
            let pairs = given.iter().zip(parsed).enumerate();
            let mut pairs = pairs.map(|(number, pair)| (format!("{path}[{number}]"), pair));
            pairs.find_map(|(path, (given, parsed))| first_list(given, parsed, path))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn lists_are_no_objects() {
        for (parameters, field) in [
            (json!([]), "configuration"),
            (json!({"interface": [null, null, null, null, ["10.0.0.5/24"]]}), "interface"),
            (json!({"interface": []}), "interface"),
            (json!({"ethtool": []}), "ethtool"),
            (json!({"rdma": [1]}), "rdma"),
            (json!({"virtualFunction": [100]}), "virtualFunction"),
            (
                json!({"routes": [{"destination": "10.0.0.0/8", "gateway": "10.0.0.1"}, ["10.1.0.0/16"]]}),
                "routes[1]",
            ),
        ] {
            let refused = NetworkConfig::parse(&parameters).unwrap_err();
            let is_it = matches!(&refused, ConfigError::Value { field: it, .. } if it == field);
            // serde itself refuses lists that do not fit.
            let is_form = matches!(refused, ConfigError::Form { .. });
            assert!(is_it || is_form, "{parameters}: {refused:?}");
        }
        for parameters in [
            json!({}),
            json!({"interface": {"addresses": ["10.0.0.5/24"]}, "routes": []}),
            json!({"ethtool": null}),
        ] {
            NetworkConfig::parse(&parameters).unwrap();
        }
    }
}
