//! The chart's values: each is explained, and a wrong one is refused with its path.

use std::{fs, sync::Arc};

use anyhow::Context;
use serde_json::Value;
use tests::{
    ControlPlane, binaries,
    chart::{Helm, copy, folder, printed},
    suite::{Test, report},
};
use tokio::process::Command;

pub(crate) fn tests() -> Vec<Test> {
    tests::tests![
        a_wrong_value_is_refused_with_its_path,
        values_without_effect_are_refused,
        releases_of_older_charts_are_upgraded_or_told_how,
        each_value_is_explained,
        the_version_is_that_of_the_programs,
    ]
}

async fn a_wrong_value_is_refused_with_its_path(_: Arc<ControlPlane>) -> anyhow::Result<()> {
    let helm = Helm::offline()?;
    for (set, path) in [
        ("image.registry=https://example.org", "/image/registry"),
        ("image.digests.admission=latest", "/image/digests/admission"),
        ("image.digests.webhook=latest", "/image/digests"),
        ("drivers.nics[0].driver=a.example.com", "/drivers/nics/0"),
        ("drivers.accelerators[0].vendor=1da3", "/drivers/accelerators/0"),
        ("nodeDriver.mode=graphs", "/nodeDriver/mode"),
        ("nodeDriver.bindNics=soon", "/nodeDriver/bindNics"),
        ("nodeDriver.lateNodes[0].pool=a\\,b", "/nodeDriver/lateNodes/0/pool"),
        ("nodeDriver.lateNodes={a}", "/nodeDriver/lateNodes/0"),
        ("nodeDriver.kubeletDir=var/lib", "/nodeDriver/kubeletDir"),
        ("nodeDriver.taints.gone=NoSchedule", "/nodeDriver/taints/gone"),
        ("nodeDriver.operationsPort=0", "/nodeDriver/operationsPort"),
        ("nodeDriver.resources.limits.memory=lots", "/nodeDriver/resources/limits/memory"),
        (
            "nodeDriver.probes.readiness.periodSeconds=0",
            "/nodeDriver/probes/readiness/periodSeconds",
        ),
        ("nodeDriver.virtualFunctions[0].numVfs=4", "/nodeDriver/virtualFunctions/0"),
        ("nodeDriver.virtualFunctions[0].vendor=15b3", "/nodeDriver/virtualFunctions/0"),
        ("nodeDriver.extraArgs={log}", "/nodeDriver/extraArgs/0"),
        ("vendorDriver.pciVendor=mellanox", "/vendorDriver/pciVendor"),
        ("vendorDriver.systems[0].name=a", "/vendorDriver/systems/0"),
        ("vendorDriver.drain=force", "/vendorDriver/drain"),
        ("admission.replicas=0", "/admission/replicas"),
        ("admission.port=443", "/admission/port"),
        ("admission.failurePolicy=fail", "/admission/failurePolicy"),
        ("admission.clientCertificate=maybe", "/admission/clientCertificate"),
        ("admission.certificate.source=vault", "/admission/certificate/source"),
        ("admission.certificate.issuerRef.name=x", "/admission/certificate/issuerRef"),
        ("fabricController.fullFabric=move", "/fabricController/fullFabric"),
        ("preemption.keep=forever", "/preemption/keep"),
        ("preemption.evictionsPerMinute=0", "/preemption/evictionsPerMinute"),
        ("preemption.victims.namespaces={A_b}", "/preemption/victims/namespaces/0"),
        ("scheduler.extender=managed", "/scheduler/extender"),
        ("scheduler.timeoutSeconds=100", "/scheduler/timeoutSeconds"),
        ("networkConfig.namespaces={A_b}", "/networkConfig/namespaces/0"),
        ("networkPolicy.apiServerPorts={api}", "/networkPolicy/apiServerPorts/0"),
        ("monitoring.monitor=Probe", "/monitoring/monitor"),
        ("monitoring.interval=fast", "/monitoring/interval"),
        ("nodeDrivers.enabled=true", "nodeDrivers"),
        ("crd.keep=yes", "/crd/keep"),
    ] {
        let args = ["template", "dranet", ".", "--set=image.registry=example.org", "--set", set];
        let said = helm.run(args).await.err().with_context(|| format!("`{set}` is accepted"))?;
        let said = said.to_string();
        assert!(said.contains(&format!("'{path}'")), "`{set}`: {said}");
    }
    Ok(())
}

