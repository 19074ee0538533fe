//! What a file says about modules: the modules that it declares, the names that it imports with
//! `use`, and the paths in its code.

use std::path::PathBuf;

use anyhow::{Context as _, Result};
use proc_macro2::{Delimiter, TokenStream, TokenTree};

/// A module that is declared.
#[derive(Debug)]
pub(crate) struct Declared {
    /// The enclosing inline modules, then its name.
    pub(crate) path: Vec<String>,
    /// The value of `#[path]`.
    pub(crate) file: Option<PathBuf>,
    /// True if its content is in the same file.
    pub(crate) is_inline: bool,
}

/// A path in a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Used {
    /// The enclosing inline modules.
    pub(crate) scope: Vec<String>,
    /// Its segments; `*` at the end for a glob import.
    pub(crate) path: Vec<String>,
    /// For `use`, the imported name; `None` in code.
    pub(crate) name: Option<String>,
}

/// What a file says about modules.
#[derive(Debug, Default)]
pub(crate) struct Content {
    pub(crate) declared: Vec<Declared>,
    pub(crate) used: Vec<Used>,
}

impl Content {
    /// Parses the text of a file.
    pub(crate) fn read(text: &str) -> Result<Self> {
        let tokens: TokenStream =
            text.parse().map_err(|error| anyhow::anyhow!("{error}")).context("not Rust")?;
        let mut content = Self::default();
        content.scan(tokens, &mut Vec::new());
        Ok(content)
    }

    fn scan(&mut self, tokens: TokenStream, scope: &mut Vec<String>) {
        let tokens: Vec<_> = tokens.into_iter().collect();
        let mut at = 0;
        while at < tokens.len() {
            at = self.item(&tokens, at, scope);
        }
    }

    /// Reads the item at a token; returns the index of the next one.
    fn item(&mut self, tokens: &[TokenTree], at: usize, scope: &mut Vec<String>) -> usize {
        let word = |at: usize| match tokens.get(at) {
            Some(TokenTree::Ident(word)) => word.to_string(),
            _ => String::new(),
        };
        if let Some(attribute) = attribute(tokens, at) {
            if is_for_tests(&attribute) {
                return end_of_item(tokens, at);
            }
            // `#[path]` is read with its module. Other attributes contain paths.
            if path_of(&attribute).is_none() {
                self.scan(attribute, scope);
            }
            return at + 2;
        }
        match (&*word(at), tokens.get(at + 1)) {
            ("pub", Some(TokenTree::Group(group)))
                if group.delimiter() == Delimiter::Parenthesis =>
            {
                at + 2
            }
            ("mod", Some(TokenTree::Ident(name))) => {
                scope.push(name.to_string());
                let inner = match tokens.get(at + 2) {
                    Some(TokenTree::Group(group)) => Some(group.stream()),
                    _ => None,
                };
                let (path, is_inline) = (scope.clone(), inner.is_some());
                let file = path_before(tokens, at);
                self.declared.push(Declared { path, file, is_inline });
                if let Some(inner) = inner {
                    self.scan(inner, scope);
                }
                scope.pop();
                at + 3
            }
            ("use", Some(next)) if !is_punct(next, '<') => {
                let end = tokens[at..].iter().position(|token| is_punct(token, ';'));
                let end = end.map_or(tokens.len(), |end| at + end);
                self.tree(&tokens[at + 1..end], &[], scope);
                end + 1
            }
            ("", _) => {
                if let TokenTree::Group(group) = &tokens[at] {
                    self.scan(group.stream(), scope);
                }
                at + 1
            }
            _ => self.path(tokens, at, scope),
        }
    }

    /// Reads a path in code that begins here.
    fn path(&mut self, tokens: &[TokenTree], at: usize, scope: &[String]) -> usize {
        let mut path = Vec::new();
        let mut end = at;
        while let Some(TokenTree::Ident(word)) = tokens.get(end) {
            path.push(word.to_string());
            end += 1;
            if !is_separator(tokens, end) {
                break;
            }
            end += 2;
        }
        let is_method = at > 0 && is_punct(&tokens[at - 1], '.');
        let goes_on = is_method || (at > 1 && is_separator(tokens, at - 2));
        if path.len() > 1 && !goes_on {
            self.used.push(Used { scope: scope.to_vec(), path, name: None });
        }
        end.max(at + 1)
    }

