//! Phrases in user-facing texts.

/// `1 NIC`, `2 NICs`.
pub(crate) fn count(number: usize, noun: &str) -> String {
    let plural = if number == 1 { "" } else { "s" };
    format!("{number} {noun}{plural}")
}

/// The most nodes that a text names.
const NAMED: usize = 3;

/// `node a`, `2 nodes (a, b)`, `9 nodes (a, b, c and others)`.
pub(crate) fn nodes(names: &[String]) -> String {
    match names {
        [only] => format!("node {only}"),
        several if several.len() <= NAMED => {
            format!("{} nodes ({})", several.len(), several.join(", "))
        }
        many => format!("{} nodes ({} and others)", many.len(), many[..NAMED].join(", ")),
    }
}
