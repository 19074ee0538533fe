//! `lint`: what is wrong with claims that were written by hand, and with annotated pods.

use crate::Output;
use crate::answer::{Lint, LintFinding, Linted, Severity};
use crate::args::LintArgs;
use crate::kinds::{DEVICES, NAMESPACES, PODS, Query, WITH_PODS};
use crate::settings;
use crate::source::{self, ReadCluster, Source};
use crate::subject::{self, Subject, admin_access_problem};
use crate::text::counted;
use admission::admit::{AdmitError, admit};
use admission::lint::{self, Finding, lint};
use admission::misplaced::of_workload;
use admission::plan::Policy;
use admission::reapplied;
use anyhow::Context as _;
use cluster_model::names::{annotation, label};
use cluster_model::nic_lists::NicList;
use cluster_model::predict::budget;
use cluster_model::view::ClusterView;
use k8s_openapi::api::resource::v1::ResourceClaimSpec;
use serde_json::{Value, json};
use std::collections::{BTreeMap, HashMap};
use std::fmt::Write as _;
use std::path::Path;

/// On a claim that the resource claim controller made from a template
/// (`resourcev1.PodResourceClaimAnnotation`).
const FROM_TEMPLATE: &str = "resource.kubernetes.io/pod-claim-name";

/// The API versions of claims, which have the same fields.
const VERSIONS: [&str; 2] = ["resource.k8s.io/v1", "resource.k8s.io/v1beta2"];

impl From<Finding> for LintFinding {
    fn from(finding: Finding) -> Self {
        let Finding { check, severity, place, message } = finding;
        let severity = match severity {
            lint::Severity::Note => Severity::Note,
            lint::Severity::Warning => Severity::Warning,
            lint::Severity::Error => Severity::Error,
        };
        Self { check: check.name().to_owned(), severity, place, message }
    }
}

pub(crate) fn run(args: &LintArgs) -> anyhow::Result<Output> {
    let (claims, notes) = match &args.file {
        Some(_) => of_file(args)?,
        None => of_cluster(args)?,
    };
    let mut findings = claims.iter().flat_map(|linted| &linted.findings);
    let denied = findings.any(|finding| finding.severity >= args.fail_on.into());
    let answer = Lint { claims };
    let text = args.output.write(&answer, || person(&answer.claims, args.file.is_none()))?;
    Ok(Output { text, denied, notes })
}

fn of_file(args: &LintArgs) -> anyhow::Result<(Vec<Linted>, Vec<String>)> {
    let path = args.file.as_deref().unwrap_or_else(|| Path::new("-"));
    let objects = source::objects(path)?;
    let namespaces = NAMESPACES.all("it is not known which namespaces allow adminAccess");
    let asks = objects.iter().any(|object| object.to_string().contains("\"adminAccess\":true"));
    let more: Vec<Query> = asks.then_some(namespaces).into_iter().collect();
    let kinds = &["Deployment", "Namespace"];
    let seen = Source::open(&args.source)?.read_as_admission(&args.admission, kinds, &more, &[])?;
    seen.must_know(&DEVICES)?;
    let policy = Policy { max_steps: args.max_steps, ..settings::of_cluster(&seen.kept) };
    let ReadCluster { view, mut notes, kept, namespace, .. } = seen;
    let mut linted = Vec::new();
    let mut asked = subject::of_objects(objects.clone());
    subject::put_into(&mut asked.subjects, namespace.as_deref().unwrap_or("default"));
    for Subject { pod: of_workload, origin, .. } in &asked.subjects {
        let found = pod(of_workload, false, (&view, &policy))?;
        let findings = found.map(|found| found.findings).unwrap_or_default();
        let (kind, name) = origin.split_once(' ').unwrap_or(("Pod", origin));
        linted.push(Linted { kind: kind.to_owned(), name: name.to_owned(), findings });
    }
    if !asked.subjects.is_empty() {
        notes.extend(asked.remarks);
    }
    for object in &objects {
        let own = object["metadata"]["namespace"].as_str().or(namespace.as_deref());
        let refused = admin_access_problem(object, own.unwrap_or("default"), &kept);
        let refused = refused.map(admin_access);
        if let Some(mut found) = claim(object, &view, args.max_steps, false)? {
            found.findings.splice(0..0, refused);
            linted.push(found);
        }
    }
    anyhow::ensure!(
        !linted.is_empty(),
        "`{}` contains neither a ResourceClaim, a ResourceClaimTemplate, a pod nor a workload",
        path.display()
    );
    Ok((linted, notes))
}

/// The finding on a claim that asks for `adminAccess` where that is not allowed.
fn admin_access(why: String) -> LintFinding {
    LintFinding {
        check: "admin-access".to_owned(),
        severity: Severity::Error,
        place: "claim".to_owned(),
        message: why,
    }
}

