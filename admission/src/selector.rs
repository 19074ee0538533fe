//! CEL selectors for devices.
//!
//! A CEL runtime error aborts a pod's scheduling on every node, so every
//! selector made here is total: it has a verdict for any device of any driver.

use std::fmt::Write as _;
use topology_graph::PciAddress;

/// One conjunction of conditions on a device.
#[derive(Clone, Debug)]
pub(crate) struct Selector {
    text: String,
}

impl Selector {
    /// Devices of this driver.
    pub(crate) fn driver(name: &str) -> Self {
        Self { text: format!("device.driver == {}", literal(name)) }
    }

    /// … whose string attribute `domain/id` has this value.
    pub(crate) fn and_string(self, attribute: &str, value: &str) -> Self {
        let value = literal(value);
        self.and(|text, get| write!(text, "{get}.orValue(\"\") == {value}"), attribute)
    }

    /// … whose int attribute `domain/id` has this value, which is no negative one.
    pub(crate) fn and_int(self, attribute: &str, value: i64) -> Self {
        self.and(|text, get| write!(text, "{get}.orValue(-1) == {value}"), attribute)
    }

    /// … whose bool attribute `domain/id` is true.
    pub(crate) fn and_true(self, attribute: &str) -> Self {
        self.and(|text, get| write!(text, "{get}.orValue(false) == true"), attribute)
    }

    /// … whose bool attribute `domain/id` is false or not there.
    pub(crate) fn and_not_true(self, attribute: &str) -> Self {
        self.and(|text, get| write!(text, "{get}.orValue(false) == false"), attribute)
    }

    /// … whose string attribute `domain/id` has this value or is not there.
    pub(crate) fn and_string_if_any(self, attribute: &str, value: &str) -> Self {
        let value = literal(value);
        self.and(|text, get| write!(text, "{get}.orValue({value}) == {value}"), attribute)
    }

    /// … whose string attribute `domain/id` is one of these PCI addresses.
    pub(crate) fn and_addresses(self, attribute: &str, addresses: &[PciAddress]) -> Self {
        let texts: Vec<_> = addresses.iter().map(ToString::to_string).collect();
        self.and_one_of(attribute, texts.iter().map(String::as_str))
    }

    /// … whose string attribute `domain/id` is one of these values.
    pub(crate) fn and_one_of<'a>(
        self,
        attribute: &str,
        values: impl IntoIterator<Item = &'a str>,
    ) -> Self {
        let values = values.into_iter().map(literal).collect::<Vec<_>>().join(", ");
        self.and(|text, get| write!(text, "{get}.orValue(\"\") in [{values}]"), attribute)
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
        self.text.push_str(" && ");
        let get = format!("device.attributes[{}].?{id}", literal(domain));
        condition(&mut self.text, get).expect("writing to a string cannot fail");
        self
    }
}

/// A CEL string literal. What goes in is a driver's or an API name, an address
/// or a value read from a slice; quotes and backslashes are escaped all the same.
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
