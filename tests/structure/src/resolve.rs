//! Resolves paths to the modules that define what they name.

use std::path::Path;

use crate::files::{ModulePath, Modules};

/// The maximum number of re-exports to follow, so that names that lead to each other end.
const MAX_HANDED_ON: usize = 16;

/// Each file that uses what another defines, the other file, and a path that leads there.
pub(crate) fn edges(modules: &Modules) -> Vec<(&Path, &Path, String)> {
    let mut edges = Vec::new();
    for (from, module) in &modules.all {
        for used in &module.used {
            let Some(to) = target(modules, from, &used.path, 0) else { continue };
            let Some(defines) = modules.all.get(&to) else { continue };
            if defines.file != module.file {
                edges.push((&*module.file, &*defines.file, used.path.join("::")));
            }
        }
    }
    edges
}

/// The module that defines what a path names, as seen from a module. `None` if that is in another
/// crate, or the path is not one of modules.
fn target(
    modules: &Modules,
    from: &[String],
    path: &[String],
    handed_on: usize,
) -> Option<ModulePath> {
    let mut rest = path;
    let mut module: ModulePath = from.to_vec();
    match &**rest.first()? {
        "crate" => {
            module.clear();
            rest = &rest[1..];
        }
        "self" => rest = &rest[1..],
        "super" => {
            while rest.first().is_some_and(|part| part == "super") {
                module.pop()?;
                rest = &rest[1..];
            }
        }
        first => {
            if !modules.has(&child(&module, first)) {
                return None;
            }
        }
    }
    while let Some(part) = rest.first()
        && modules.has(&child(&module, part))
    {
        module.push(part.clone());
        rest = &rest[1..];
    }
    if let Some(name) = rest.first()
        && name != "*"
        && handed_on < MAX_HANDED_ON
        && let Some(taken) = taken_over(modules, &module, name, path)
    {
        return target(modules, &module, taken, handed_on + 1);
    }
    Some(module)
}

/// The path by which a module imports a name; `None` if it defines the name itself.
fn taken_over<'m>(
    modules: &'m Modules,
    module: &[String],
    name: &str,
    asked: &[String],
) -> Option<&'m [String]> {
    let used = &modules.all.get(module)?.used;
    let taken = used.iter().find(|used| used.name.as_deref() == Some(name) && used.path != asked);
    taken.map(|taken| &*taken.path)
}

fn child(module: &[String], name: &str) -> ModulePath {
    module.iter().cloned().chain([name.to_owned()]).collect()
}