    /// Reads the names of a `use` below a prefix.
    fn tree(&mut self, tokens: &[TokenTree], prefix: &[String], scope: &[String]) {
        // Nothing follows the last comma of a group.
        let trees = tokens.split(|token| is_punct(token, ','));
        for tree in trees.filter(|tree| !tree.is_empty()) {
            let mut path = prefix.to_vec();
            let mut name = None;
            let mut tree = tree.iter();
            while let Some(token) = tree.next() {
                match token {
                    TokenTree::Ident(word) if *word == "as" => {
                        name = tree.next().map(ToString::to_string);
                    }
                    TokenTree::Ident(word) => path.push(word.to_string()),
                    TokenTree::Group(group) => {
                        let inner: Vec<_> = group.stream().into_iter().collect();
                        self.tree(&inner, &path, scope);
                        path.clear();
                    }
                    TokenTree::Punct(punct) if punct.as_char() == '*' => path.push("*".to_owned()),
                    _ => {}
                }
            }
            if path.len() > 1 && path.last().is_some_and(|last| last == "self") {
                path.pop();
            }
            if let Some(last) = path.last().cloned() {
                let name = Some(name.unwrap_or(last));
                self.used.push(Used { scope: scope.to_vec(), path, name });
            }
        }
    }
}

fn is_punct(token: &TokenTree, wanted: char) -> bool {
    matches!(token, TokenTree::Punct(punct) if punct.as_char() == wanted)
}

/// Returns true if `::` is at this index.
fn is_separator(tokens: &[TokenTree], at: usize) -> bool {
    let is_colon = |at: usize| tokens.get(at).is_some_and(|token| is_punct(token, ':'));
    is_colon(at) && is_colon(at + 1)
}

/// The content of the attribute at this index.
fn attribute(tokens: &[TokenTree], at: usize) -> Option<TokenStream> {
    if !is_punct(tokens.get(at)?, '#') {
        return None;
    }
    match tokens.get(at + 1)? {
        TokenTree::Group(group) if group.delimiter() == Delimiter::Bracket => Some(group.stream()),
        _ => None,
    }
}

/// Returns true if the attribute restricts the next item to tests.
fn is_for_tests(attribute: &TokenStream) -> bool {
    let text: String = attribute.to_string().split_whitespace().collect();
    text == "cfg(test)" || text.starts_with("cfg(all(test")
}

/// The file that an attribute names.
fn path_of(attribute: &TokenStream) -> Option<PathBuf> {
    let text = attribute.to_string();
    let (name, value) = text.split_once('=')?;
    (name.trim() == "path").then(|| value.trim().trim_matches('"').into())
}

/// The file that the attributes before a declaration name.
fn path_before(tokens: &[TokenTree], at: usize) -> Option<PathBuf> {
    let mut before = at;
    while before > 0 {
        before -= 1;
        if let Some(path) = attribute(tokens, before).as_ref().and_then(path_of) {
            return Some(path);
        }
        // Attributes and visibility may be in between.
        let is_part = match &tokens[before] {
            TokenTree::Group(_) => true,
            TokenTree::Ident(word) => *word == "pub",
            token => is_punct(token, '#'),
        };
        if !is_part {
            return None;
        }
    }
    None
}

/// The index after the item that begins here with attributes.
fn end_of_item(tokens: &[TokenTree], at: usize) -> usize {
    let mut end = at;
    while attribute(tokens, end).is_some() {
        end += 2;
    }
    while let Some(token) = tokens.get(end) {
        end += 1;
        let is_body = matches!(
            token,
            TokenTree::Group(group) if group.delimiter() == Delimiter::Brace
        );
        if is_body || is_punct(token, ';') {
            break;
        }
    }
    end
}
