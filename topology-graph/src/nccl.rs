//! NCCL's topology files (`NCCL_TOPO_FILE`) in and out.
//!
//! The document is kept as it is, element by element, so that what is read can be
//! written back; what it means is in `import`, how a graph is told in it in
//! `export`. The format is NCCL's own (`src/graph/xml.cc`), version 1.

mod export;
mod import;

use std::fmt::Write;

use roxmltree::{Document, Node, ParsingOptions};

pub use export::{nccl_xml, nccl_xml_of};

/// Versions that this crate knows.
const VERSION: &str = "1";
/// NCCL gives up at a depth of a few switches; a file deeper than this is none.
const DEEPEST: usize = 64;
/// NCCL's own limit on vertices is 640; attributes and text are nodes too.
const MOST_NODES: u32 = 100_000;

/// An NCCL topology file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NcclXml {
    system: Element,
}

/// One element with all that it says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Element {
    name: String,
    attributes: Vec<(String, String)>,
    children: Vec<Self>,
}

/// A text that is no NCCL topology file.
#[derive(Debug, thiserror::Error)]
pub enum NcclXmlError {
    /// It is no XML.
    #[error("failed to read the NCCL topology as XML")]
    Xml(#[source] roxmltree::Error),
    /// It is XML of something else.
    #[error("found `<{0}>`, and an NCCL topology begins with `<system version=\"1\">`")]
    NoSystem(String),
    /// Elements are nested deeper than any machine's switches.
    #[error("found elements nested deeper than {DEEPEST}")]
    TooDeep,
}

impl NcclXml {
    /// Read a file's text. What NCCL does not know is kept and means nothing.
    pub fn parse(text: &str) -> Result<Self, NcclXmlError> {
        let options = ParsingOptions { nodes_limit: MOST_NODES, ..ParsingOptions::default() };
        let document = Document::parse_with_options(text, options).map_err(NcclXmlError::Xml)?;
        let root = document.root_element();
        let system = element(root, DEEPEST)?;
        let version = system.attribute("version").unwrap_or(VERSION);
        if system.name != "system" || version != VERSION {
            return Err(NcclXmlError::NoSystem(opening(&system)));
        }
        Ok(Self { system })
    }

    /// The file's text, without comments.
    pub fn write(&self) -> String {
        let mut text = String::new();
        self.system.write(&mut text, 0);
        text
    }
}

#[cfg(feature = "archive")]
impl NcclXml {
    /// The same file without what tells one machine from another of its make.
    pub(crate) fn without_identities(mut self) -> Self {
        self.system.forget(&["guid", "host_hash"]);
        self
    }
}

impl Element {
    #[cfg(feature = "archive")]
    fn forget(&mut self, names: &[&str]) {
        self.attributes.retain(|(name, _)| !names.contains(&name.as_str()));
        for child in &mut self.children {
            child.forget(names);
        }
    }

    fn new(name: &str) -> Self {
        Self { name: name.to_owned(), ..Self::default() }
    }

    fn with(mut self, name: &str, value: &impl ToString) -> Self {
        self.attributes.push((name.to_owned(), value.to_string()));
        self
    }

    fn attribute(&self, name: &str) -> Option<&str> {
        self.attributes.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    fn children<'e>(&'e self, name: &'e str) -> impl Iterator<Item = &'e Self> {
        self.children.iter().filter(move |child| child.name == name)
    }

    fn write(&self, text: &mut String, depth: usize) {
        let indent = "  ".repeat(depth);
        // Writing to a String cannot fail.
        let _ = write!(text, "{indent}<{}", opening(self));
        if self.children.is_empty() {
            text.push_str("/>\n");
            return;
        }
        text.push_str(">\n");
        for child in &self.children {
            child.write(text, depth + 1);
        }
        let _ = writeln!(text, "{indent}</{}>", self.name);
    }
}

/// Name and attributes as they stand between the angle brackets.
fn opening(element: &Element) -> String {
    let attributes = element.attributes.iter();
    let attributes = attributes.map(|(name, value)| format!(" {name}=\"{}\"", escape(value)));
    format!("{}{}", element.name, attributes.collect::<String>())
}

fn escape(value: &str) -> String {
    let mut escaped = String::with_capacity(value.len());
    for character in value.chars() {
        match character {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '"' => escaped.push_str("&quot;"),
            // XML reads white space in an attribute as a blank, unless it is a reference.
            '\t' | '\n' | '\r' => drop(write!(escaped, "&#{};", u32::from(character))),
            character => escaped.push(character),
        }
    }
    escaped
}

fn element(node: Node<'_, '_>, deeper: usize) -> Result<Element, NcclXmlError> {
    let below = deeper.checked_sub(1).ok_or(NcclXmlError::TooDeep)?;
    let attributes = node.attributes();
    Ok(Element {
        name: node.tag_name().name().to_owned(),
        attributes: attributes.map(|a| (a.name().to_owned(), a.value().to_owned())).collect(),
        children: node
            .children()
            .filter(Node::is_element)
            .map(|child| element(child, below))
            .collect::<Result<_, _>>()?,
    })
}
