//! The documentation agrees with the code: links lead somewhere, YAML is valid, and the
//! reference lists are those of the programs.

#![allow(clippy::panic, clippy::unwrap_used, reason = "a test may panic")]

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use cluster_model::names::annotation::{self, Purpose};
use node_driver::kernel::attach::settings;
use tests::{
    binaries,
    documents::{self, parts},
    hostile, manifest,
};

/// Flags that are on no page: clap's own, and one for tests of restarts.
const UNLISTED_FLAGS: [&str; 4] = ["help", "version", "kill-at", "showtopo"];

/// Words in the sources of events that are not reasons.
const NOT_REASONS: [&str; 9] = [
    "Allocate",
    "ChooseFabric",
    "Create",
    "Functions",
    "Normal",
    "Preempt",
    "Preparing",
    "Warning",
    "Watching",
];

fn repository() -> PathBuf {
    documents::repository().unwrap()
}

/// Text of a file of the repository.
fn read(path: impl AsRef<Path>) -> String {
    let path = repository().join(path);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("`{}`: {error}", path.display()))
}

/// Files below a folder whose names end in `ending`.
fn files(folder: &Path, ending: &str) -> Vec<PathBuf> {
    documents::files(folder, ending).unwrap()
}

/// Sources of a crate without unit tests; a text that spans lines is on one.
fn sources(package: &str) -> Vec<String> {
    let paths = files(&repository().join(package).join("src"), ".rs");
    let text = |path: &PathBuf| {
        let text = read(path);
        join_lines(text.split("#[cfg(test)]").next().unwrap_or_default())
    };
    paths.iter().map(text).collect()
}

/// Takes out each backslash at the end of a line, with the white space after it, as Rust does
/// in string literals.
fn join_lines(text: &str) -> String {
    let mut parts = text.split("\\\n");
    let mut joined = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        joined.push_str(part.trim_start());
    }
    joined
}

/// String literals that directly follow `start`.
fn literals_after(text: &str, start: &str) -> Vec<String> {
    let literal = |rest: &str| {
        let literal = rest.trim_start().strip_prefix('"')?;
        literal.split('"').next().map(str::to_owned)
    };
    text.split(start).skip(1).filter_map(literal).collect()
}

/// Every page: its path and its text.
fn pages() -> Vec<(PathBuf, String)> {
    documents::pages().unwrap()
}

/// The targets of links.
fn links(text: &str) -> Vec<String> {
    let (prose, _) = parts(text);
    let of_line = |line: &str| -> Vec<String> {
        let targets = line.split("](").skip(1);
        targets.filter_map(|rest| rest.split(')').next()).map(str::to_owned).collect()
    };
    prose.into_iter().flat_map(of_line).collect()
}

/// The anchors of a page's headings, as GitHub and mdBook make them.
fn anchors(text: &str) -> BTreeSet<String> {
    let (prose, _) = parts(text);
    let headings = prose.into_iter().filter(|line| line.starts_with('#'));
    let anchor = |line: &str| -> String {
        let title = line.trim_start_matches('#').trim().to_lowercase();
        let kept = title.chars().filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
        kept.map(|c| if c == ' ' { '-' } else { c }).collect()
    };
    headings.map(anchor).collect()
}

/// The first words in backticks of the rows of all tables.
fn first_cells(text: &str) -> BTreeSet<String> {
    let (prose, _) = parts(text);
    let cell = |line: &str| line.strip_prefix("| `")?.split('`').next().map(str::to_owned);
    prose.into_iter().filter_map(cell).collect()
}

/// What is below the heading `## title`.
fn section<'a>(text: &'a str, title: &str) -> &'a str {
    let begin = format!("\n## {title}\n");
    let (_, rest) = text.split_once(&begin).unwrap_or_else(|| panic!("no heading `{title}`"));
    rest.split("\n## ").next().unwrap_or_default()
}

