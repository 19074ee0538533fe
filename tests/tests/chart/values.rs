//! The chart's values: each is explained, and a wrong one is refused with its path.

use std::{fs, sync::Arc};

use anyhow::Context;
use serde_json::Value;
use tests::{
    ControlPlane, binaries,
    chart::{Helm, folder},
    suite::Test,
};

pub(crate) fn tests() -> Vec<Test> {
    tests::tests![
        a_wrong_value_is_refused_with_its_path,
        values_without_effect_are_refused,
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