async fn values_without_effect_are_refused(_: Arc<ControlPlane>) -> anyhow::Result<()> {
    let helm = Helm::offline()?;
    let vendor = "vendorDriver.enabled=true";
    for (set, expected) in [
        ("image.registry=", "image.registry is empty: set it to the registry"),
        ("nodeDriver.sharing=count", "nodeDriver.sharing: count needs nodeDriver.rdmaHcaMax"),
        (
            "nodeDriver.bindNics=late,nodeDriver.sharing=bandwidth",
            "nodeDriver.bindNics: late gives each pod NICs of its own",
        ),
        (
            "nodeDriver.bindNics=late,nodeDriver.lateNodes[0].pool=a",
            "nodeDriver.lateNodes has no effect with nodeDriver.bindNics: late",
        ),
        (
            "nodeDriver.rdmaHcaMax=8",
            "nodeDriver.rdmaHcaMax has no effect with nodeDriver.sharing: none",
        ),
        (
            "nodeDriver.sharedNics=x == y",
            "nodeDriver.sharedNics has no effect with nodeDriver.sharing: none",
        ),
        (
            "monitoring.rules=true,monitoring.runbooks=docs",
            "monitoring.runbooks is \"docs\", which is no URL",
        ),
        (vendor, "vendorDriver.enabled needs vendorDriver.version"),
        (&format!("{vendor},vendorDriver.version=v1"), "needs vendorDriver.systems"),
        (&format!("{vendor},nodeDriver.mode=topology"), "needs nodeDriver.enabled and"),
    ] {
        let value = format!("--set={set}");
        let args = ["template", "dranet", ".", "--set=image.registry=example.org", &value];
        let said = helm.run(args).await.err().with_context(|| format!("`{set}` is accepted"))?;
        assert!(said.to_string().contains(expected), "`{set}`: {said}");
    }
    Ok(())
}

/// The last changes of the chart's values that are tried.
const CHANGES: &str = "-10";

/// Releases of the last charts with other values, with each flag that the documentation names:
/// `--reset-then-reuse-values` takes the values that users set, here those of a platform, and
/// `--reuse-values` also the defaults of the older chart, which is refused in words if it has not all.
async fn releases_of_older_charts_are_upgraded_or_told_how(
    _: Arc<ControlPlane>,
) -> anyhow::Result<()> {
    let commits = history().await.unwrap_or_default();
    if commits.is_empty() {
        report(
            "not checked: no history of the chart is here; in a shallow clone run `git fetch --unshallow`",
        );
        return Ok(());
    }
    let helm = Helm::offline()?;
    let now = fs::read_to_string(folder().join("values.yaml"))?;
    for commit in &commits {
        let before = git(&["show", &format!("{commit}:./values.yaml")]).await?;
        let kept = tempfile::tempdir()?;
        copy(&folder(), kept.path())?;
        fs::write(kept.path().join("values.yaml"), &before)?;
        let chart = kept.path().display().to_string();
        let reused = helm.run(["template", "dranet", &chart, REGISTRY]).await;
        match reused.map_err(|error| error.to_string()) {
            Ok(_) => {}
            Err(said) if said.contains("upgrade with --reset-then-reuse-values") => {}
            Err(said) => panic!("--reuse-values from {commit}: {said}"),
        }
        let names = git(&["ls-tree", "--name-only", commit, "./platforms/"]).await?;
        for name in names.lines() {
            let set = git(&["show", &format!("{commit}:./{name}")]).await?;
            let file = kept.path().join("platform.yaml");
            fs::write(&file, set)?;
            fs::write(kept.path().join("values.yaml"), &now)?;
            let values = format!("--values={}", file.display());
            let upgraded = helm.run(["template", "dranet", &chart, REGISTRY, &values]).await;
            upgraded.with_context(|| format!("{name} of {commit}"))?;
        }
    }
    Ok(())
}