/// Fails with what only one of two lists has.
fn assert_same(documented: &BTreeSet<String>, there: &BTreeSet<String>, page: &str) {
    let missing: Vec<_> = there.difference(documented).collect();
    let stale: Vec<_> = documented.difference(there).collect();
    assert!(missing.is_empty(), "{page} does not list {missing:?}");
    assert!(stale.is_empty(), "{page} lists {stale:?}, which the code does not have");
}

/// Every documented text is in the sources; `…` stands for what differs.
fn assert_texts_exist(texts: &BTreeSet<String>, sources: &str, page: &str) {
    assert!(!texts.is_empty(), "{page} has no texts");
    for text in texts {
        let pieces = text.split('…').map(str::trim).filter(|piece| piece.len() > 2);
        for piece in pieces {
            assert!(
                sources.contains(piece),
                "{page}: the code has no text `{piece}` (of `{text}`)"
            );
        }
    }
}

#[test]
fn every_link_leads_to_a_file_and_a_heading() {
    for (path, text) in pages() {
        let folder = path.parent().unwrap();
        for link in links(&text) {
            if link.contains("://") {
                continue;
            }
            let (file, anchor) = link.split_once('#').unwrap_or((link.as_str(), ""));
            let target = if file.is_empty() { path.clone() } else { folder.join(file) };
            assert!(target.exists(), "{}: no file for the link `{link}`", path.display());
            if !anchor.is_empty() {
                let known = anchors(&read(&target));
                assert!(known.contains(anchor), "{}: no heading for `{link}`", path.display());
            }
        }
    }
}

#[test]
fn every_alert_leads_to_a_page_and_a_heading() {
    let rules = read("deploy/chart/files/rules.yaml");
    let links = rules.split("runbook_url: RUNBOOKS/").skip(1);
    let links: Vec<&str> = links.filter_map(|rest| rest.lines().next()).collect();
    assert_eq!(links.len(), rules.matches("- alert: ").count());
    for link in links {
        let (file, anchor) = link.split_once('#').unwrap_or((link, ""));
        let page = read(format!("docs/{file}"));
        assert!(anchor.is_empty() || anchors(&page).contains(anchor), "no heading for `{link}`");
    }
}

#[test]
fn every_page_of_the_book_is_in_its_summary() {
    let docs = repository().join("docs");
    let summary = links(&read("docs/SUMMARY.md"));
    let listed: BTreeSet<PathBuf> = summary.iter().map(|link| docs.join(link)).collect();
    let mut there: BTreeSet<PathBuf> = files(&docs, ".md").into_iter().collect();
    there.remove(&docs.join("SUMMARY.md"));
    assert_eq!(listed, there);
}

#[test]
fn every_yaml_block_holds_objects() {
    let mut count = 0;
    for (path, text) in pages() {
        for block in parts(&text).1 {
            if block.language == "yaml" {
                count += 1;
                let block = block.text;
                let objects = manifest::parse(&block)
                    .unwrap_or_else(|error| panic!("{}: {error:#}\n{block}", path.display()));
                assert!(!objects.is_empty(), "{}: no object in\n{block}", path.display());
            }
        }
    }
    assert!(count > 0, "no page has a YAML block");
}

/// `control_plane::documented` runs them.
#[test]
fn every_command_is_run_or_says_why_not() {
    let runnable = ["kubectl ", "cargo run -p kubectl-dranet "];
    for (path, text) in pages() {
        for block in parts(&text).1 {
            let page = path.display();
            if block.language.is_empty() {
                let first = block.text.split([' ', '\n']).next().unwrap_or_default();
                let program = ["cargo", "curl", "deploy/", "helm", "kubectl", "tests/"];
                let is_command = program.iter().any(|it| first.starts_with(it));
                assert!(!is_command, "{page}: a block of commands without `sh`:\n{}", block.text);
            }
            if let Some(reason) = &block.not_run {
                assert!(!reason.is_empty(), "{page}: no reason above:\n{}", block.text);
                continue;
            }
            for command in block.commands() {
                let is_runnable = runnable.iter().any(|start| command.starts_with(start));
                assert!(is_runnable, "{page}: nothing runs `{command}`; say so above its block");
            }
        }
    }
}