/// Returns what users wrote: not what admission writes, nor claims created from templates.
fn of_cluster(args: &LintArgs) -> anyhow::Result<(Vec<Linted>, Vec<String>)> {
    const KINDS: &[&str] = &[
        "CronJob",
        "DaemonSet",
        "Deployment",
        "Job",
        "Pod",
        "ResourceClaim",
        "ResourceClaimTemplate",
        "StatefulSet",
    ];
    let named = args.admission.namespace.as_deref();
    let scope = if args.all_namespaces { None } else { named };
    let mut more = vec![PODS.of(scope, "annotated pods are not checked")];
    more.extend(WITH_PODS.map(|kind| kind.of(scope, "their annotations are not checked")));
    let seen = Source::open(&args.source)?.read_as_admission(&args.admission, KINDS, &more, &[])?;
    seen.must_know(&DEVICES)?;
    let namespace = seen.namespace.as_deref().filter(|_| !args.all_namespaces);
    let policy = Policy { max_steps: args.max_steps, ..settings::of_cluster(&seen.kept) };
    // The pods of a job differ only in their names, so they are checked once.
    let mut known: HashMap<String, Option<Vec<LintFinding>>> = HashMap::new();
    let mut linted = Vec::new();
    for object in &seen.kept {
        let metadata = &object["metadata"];
        let is_there = namespace.is_none_or(|asked| metadata["namespace"] == asked);
        let is_selected = args.selector.as_ref().is_none_or(|it| it.matches(&labels(object)));
        if !is_there || !is_selected {
            continue;
        }
        let is_made = metadata["labels"][label::TEMPLATE].is_string()
            || metadata["annotations"][FROM_TEMPLATE].is_string();
        if is_made {
            continue;
        }
        let key = what_is_linted(object);
        if !known.contains_key(&key) {
            let found = match object["kind"].as_str() {
                Some("Pod") => pod(object, true, (&seen.view, &policy))?,
                Some("ResourceClaim" | "ResourceClaimTemplate") => {
                    claim(object, &seen.view, args.max_steps, true)?
                }
                _ => workload(object),
            };
            known.insert(key.clone(), found.map(|found| found.findings));
        }
        if let Some(Some(findings)) = known.get(&key) {
            let kind = object["kind"].as_str().unwrap_or_default().to_owned();
            linted.push(Linted { kind, name: name(object, true), findings: findings.clone() });
        }
    }
    linted.sort_by(|one, other| (&one.kind, &one.name).cmp(&(&other.kind, &other.name)));
    // Admission's own Deployment is read twice in its namespace.
    linted.dedup_by(|one, other| (&one.kind, &one.name) == (&other.kind, &other.name));
    Ok((linted, seen.notes))
}

fn labels(object: &Value) -> BTreeMap<String, String> {
    let labels = object["metadata"]["labels"].as_object().into_iter().flatten();
    labels.filter_map(|(key, value)| Some((key.clone(), value.as_str()?.to_owned()))).collect()
}

/// The parts of an object that findings depend on.
fn what_is_linted(object: &Value) -> String {
    let mut spec = object["spec"].clone();
    let is_bound = spec["nodeName"].is_string();
    if let Some(spec) = spec.as_object_mut() {
        spec.remove("nodeName");
    }
    let metadata = &object["metadata"];
    json!([object["kind"], metadata["namespace"], metadata["annotations"], spec, is_bound])
        .to_string()
}

fn name(object: &Value, with_namespace: bool) -> String {
    let metadata = &object["metadata"];
    let name = metadata["name"].as_str().unwrap_or_default();
    match metadata["namespace"].as_str() {
        Some(namespace) if with_namespace => format!("{namespace}/{name}"),
        _ => name.to_owned(),
    }
}

/// The findings on an object, if it is a claim or a claim template.
fn claim(
    object: &Value,
    view: &ClusterView,
    max_steps: u64,
    with_namespace: bool,
) -> anyhow::Result<Option<Linted>> {
    let kind = object["kind"].as_str().unwrap_or_default().to_owned();
    let spec = match kind.as_str() {
        "ResourceClaim" => &object["spec"],
        "ResourceClaimTemplate" => &object["spec"]["spec"],
        _ => return Ok(None),
    };
    let quoted = &object["metadata"]["name"];
    check_form(&kind, object, spec)?;
    let spec: ResourceClaimSpec = serde_json::from_value(spec.clone())
        .with_context(|| format!("the spec of {quoted} is malformed"))?;
    let name = name(object, with_namespace);
    let findings = lint(&spec, view, max_steps, &budget(view))
        .with_context(|| format!("failed to read {kind} `{name}`"))?;
    Ok(Some(Linted { kind, name, findings: findings.into_iter().map(Into::into).collect() }))
}

