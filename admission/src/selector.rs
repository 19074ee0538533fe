//! CEL selectors for devices.
//!
//! A CEL runtime error aborts a pod's scheduling on every node, so these selectors never
//! fail: they have a result for any device of any driver.

use std::fmt::Write as _;
use topology_graph::PciAddress;

/// A conjunction of conditions on a device.
#[derive(Clone, Debug)]
pub(crate) struct Selector {
    text: String,
}

impl Selector {
    /// Selects devices of this driver.
    pub(crate) fn driver(name: &str) -> Self {
        Self { text: format!("device.driver == {}", literal(name)) }
    }

    /// Requires the string attribute `domain/id` to have this value.
    pub(crate) fn and_string(self, attribute: &str, value: &str) -> Self {
        let value = literal(value);
        self.and(|text, get| write!(text, "{get}.orValue(\"\") == {value}"), attribute)
    }

    /// Requires the int attribute `domain/id` to have this value, which must not be
    /// negative.
    pub(crate) fn and_int(self, attribute: &str, value: i64) -> Self {
        self.and(|text, get| write!(text, "{get}.orValue(-1) == {value}"), attribute)
    }

    /// Requires the int attribute `domain/id` to have one of these values, which must not be
    /// negative.
    pub(crate) fn and_one_int_of<'a>(
        self,
        attribute: &str,
        values: impl IntoIterator<Item = &'a i64>,
    ) -> Self {
        let values = values.into_iter().map(i64::to_string).collect::<Vec<_>>().join(", ");
        self.and(|text, get| write!(text, "{get}.orValue(-1) in [{values}]"), attribute)
    }

    /// Requires the bool attribute `domain/id` to be true.
    pub(crate) fn and_true(self, attribute: &str) -> Self {
        self.and(|text, get| write!(text, "{get}.orValue(false) == true"), attribute)
    }

    /// Requires the bool attribute `domain/id` to be false or absent.
    pub(crate) fn and_not_true(self, attribute: &str) -> Self {
        self.and(|text, get| write!(text, "{get}.orValue(false) == false"), attribute)
    }

    /// Requires the string attribute `domain/id` to have this value or to be absent.
    pub(crate) fn and_string_if_any(self, attribute: &str, value: &str) -> Self {
        let value = literal(value);
        self.and(|text, get| write!(text, "{get}.orValue({value}) == {value}"), attribute)
    }

    /// Requires the string attribute `domain/id` to be one of these PCI addresses.
    pub(crate) fn and_addresses(self, attribute: &str, addresses: &[PciAddress]) -> Self {
        let texts: Vec<_> = addresses.iter().map(ToString::to_string).collect();
        self.and_one_of(attribute, texts.iter().map(String::as_str))
    }

    /// Requires the string attribute `domain/id` to be none of these PCI addresses, or to be absent.
    pub(crate) fn and_no_addresses(self, attribute: &str, addresses: &[PciAddress]) -> Self {
        let texts = addresses.iter().map(|address| literal(&address.to_string()));
        let texts = texts.collect::<Vec<_>>().join(", ");
        self.and(|text, get| write!(text, "!({get}.orValue(\"\") in [{texts}])"), attribute)
    }

    /// Requires the string attribute `domain/id` to be one of these values.
    pub(crate) fn and_one_of<'a>(
        self,
        attribute: &str,
        values: impl IntoIterator<Item = &'a str>,
    ) -> Self {
        let values = values.into_iter().map(literal).collect::<Vec<_>>().join(", ");
        self.and(|text, get| write!(text, "{get}.orValue(\"\") in [{values}]"), attribute)
    }

    /// No condition, to begin an alternative of [`Self::and_either`].
    pub(crate) fn anything() -> Self {
        Self { text: String::new() }
    }

    /// Requires one of these to hold.
    pub(crate) fn and_either(mut self, alternatives: Vec<Self>) -> Self {
        let texts: Vec<_> = alternatives.into_iter().map(|it| it.text).collect();
        let text = match texts.as_slice() {
            [only] => only.clone(),
            several => format!("({})", several.join(" || ")),
        };
        self.begin_condition();
        self.text.push_str(&text);
        self
    }

    fn begin_condition(&mut self) {
        if !self.text.is_empty() {
            self.text.push_str(" && ");
        }
    }

    /// The expression.
    pub(crate) fn into_text(self) -> String {
        self.text
    }

    fn and(
        mut self,
        condition: impl FnOnce(&mut String, String) -> std::fmt::Result,
        attribute: &str,
    ) -> Self {
        let (domain, id) = attribute.split_once('/').unwrap_or(("", attribute));
        self.begin_condition();
        let get = format!("device.attributes[{}].?{id}", literal(domain));
        condition(&mut self.text, get).expect("writing to a string cannot fail");
        self
    }
}

/// A CEL string literal. Inputs are driver or API names, addresses, or values from a
/// slice; quotes and backslashes are escaped in any case.
fn literal(text: &str) -> String {
    let mut quoted = String::with_capacity(text.len() + 2);
    quoted.push('"');
    for character in text.chars() {
        match character {
            '"' | '\\' => quoted.extend(['\\', character]),
            '\n' => quoted.push_str("\\n"),
            _ => quoted.push(character),
        }
    }
    quoted.push('"');
    quoted
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn writes_total_expressions() {
        let selector = Selector::driver("dra.net")
            .and_true("dra.net/rdma")
            .and_string("dranet.io/shape", "a\"b")
            .and_one_of("resource.kubernetes.io/pciBusID", ["0101:00:00.0", "0102:00:00.0"]);
        insta::assert_snapshot!(selector.into_text().replace(" && ", "\n&& "), @r#"
        device.driver == "dra.net"
        && device.attributes["dra.net"].?rdma.orValue(false) == true
        && device.attributes["dranet.io"].?shape.orValue("") == "a\"b"
        && device.attributes["resource.kubernetes.io"].?pciBusID.orValue("") in ["0101:00:00.0", "0102:00:00.0"]
        "#);
    }
}