#[test]
fn every_flag_is_documented() {
    let page = read("docs/reference/flags.md");
    let documented = |titles: &[&str]| -> BTreeSet<String> {
        let sections = titles.iter().map(|title| section(&page, title));
        let cells = sections.flat_map(first_cells);
        let name = |cell: String| Some(cell.strip_prefix("--")?.split(' ').next()?.to_owned());
        cells.filter_map(name).collect()
    };
    let cluster = "All programs that talk to a cluster";
    for program in ["admission", "fabric-controller", "node-driver", "preemptor", "scheduler-ext"] {
        let titles = [cluster, "All servers", program];
        assert_same(&documented(&titles), &flags(program, &[]), program);
    }
    let commands = [
        "graph",
        "plan",
        "explain",
        "verify",
        "capacity",
        "simulate",
        "defrag",
        "bench",
        "lint",
        "doctor",
        "fabric",
        "top",
        "ui",
        "pools",
        "machines",
        "snapshot",
        "diff",
        "migrate",
        "version",
        "completion",
        "man",
    ];
    let of_command = |command: &&str| flags("kubectl-dranet", &[*command]);
    let there: BTreeSet<String> = commands.iter().flat_map(of_command).collect();
    assert_same(&documented(&[cluster, "kubectl dranet"]), &there, "kubectl dranet");
}

/// The flags in a program's help.
fn flags(program: &str, command: &[&str]) -> BTreeSet<String> {
    let output = Command::new(binaries::ours(program).unwrap())
        .args(command)
        .arg("--help")
        .output()
        .unwrap();
    assert!(output.status.success(), "{program} {command:?} --help");
    let help = String::from_utf8(output.stdout).unwrap();
    let name = |line: &str| -> Option<String> {
        let line = line.trim_start();
        let short = || line.split_once(", --").filter(|(short, _)| short.len() == 2);
        let long = line.strip_prefix("--").or_else(|| short().map(|(_, long)| long))?;
        let is_end = |c: char| !c.is_ascii_alphanumeric() && c != '-';
        long.split(is_end).next().map(str::to_owned)
    };
    let all = help.lines().filter_map(name);
    all.filter(|flag| !UNLISTED_FLAGS.contains(&flag.as_str())).collect()
}

#[test]
fn every_metric_is_documented() {
    let mut there = BTreeSet::new();
    for package in ["admission", "fabric-controller", "node-driver", "preemptor", "scheduler-ext"] {
        let sources = sources(package);
        let prefix_in = |text: &String| literals_after(text, "with_prefix(").into_iter().next();
        let of_program = sources.iter().find_map(prefix_in);
        for text in &sources {
            let starts = [".register(", ".register_with_unit(", "encode_descriptor("];
            for name in starts.iter().flat_map(|start| literals_after(text, start)) {
                let prefix = prefix_in(text).or_else(|| of_program.clone());
                there.insert(format!("{}_{name}", prefix.unwrap()));
            }
        }
    }
    let page = "docs/reference/metrics.md";
    let without_unit = |cell: String| {
        let name = cell.strip_suffix("_total").or_else(|| cell.strip_suffix("_seconds"));
        name.unwrap_or(&cell).to_owned()
    };
    let documented: BTreeSet<String> =
        first_cells(&read(page)).into_iter().map(without_unit).collect();
    assert_same(&documented, &there, page);
}