/// Fails on claims of other API versions, and on requests in their form: they would count as empty.
fn check_form(kind: &str, object: &Value, spec: &Value) -> anyhow::Result<()> {
    let version = object["apiVersion"].as_str().unwrap_or(VERSIONS[0]);
    let quoted = &object["metadata"]["name"];
    anyhow::ensure!(
        VERSIONS.contains(&version),
        "{kind} {quoted} has the apiVersion {version}; write it for {}, with the class, count and \
         selectors of each request below `exactly`",
        VERSIONS[0]
    );
    let requests = spec["devices"]["requests"].as_array().into_iter().flatten();
    for request in requests {
        anyhow::ensure!(
            request["exactly"].is_object() || request["firstAvailable"].is_array(),
            "request {} of {kind} {quoted} has neither `exactly` nor `firstAvailable`; write its \
             class, count and selectors below `exactly`",
            request["name"]
        );
    }
    Ok(())
}

/// The findings on an object that creates pods, if its annotations have no effect. Its pods are checked
/// themselves.
fn workload(object: &Value) -> Option<Linted> {
    let findings: Vec<_> = of_workload(object).into_iter().map(without_effect).collect();
    let kind = object["kind"].as_str().unwrap_or_default().to_owned();
    (!findings.is_empty()).then(|| Linted { kind, name: name(object, true), findings })
}

fn finding(check: &str, severity: Severity, message: String) -> LintFinding {
    LintFinding { check: check.to_owned(), severity, place: "annotations".to_owned(), message }
}

/// The finding on an annotation without an effect.
fn without_effect(message: String) -> LintFinding {
    finding("annotation", Severity::Warning, message)
}

/// What admission reports about an annotated pod, which the cluster has or which a file would create.
fn pod(
    object: &Value,
    is_created: bool,
    (view, policy): (&ClusterView, &Policy),
) -> anyhow::Result<Option<Linted>> {
    let annotations = object["metadata"]["annotations"].as_object();
    let mut keys = annotations.into_iter().flat_map(|annotations| annotations.keys());
    if !keys.any(|key| key.starts_with(annotation::DOMAIN)) {
        return Ok(None);
    }
    let is_bound = object["spec"]["nodeName"].is_string();
    let has_claims = object["spec"]["resourceClaims"].as_array().is_some_and(|all| !all.is_empty());
    let queries = object["metadata"]["annotations"][annotation::ALIGNED_NICS].is_string();
    let mut findings = Vec::new();
    if is_created && queries && !has_claims {
        let message = "the pod asks for NICs but has no claim: the webhook was not called when it \
                       was created, or the annotation was added later; create the pod again once \
                       `kubectl dranet doctor` finds no error";
        findings.push(finding("not-admitted", Severity::Error, message.to_owned()));
    }
    match admit(object, view, policy) {
        // The devices that a running pod requests may no longer fit.
        Err(AdmitError::Denied(denial)) if !is_bound => {
            findings.push(finding("denied", Severity::Error, denial.to_string()));
        }
        Err(AdmitError::Denied(_)) => {}
        Err(error) => return Err(error.into()),
        Ok(verdict) => findings.extend(verdict.warnings.into_iter().map(without_effect)),
    }
    if is_created {
        findings.extend(reapplied::warning(object).map(without_effect));
    }
    if queries {
        findings.extend(environment(object));
    }
    Ok(Some(Linted { kind: "Pod".to_owned(), name: name(object, true), findings }))
}

/// What containers say of NICs besides the claim.
fn environment(pod: &Value) -> Vec<LintFinding> {
    let spec = &pod["spec"];
    let containers = ["initContainers", "containers"].into_iter();
    let containers = containers.filter_map(|field| spec[field].as_array()).flatten();
    let lists = containers.flat_map(|container| {
        let lists = NicList::of(container).into_iter().filter(NicList::names_nics);
        lists.map(|list| of_list(&list, container["name"].as_str().unwrap_or_default()))
    });
    lists.collect()
}

/// The finding on a list of NICs that a container sets.
fn of_list(list: &NicList, container: &str) -> LintFinding {
    let text = format!("{}={}", list.variable, list.value);
    let message = if list.is_replaced() {
        format!("`{text}` has no effect: the driver sets it to the NICs of the claim; remove it")
    } else {
        let who = if list.in_command { "the command sets " } else { "" };
        format!("{who}`{text}`, which hides other NICs of the claim; remove it")
    };
    LintFinding {
        check: "nic-list".to_owned(),
        severity: Severity::Warning,
        place: format!("container `{container}`"),
        message,
    }
}

fn person(linted: &[Linted], is_cluster: bool) -> anyhow::Result<String> {
    let mut out = String::new();
    for Linted { kind, name, findings } in linted {
        if is_cluster && findings.is_empty() {
            continue;
        }
        writeln!(out, "{kind} {name}")?;
        if findings.is_empty() {
            writeln!(out, "  nothing found")?;
        }
        for LintFinding { check, severity, place, message } in findings {
            writeln!(out, "  {severity}: {place}: {message} [{check}]")?;
        }
    }
    if is_cluster {
        let findings: usize = linted.iter().map(|linted| linted.findings.len()).sum();
        writeln!(out, "{} with {}", counted(linted.len(), "object"), counted(findings, "finding"))?;
    }
    Ok(out)
}
