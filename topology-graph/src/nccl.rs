//! Reads and writes NCCL's topology files (`NCCL_TOPO_FILE`).
//!
//! The document is kept element by element, so that it can be written back unchanged. `import`
//! interprets it; `export` writes a graph in this format, and `complete` adds devices to a file. The
//! format is NCCL's own (`src/graph/xml.cc`). NCCL accepts version 1 only; AMD's RCCL, which has
//! elements of its own, version 2 only.

mod complete;
pub(crate) mod export;
mod import;
pub(crate) mod need;
mod rails;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

use roxmltree::{Document, Node, ParsingOptions};

use crate::{PciAddress, PcieLink};

/// The version of NCCL.
const VERSION: &str = "1";
/// The version of RCCL.
const VERSION_OF_RCCL: &str = "2";
/// The maximum nesting. NCCL gives up at a depth of a few switches.
const DEEPEST: usize = 64;
/// The maximum number of XML nodes. NCCL's own limit on vertices is 640, but attributes and text
/// are XML nodes too.
const MOST_NODES: u32 = 100_000;

/// An NCCL topology file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NcclXml {
    system: Element,
}

/// An element with its attributes and children.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Element {
    name: String,
    attributes: Vec<(String, String)>,
    children: Vec<Self>,
}

/// A text is not an NCCL topology file.
#[derive(Debug, thiserror::Error)]
pub enum NcclXmlError {
    /// The text is not XML.
    #[error("failed to read the NCCL topology as XML")]
    Xml(#[source] roxmltree::Error),
    /// The XML is another kind of document.
    #[error(
        "found `<{0}>`, and an NCCL topology begins with `<system version=\"1\">` or, of RCCL, `\"2\"`"
    )]
    NoSystem(String),
    /// The file was dumped for a job on several hosts, whose addresses repeat.
    #[error(
        "found the devices of {0} hosts; a graph has one machine, so keep only the `<cpu>` elements \
         with one value of `host_hash`"
    )]
    SeveralHosts(usize),
    /// Elements are nested deeper than switches on any machine.
    #[error("found elements nested deeper than {DEEPEST}")]
    TooDeep,
}

impl NcclXml {
    /// Parses a file's text. Elements that NCCL does not know are kept but ignored.
    pub fn parse(text: &str) -> Result<Self, NcclXmlError> {
        let options = ParsingOptions { nodes_limit: MOST_NODES, ..ParsingOptions::default() };
        let document = Document::parse_with_options(text, options).map_err(NcclXmlError::Xml)?;
        let root = document.root_element();
        let system = element(root, DEEPEST)?;
        let version = system.attribute("version").unwrap_or(VERSION);
        if system.name != "system" || ![VERSION, VERSION_OF_RCCL].contains(&version) {
            return Err(NcclXmlError::NoSystem(opening(&system)));
        }
        let hosts = system.children("cpu").filter_map(|cpu| cpu.attribute("host_hash"));
        let hosts: BTreeSet<&str> = hosts.collect();
        if hosts.len() > 1 {
            return Err(NcclXmlError::SeveralHosts(hosts.len()));
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
    /// The same file without the identities of its machine.
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

    fn set(&mut self, name: &str, value: &impl ToString) {
        match self.attributes.iter_mut().find(|(known, _)| known == name) {
            Some((_, known)) => *known = value.to_string(),
            None => self.attributes.push((name.to_owned(), value.to_string())),
        }
    }

    /// Sets the links of these devices, wherever they are.
    fn set_links(&mut self, links: &BTreeMap<PciAddress, PcieLink>) {
        let at = self.attribute("busid").and_then(|at| at.parse().ok());
        if let Some(link) = at.and_then(|at: PciAddress| links.get(&at)) {
            self.set("link_speed", &link.speed());
            self.set("link_width", &link.width);
        }
        for child in &mut self.children {
            child.set_links(links);
        }
    }

    fn attribute(&self, name: &str) -> Option<&str> {
        self.attributes.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    fn children<'e>(&'e self, name: &'e str) -> impl Iterator<Item = &'e Self> {
        self.children.iter().filter(move |child| child.name == name)
    }

    fn bus_id(&self) -> Option<PciAddress> {
        self.attribute("busid")?.to_ascii_lowercase().parse().ok()
    }

    fn has_child(&self, name: &str) -> bool {
        self.children(name).next().is_some()
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

/// The name and attributes between the angle brackets.
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
            // XML reads white space in an attribute as a space, unless it is a character reference.
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