#[test]
fn every_annotation_is_documented() {
    let page = "docs/reference/annotations.md";
    let text = read(page);
    let (asking, rest) = text.split_once("\n## Permissions").unwrap();
    let (allowing, rest) = rest.split_once("\n## Set by the programs").unwrap();
    let (written, _) = rest.split_once("\n## Labels").unwrap();
    let by_programs = [Purpose::WrittenOnPods, Purpose::WrittenOnTemplates];
    for (text, purposes) in
        [(asking, &[Purpose::Asks][..]), (allowing, &[Purpose::Allows]), (written, &by_programs)]
    {
        let there = purposes.iter().flat_map(|purpose| annotation::with_purpose(*purpose));
        assert_same(&first_cells(text), &there.map(str::to_owned).collect(), page);
    }
}

#[test]
fn every_setting_of_interfaces_is_documented() {
    let page = "docs/reference/network-configuration.md";
    let text = read(page);
    let (_, table) = section(&text, "What is restored").split_once("|---|---|\n").unwrap();
    let rows = table.lines().map_while(|line| line.strip_prefix("| ")?.split(" |").next());
    let there: Vec<_> = settings::names().collect();
    assert_eq!(rows.collect::<Vec<_>>(), there, "{page}");
}

#[test]
fn every_reason_is_documented() {
    let page = "docs/reference/events.md";
    let documented = first_cells(&read(page));
    let is_reason = |word: &&str| {
        let begins = word.chars().next().is_some_and(|first| first.is_ascii_uppercase());
        begins && word.len() > 5 && word.chars().all(|c| c.is_ascii_alphabetic())
    };
    let files = [
        "admission/src/leader/domain_events.rs",
        "admission/src/leader/outdated_pods.rs",
        "admission/src/leader/recreate.rs",
        "admission/src/server/writer.rs",
        "fabric-controller/src/controller/report.rs",
        "fabric-controller/src/waiting.rs",
        "host-setup/src/notice.rs",
        "host-setup/src/virtual_functions/create.rs",
        "node-driver/src/publish/events.rs",
        "node-driver/src/driver/too_old.rs",
        "node-driver/src/prepare/notices.rs",
        "node-driver/src/claims/pod_events.rs",
        "preemptor/src/controller/report.rs",
        "scheduler-ext/src/events.rs",
    ];
    for file in files {
        let text = read(file);
        let text = text.split("#[cfg(test)]").next().unwrap_or_default();
        let reasons: Vec<_> = text.split('"').filter(is_reason).collect();
        for reason in reasons.iter().filter(|reason| !NOT_REASONS.contains(reason)) {
            assert!(documented.contains(*reason), "{page} does not list {reason} of {file}");
        }
    }
    let packages = [
        "admission",
        "cluster-model",
        "fabric-controller",
        "host-setup",
        "node-driver",
        "preemptor",
        "publication",
        "scheduler-ext",
        "topology-graph",
    ];
    let code = packages.map(sources).concat().join("\n");
    let texts: BTreeSet<String> =
        documented.into_iter().filter(|cell| !cell.starts_with("dranet.io/")).collect();
    assert_texts_exist(&texts, &code, page);
}

#[test]
fn documented_denials_are_in_the_code() {
    let page = "docs/reference/denials.md";
    let documented = first_cells(&read(page));
    let code = [sources("admission"), sources("cluster-model")].concat().join("\n");
    assert_texts_exist(&documented, &code, page);
    let checks = literals_after(&read("admission/src/lint.rs"), "=> ");
    for check in checks.iter().filter(|check| check.contains('-')) {
        assert!(documented.contains(check), "{page} does not list the check {check}");
    }
}

/// Each row about a feature of upstream names the test that shows it here, or says why there is
/// none.
#[test]
fn tests_of_upstream_features_exist() {
    let page = read("node-driver/UPSTREAM.md");
    let all: String = files(&repository(), ".rs").iter().map(read).collect();
    let rows: Vec<_> = page
        .lines()
        .filter(|line| line.starts_with("| ") && !line.starts_with("| Upstream"))
        .collect();
    assert!(rows.len() > 30, "{} rows", rows.len());
    for row in rows {
        let cells: Vec<_> = row.trim_matches([' ', '|']).split(" | ").collect();
        let [_, here, shown] = cells[..] else { panic!("{} cells: {row}", cells.len()) };
        assert!(!here.is_empty() && !shown.is_empty(), "a cell is empty: {row}");
        let names = shown.split('`').skip(1).step_by(2).filter(|name| name.contains('_'));
        for name in names {
            assert!(is_test(&all, name), "no test `{name}`: {row}");
        }
    }
}

