//! The pages of the documentation: their text, and their blocks of commands and YAML.

use std::{
    fs,
    path::{Path, PathBuf},
};

use anyhow::Context;

use crate::binaries;

/// Pages outside `docs`.
const PAGES: [&str; 7] = [
    "ARCHITECTURE.md",
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "README.md",
    "SECURITY.md",
    "node-driver/UPSTREAM.md",
    "scheduler-ext/SCORES.md",
];
/// The comment above a block of commands that no test runs; it gives the reason.
const NOT_RUN: &str = "<!-- not run: ";

/// A fenced block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Block {
    /// The language of the block, such as `yaml`.
    pub language: String,
    /// Its lines.
    pub text: String,
    /// The reason why no test runs it, from a comment above: `<!-- not run: … -->`.
    pub not_run: Option<String>,
}

impl Block {
    /// Its commands, one per line: all lines of `sh`, the lines after `$ ` of `console`.
    pub fn commands(&self) -> Vec<String> {
        let joined = self.text.replace("\\\n", " ");
        joined
            .lines()
            .filter_map(|line| match self.language.as_str() {
                "sh" => Some(line.split(" # ").next().unwrap_or_default().trim().to_owned()),
                "console" => Some(line.strip_prefix("$ ")?.trim().to_owned()),
                _ => None,
            })
            .filter(|line| !line.is_empty())
            .collect()
    }
}

/// The root folder of the repository.
pub fn repository() -> anyhow::Result<PathBuf> {
    let path = binaries::in_tests("..");
    path.canonicalize().with_context(|| format!("`{}`", path.display()))
}

/// All pages, with path and text.
pub fn pages() -> anyhow::Result<Vec<(PathBuf, String)>> {
    let repository = repository()?;
    let mut paths = files(&repository.join("docs"), ".md")?;
    paths.extend(PAGES.iter().map(|page| repository.join(page)));
    paths
        .into_iter()
        .map(|path| {
            let text =
                fs::read_to_string(&path).with_context(|| format!("`{}`", path.display()))?;
            Ok((path, text))
        })
        .collect()
}

/// The files below a folder whose names end in `ending`, without build outputs and hidden folders.
pub fn files(folder: &Path, ending: &str) -> anyhow::Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).with_context(|| format!("`{}`", folder.display()))? {
        let path = entry?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if path.is_dir() {
            if name != "target" && !name.starts_with('.') {
                found.extend(files(&path, ending)?);
            }
        } else if name.ends_with(ending) {
            found.push(path);
        }
    }
    found.sort();
    Ok(found)
}

/// Splits a page into the lines outside fenced blocks, and the blocks.
pub fn parts(text: &str) -> (Vec<&str>, Vec<Block>) {
    let (mut prose, mut blocks) = (Vec::<&str>::new(), Vec::new());
    let mut open: Option<Block> = None;
    for line in text.lines() {
        match (line.strip_prefix("```"), open.take()) {
            (Some(language), None) => {
                let above = prose.iter().rev().find(|line| !line.trim().is_empty());
                let mark = above.and_then(|line| line.strip_prefix(NOT_RUN));
                let not_run = mark.map(|mark| mark.trim_end_matches("-->").trim().to_owned());
                let language = language.trim().to_owned();
                open = Some(Block { language, text: String::new(), not_run });
            }
            (Some(_), Some(block)) => {
                // A comment applies only to the block below it.
                prose.push("```");
                blocks.push(block);
            }
            (None, Some(mut block)) => {
                block.text.push_str(line);
                block.text.push('\n');
                open = Some(block);
            }
            (None, None) => prose.push(line),
        }
    }
    prose.retain(|line| *line != "```");
    (prose, blocks)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_have_their_commands_and_marks() {
        let text = "Text\n\n<!-- not run: needs a GPU -->\n```console\n$ a \\\n    b\nout\n```\n\
                    ```sh\nc  # why\n```\n";
        let (prose, blocks) = parts(text);
        assert_eq!(prose.len(), 3);
        let seen: Vec<_> =
            blocks.iter().map(|block| (block.commands(), block.not_run.as_deref())).collect();
        let expected =
            [(vec!["a      b".to_owned()], Some("needs a GPU")), (vec!["c".to_owned()], None)];
        assert_eq!(seen, expected);
    }
}
