//! `completion`, `man`, and the completion for `kubectl_complete-dranet`.

use crate::Output;
use crate::args::{Args, CompletionArgs, ManArgs, Shell, UserArgs};
use crate::kinds::{Kind, NAMESPACES, NIC_POOLS, NODES, PODS};
use crate::live::Cluster;
use anyhow::Context as _;
use clap::{Command, CommandFactory as _};
use clap_complete::{Shell as Script, generate};
use process::args::KubeArgs;
use std::fs;

/// kubectl runs this script with the words of the command line
/// (`pkg/cmd/plugin_completion.go`), and expects answers in cobra's format.
const FOR_KUBECTL: &str = "#!/usr/bin/env sh
# Completes `kubectl dranet`: kubectl runs this file from the PATH.
exec kubectl-dranet __complete -- \"$@\"
";

/// `ShellCompDirectiveNoFileComp` of cobra: no file names.
const NO_FILES: &str = ":4";
/// `ShellCompDirectiveDefault` of cobra: file names if there are no other completions.
const FILES: &str = ":0";

pub(crate) fn script(args: CompletionArgs) -> anyhow::Result<Output> {
    let script = match args.shell {
        Shell::Kubectl => return Ok(Output::from(FOR_KUBECTL.to_owned())),
        Shell::Bash => Script::Bash,
        Shell::Fish => Script::Fish,
        Shell::Powershell => Script::PowerShell,
        Shell::Zsh => Script::Zsh,
    };
    let mut text = Vec::new();
    // Completes the program's own name; `kubectl dranet` is completed by kubectl.
    let mut command = Args::command().bin_name("kubectl-dranet");
    generate(script, &mut command, "kubectl-dranet", &mut text);
    Ok(Output::from(String::from_utf8(text)?))
}

pub(crate) fn man(args: &ManArgs) -> anyhow::Result<Output> {
    let mut command = Args::command().disable_help_subcommand(true);
    command.build();
    let Some(folder) = &args.output else {
        return Ok(Output::from(page(command)?));
    };
    let wrap = || format!("failed to write into `{}`", folder.display());
    fs::create_dir_all(folder).with_context(wrap)?;
    let mut names = Vec::new();
    let commands = command.get_subcommands().filter(|it| !it.is_hide_set()).cloned();
    for command in std::iter::once(command.clone()).chain(commands) {
        let name = match command.get_name() {
            "kubectl-dranet" => "kubectl-dranet.1".to_owned(),
            name => format!("kubectl-dranet-{name}.1"),
        };
        fs::write(folder.join(&name), page(command)?).with_context(wrap)?;
        names.push(name);
    }
    Ok(Output::from(format!("{}: {}\n", folder.display(), names.join(", "))))
}

fn page(command: Command) -> anyhow::Result<String> {
    let mut text = Vec::new();
    clap_mangen::Man::new(command).render(&mut text)?;
    Ok(String::from_utf8(text)?)
}

/// Possible next words, one per line, in the format of cobra's `__complete`.
pub(crate) fn complete(words: &[String]) -> Output {
    let mut root = Args::command().disable_help_subcommand(true);
    root.build();
    let (last, before) = words.split_last().map_or(("", &[][..]), |(last, it)| (last.as_str(), it));
    let mut command = &root;
    for word in before.iter().filter(|word| !word.starts_with('-')) {
        command = command.find_subcommand(word).unwrap_or(command);
    }
    let values = before.last().and_then(|flag| values(command, flag));
    let (found, directive) = match values {
        Some(_) if is_namespace(before) => (named(NAMESPACES, &[]), NO_FILES),
        Some(values) if values.is_empty() => (Vec::new(), FILES),
        Some(values) => (values, NO_FILES),
        None if last.starts_with('-') => (flags(command), NO_FILES),
        None => {
            let positional = command.get_positionals().flat_map(|argument| {
                let values = argument.get_possible_values();
                values.into_iter().map(|value| value.get_name().to_owned()).collect::<Vec<_>>()
            });
            let objects = objects(command.get_name()).map(|kind| named(kind, before));
            let found = subcommands(command).into_iter().chain(positional);
            (found.chain(objects.unwrap_or_default()).collect(), NO_FILES)
        }
    };
    let matching = found.into_iter().filter(|candidate| candidate.starts_with(last));
    let lines: Vec<_> = matching.chain([directive.to_owned()]).collect();
    Output::from(lines.join("\n") + "\n")
}

/// Whether the value of a flag is to be completed that names a namespace.
fn is_namespace(before: &[String]) -> bool {
    let flags = ["-n", "--namespace", "--admission-namespace"];
    before.last().is_some_and(|flag| flags.contains(&flag.as_str()))
}

/// The kind of objects that a command names.
fn objects(command: &str) -> Option<Kind> {
    match command {
        "explain" | "plan" | "verify" => Some(PODS),
        "graph" | "top" => Some(NODES),
        "pools" => Some(NIC_POOLS),
        _ => None,
    }
}

/// The names of objects of the cluster and of the namespace that these words select.
fn named(kind: Kind, words: &[String]) -> Vec<String> {
    let kube = KubeArgs {
        kubeconfig: flag_value(words, &["--kubeconfig"]).map(Into::into),
        context: flag_value(words, &["--context"]),
    };
    let Ok(cluster) = Cluster::connect(&kube, &UserArgs::default()) else { return Vec::new() };
    let namespace = flag_value(words, &["-n", "--namespace"]);
    let namespace = namespace.unwrap_or_else(|| cluster.default_namespace());
    cluster.names(kind, (kind == PODS).then_some(namespace.as_str()))
}

/// The word after the first of these flags.
fn flag_value(words: &[String], flags: &[&str]) -> Option<String> {
    let at = words.iter().position(|word| flags.contains(&word.as_str()))?;
    words.get(at + 1).cloned()
}

fn subcommands(command: &Command) -> Vec<String> {
    let shown = command.get_subcommands().filter(|it| !it.is_hide_set());
    shown
        .map(|it| match it.get_about() {
            Some(about) => format!("{}\t{}", it.get_name(), about.to_string().replace('\n', " ")),
            None => it.get_name().to_owned(),
        })
        .collect()
}

fn flags(command: &Command) -> Vec<String> {
    command
        .get_arguments()
        .filter_map(|it| {
            let help = it.get_help().map(ToString::to_string).unwrap_or_default();
            Some(format!("--{}\t{}", it.get_long()?, help.replace('\n', " ")))
        })
        .collect()
}

/// The allowed values of a flag that takes one, empty if it takes any text; `None` for
/// other flags.
fn values(command: &Command, flag: &str) -> Option<Vec<String>> {
    let argument = command.get_arguments().find(|argument| {
        let long = argument.get_long().map(|long| format!("--{long}"));
        let short = argument.get_short().map(|short| format!("-{short}"));
        long.as_deref() == Some(flag) || short.as_deref() == Some(flag)
    })?;
    argument.get_action().takes_values().then(|| {
        let values = argument.get_possible_values();
        values.iter().map(|value| value.get_name().to_owned()).collect()
    })
}