const REGISTRY: &str = "--set=image.registry=example.org";

/// The last commits that changed the chart's values; none in a shallow clone, whose oldest commit has them
/// all.
async fn history() -> anyhow::Result<Vec<String>> {
    let is_shallow = git(&["rev-parse", "--is-shallow-repository"]).await?;
    let commits = git(&["log", "--format=%H", CHANGES, "--", "values.yaml"]).await?;
    let commits = commits.lines().map(str::to_owned);
    Ok(if is_shallow.trim() == "true" { Vec::new() } else { commits.collect() })
}

/// Runs git in the chart's folder, whoever owns it.
async fn git(args: &[&str]) -> anyhow::Result<String> {
    let mut command = Command::new("git");
    command.args(["-c", "safe.directory=*"]).args(args).current_dir(folder());
    printed(command.output().await?)
}

/// Each is in the README's table, with its default, and for editors in the schema.
async fn each_value_is_explained(_: Arc<ControlPlane>) -> anyhow::Result<()> {
    let readme = Helm::offline()?.run(["show", "readme", "."]).await?;
    let values: Value = serde_saphyr::from_str(&fs::read_to_string(folder().join("values.yaml"))?)?;
    let schema: Value =
        serde_json::from_str(&fs::read_to_string(folder().join("values.schema.json"))?)?;
    let mut leaves = Vec::new();
    collect("", &values, &mut leaves);
    let rows: Vec<_> = readme.lines().filter(|line| line.contains("` | `")).collect();
    for (path, default) in &leaves {
        let begin = format!("| `{path}` | `{default}` | ");
        let row = rows.iter().find_map(|line| line.strip_prefix(&begin)?.strip_suffix(" |"));
        let Some(text) = row.filter(|text| !text.is_empty()) else {
            panic!("README.md has no row `| `{path}` | `{default}` | …`");
        };
        let pointer = format!("/properties/{}", path.replace('.', "/properties/"));
        let described = schema.pointer(&pointer).and_then(|value| value["description"].as_str());
        assert_eq!(described, Some(&*without_links(text)), "the description of `{path}`");
    }
    assert_eq!(rows.len(), leaves.len(), "rows of unknown values: {rows:#?}");
    Ok(())
}

/// A text of Markdown with the texts of its links only.
fn without_links(text: &str) -> String {
    let mut plain = String::new();
    let mut rest = text;
    while let Some((before, link)) = rest.split_once("](") {
        let (_, after) = link.split_once(')').expect("the end of a link");
        let (before, name) = before.rsplit_once('[').expect("the begin of a link");
        plain = plain + before + name;
        rest = after;
    }
    plain + rest
}

/// A map with fixed keys is split into its values; any other map is one value.
fn collect(path: &str, value: &Value, leaves: &mut Vec<(String, String)>) {
    let whole = ["resources", "dashboardLabels", "seccompProfile", "seLinuxOptions"];
    match value {
        Value::Object(map) if !map.is_empty() && !whole.iter().any(|name| path.ends_with(name)) => {
            for (name, value) in map {
                let dot = if path.is_empty() { "" } else { "." };
                collect(&format!("{path}{dot}{name}"), value, leaves);
            }
        }
        value => leaves.push((path.to_owned(), value.to_string())),
    }
}

async fn the_version_is_that_of_the_programs(_: Arc<ControlPlane>) -> anyhow::Result<()> {
    let chart: Value = serde_saphyr::from_str(&fs::read_to_string(folder().join("Chart.yaml"))?)?;
    assert_eq!(chart["appVersion"], env!("CARGO_PKG_VERSION"));
    // The oldest Kubernetes with DRA's stable API, and the one that is tested.
    let tested = binaries::kubernetes_version()?;
    let helm = Helm::offline()?;
    for (version, is_taken) in [("v1.33.9", false), ("v1.34.0", true), (tested, true)] {
        let args = ["template", "x", ".", "--set=image.registry=example.org", "--kube-version"];
        let taken = helm.run(args.into_iter().chain([version])).await;
        assert_eq!(taken.is_ok(), is_taken, "{version}: {taken:?}");
    }
    Ok(())
}
