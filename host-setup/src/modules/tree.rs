//! Reads which modules the kernel has: files below `lib/modules`, and loaded modules. The indices
//! are those of depmod: `modules.dep`, `modules.builtin` (depmod(8), modules.dep(5)). Options come
//! from modprobe.d(5) and from the kernel's command line: the kernel itself applies those only to
//! modules that are built in.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::{fs, io};

/// Facts about modules.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct ModuleTree {
    /// The running kernel's release, such as `6.8.0-45-generic`.
    pub(super) release: String,
    /// Module files by module name.
    pub(super) files: BTreeMap<String, ModuleFile>,
    /// Whether `modules.dep` exists.
    pub(super) is_indexed: bool,
    pub(super) builtin: BTreeSet<String>,
    pub(super) loaded: BTreeSet<String>,
    /// Modules that modprobe.d forbids, each with the file that does.
    pub(super) forbidden: BTreeMap<String, String>,
    /// Module options that modprobe.d and the kernel's command line set, in this order.
    pub(super) options: BTreeMap<String, String>,
    /// The version text of NVIDIA's driver, if it is loaded.
    pub(super) nvidia: Option<String>,
}

/// The file of a module.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ModuleFile {
    /// Path below the kernel's module directory.
    pub(super) path: String,
    /// Paths of its dependencies. Later entries are dependencies of earlier ones.
    pub(super) needs: Vec<String>,
}

/// The directories of modprobe.d(5). For files of the same name, the first directory wins.
const SETTINGS: [&str; 5] = [
    "etc/modprobe.d",
    "run/modprobe.d",
    "usr/local/lib/modprobe.d",
    "usr/lib/modprobe.d",
    "lib/modprobe.d",
];

/// Converts a name to the kernel's spelling: `-` becomes `_`.
pub(super) fn kernel_name(text: &str) -> String {
    text.replace('-', "_")
}

/// The name of the module in a file, `kernel/a/ib-core.ko.zst`.
pub(super) fn module_of(path: &str) -> Option<String> {
    let file = path.rsplit('/').next()?;
    let (name, rest) = file.split_once(".ko")?;
    (!name.is_empty() && matches!(rest, "" | ".gz" | ".xz" | ".zst")).then(|| kernel_name(name))
}

impl ModuleTree {
    /// Reads the facts.
    ///
    /// # Errors
    /// The kernel's release or the loaded modules cannot be read. A kernel without a module
    /// directory has no modules.
    pub(super) fn read(root: &Path) -> io::Result<Self> {
        let release = fs::read_to_string(root.join("proc/sys/kernel/osrelease"))?;
        let release = release.trim().to_owned();
        let folder = root.join("lib/modules").join(&release);
        let index = text(&folder.join("modules.dep"))?;
        let (forbidden, mut options) = settings(root)?;
        let command_line = text(&root.join("proc/cmdline"))?.unwrap_or_default();
        for (module, option) in kernel_options(&command_line) {
            let set = options.entry(module).or_default();
            set.push_str(if set.is_empty() { "" } else { " " });
            set.push_str(&option);
        }
        let mut tree = Self {
            is_indexed: index.is_some(),
            files: files(index.as_deref().unwrap_or_default()),
            builtin: builtin(&text(&folder.join("modules.builtin"))?.unwrap_or_default()),
            forbidden,
            options,
            nvidia: text(&root.join("proc/driver/nvidia/version"))?,
            release,
            loaded: BTreeSet::new(),
        };
        tree.read_loaded(root)?;
        Ok(tree)
    }

    /// Reads which modules are loaded now.
    pub(super) fn read_loaded(&mut self, root: &Path) -> io::Result<()> {
        self.loaded = loaded(&fs::read_to_string(root.join("proc/modules"))?);
        Ok(())
    }
}

/// A file that may be absent.
fn text(path: &Path) -> io::Result<Option<String>> {
    match fs::read_to_string(path) {
        Ok(text) => Ok(Some(text)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// Parses `modules.dep`: `PATH: PATH PATH …`.
fn files(index: &str) -> BTreeMap<String, ModuleFile> {
    index
        .lines()
        .filter_map(|line| {
            let (path, needs) = line.split_once(':')?;
            let needs = needs.split_whitespace().map(str::to_owned).collect();
            Some((module_of(path)?, ModuleFile { path: path.to_owned(), needs }))
        })
        .collect()
}

/// Parses `modules.builtin`: a path on each line.
fn builtin(index: &str) -> BTreeSet<String> {
    index.lines().filter_map(module_of).collect()
}

/// Parses `/proc/modules`: `NAME SIZE USES USERS STATE …`. A module that is being loaded counts.
fn loaded(text: &str) -> BTreeSet<String> {
    text.lines().filter_map(|line| line.split(' ').next()).map(str::to_owned).collect()
}

/// Module options on the kernel's command line, `MODULE.OPTION=VALUE`, as modprobe(8) takes them.
/// White space in double quotes belongs to a value.
fn kernel_options(command_line: &str) -> Vec<(String, String)> {
    let mut is_quoted = false;
    let words = command_line.split(|character: char| {
        is_quoted ^= character == '"';
        character.is_whitespace() && !is_quoted
    });
    // What follows is for the first program.
    let words = words.take_while(|word| *word != "--");
    words
        .filter_map(|word| {
            let word = word.strip_prefix('"').and_then(|it| it.strip_suffix('"')).unwrap_or(word);
            let key = word.split('=').next()?;
            let (module, _) = key
                .split_once('.')
                .filter(|(module, name)| !module.is_empty() && !name.is_empty())?;
            Some((kernel_name(module), word.get(module.len() + 1..)?.to_owned()))
        })
        .collect()
}

/// The modules that modprobe.d forbids, and the options that it sets.
fn settings(root: &Path) -> io::Result<(BTreeMap<String, String>, BTreeMap<String, String>)> {
    let mut files: BTreeMap<String, String> = BTreeMap::new();
    for folder in SETTINGS {
        let entries = match fs::read_dir(root.join(folder)) {
            Ok(entries) => entries,
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            Err(error) => return Err(error),
        };
        for entry in entries {
            let entry = entry?;
            let name = entry.file_name().to_string_lossy().into_owned();
            // A link to /dev/null masks a file of a later directory.
            if Path::new(&name).extension().is_some_and(|it| it == "conf")
                && !files.contains_key(&name)
            {
                files.insert(name, text(&entry.path())?.unwrap_or_default());
            }
        }
    }
    let (mut forbidden, mut options) = (BTreeMap::new(), BTreeMap::<String, String>::new());
    for (file, text) in files {
        for line in text.replace("\\\n", " ").lines() {
            let mut words = line.split_whitespace();
            match [words.next(), words.next(), words.next()] {
                [Some("install"), Some(name), Some(command)]
                    if command.ends_with("/false") || command.ends_with("/true") =>
                {
                    forbidden.insert(kernel_name(name), file.clone());
                }
                [Some("options"), Some(name), Some(first)] => {
                    let set = options.entry(kernel_name(name)).or_default();
                    for word in std::iter::once(first).chain(words) {
                        set.push_str(if set.is_empty() { "" } else { " " });
                        set.push_str(word);
                    }
                }
                _ => {}
            }
        }
    }
    Ok((forbidden, options))
}