/// A function, or a name in the list of a custom suite.
fn is_test(code: &str, name: &str) -> bool {
    code.contains(&format!("fn {name}(")) || code.contains(&format!("(\"{name}\", "))
}

/// Snapshots hold every denial that a test has seen.
#[test]
fn denials_in_the_code_are_documented() {
    let page = "docs/reference/denials.md";
    let documented = first_cells(&read(page));
    let mut count = 0;
    for file in files(&repository().join("admission"), ".snap") {
        let text = read(&file);
        let denials = text.lines().filter_map(|line| {
            let line = line.trim_start();
            let is_denial = line.starts_with("dranet.io/") && line.contains("\": ");
            line.strip_prefix("denied: ").or_else(|| is_denial.then_some(line))
        });
        for denial in denials {
            count += 1;
            let is_listed = documented.iter().any(|cell| has_in_order(denial, cell));
            assert!(is_listed, "{page} has no text for this one of {}: {denial}", file.display());
        }
    }
    assert!(count > 50, "{count} denials in snapshots");
}

/// Whether a text has the pieces of a documented one, which `…` separates, in their order.
fn has_in_order(text: &str, documented: &str) -> bool {
    let mut rest = Some(text);
    let pieces = documented.split('…').map(str::trim).filter(|piece| piece.len() > 2);
    for piece in pieces.clone() {
        rest = rest.and_then(|rest| rest.split_once(piece)).map(|(_, rest)| rest);
    }
    rest.is_some() && pieces.count() > 0
}

/// Names with an underscore are functions, those with a slash are files.
#[test]
fn tests_of_invariants_exist() {
    let (first, page) = (read("ARCHITECTURE.md"), read("docs/develop/invariants.md"));
    let all: String = files(&repository(), ".rs").iter().map(read).collect();
    let rows: Vec<_> = section(&first, "Invariants")
        .lines()
        .chain(page.lines())
        .filter(|line| line.starts_with("| ") && !line.starts_with("| What holds"))
        .collect();
    assert!(rows.len() > 20, "{} invariants", rows.len());
    for row in rows {
        let last = row.trim_end_matches([' ', '|']).rsplit(" | ").next().unwrap();
        let names: Vec<_> = last.split('`').skip(1).step_by(2).collect();
        assert!(!names.is_empty(), "no test is named: {row}");
        for name in names {
            let is_there = match (name.contains('/'), name.contains('_')) {
                (true, _) => repository().join(name).exists(),
                (false, true) => is_test(&all, name),
                (false, false) => true,
            };
            assert!(is_there, "no test `{name}`: {row}");
        }
    }
}

/// The comments around the table of attempts, which `tests::hostile` generates.
const ATTEMPTS: [&str; 2] = ["<!-- begin of the generated tables -->\n", "\n<!-- end -->"];

#[test]
fn attempts_of_attackers_are_documented() {
    let page = read("docs/operate/security.md");
    let (_, rest) = page.split_once(ATTEMPTS[0]).unwrap();
    let (there, _) = rest.split_once(ATTEMPTS[1]).unwrap();
    let table = hostile::table();
    if there != table {
        let made = repository().join("target/made/attempts.md");
        fs::create_dir_all(made.parent().unwrap()).unwrap();
        fs::write(&made, &table).unwrap();
        panic!("the generated tables of docs/operate/security.md are not `{}`", made.display());
    }
    let all: String = files(&repository(), ".rs").iter().map(read).collect();
    for row in hostile::attempts() {
        assert!(is_test(&all, row.test), "no test `{}`: {}", row.test, row.attempt);
    }
}
