//! The output of helm for the chart.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::Path,
    sync::Arc,
    time::Duration,
};

use anyhow::Context;
use cluster_model::drivers::DriversFile;
use kube::{ResourceExt, api::DynamicObject};
use serde_json::Value;
use tests::{
    ControlPlane, binaries,
    chart::{self, Helm, PLATFORMS, printed},
    manifest,
    suite::Test,
};
use tokio::process::Command;

const SOON: Duration = Duration::from_secs(30);

pub(crate) fn tests() -> Vec<Test> {
    tests::tests![
        helm_lint_passes,
        the_plain_manifests_are_what_the_chart_renders,
        each_flag_is_known_to_its_program,
        each_choice_leaves_out_what_it_does_not_need,
        nodes_that_node_feature_discovery_has_not_seen_are_kept,
        kubectl_builds_the_documented_overlay,
        metrics_are_closed_by_default,
        every_program_gets_the_drivers_file,
    ]
}

/// The file has the values, and its programs are replaced when it changes.
async fn every_program_gets_the_drivers_file(_: Arc<ControlPlane>) -> anyhow::Result<()> {
    let entry = "drivers.accelerators[0]";
    let values = [
        format!("--set={entry}.driver=gaudi.intel.com"),
        format!("--set={entry}.class=gaudi.intel.com"),
        format!("--set-string={entry}.pciVendor=1da3"),
        format!("--set-string={entry}.pciClasses[0]=1200"),
        format!("--set={entry}.address=deviceName"),
    ];
    let mut checksums = BTreeMap::new();
    for (other, extender) in [("a", "kubeadm"), ("a", "dedicated"), ("b", "dedicated")] {
        let extender = format!("--set=scheduler.extender={extender}");
        let other = format!("--set=drivers.nics[0].driver={other}.example.com");
        let mut flags: Vec<&str> = values.iter().map(String::as_str).collect();
        flags.extend([&*extender, &*other, "--set=drivers.nics[0].classes[0]=fast"]);
        let objects = Helm::offline()?.template(&flags).await?;
        let file = objects.iter().find(|it| it.name_any() == "dranet-drivers");
        let file = file.and_then(|it| it.data["data"]["drivers.yaml"].as_str());
        let file = DriversFile::parse(file.context("no ConfigMap")?)?;
        assert_eq!((file.accelerators.len(), file.nics.len()), (1, 1));
        let mut programs = BTreeSet::new();
        for object in &objects {
            let pod = &object.data["spec"]["template"];
            let text = pod.to_string();
            let name = object.name_any();
            // The writer of the authority reads no devices.
            if !text.contains("--operations-listen") || name == "admission-authority" {
                continue;
            }
            assert!(text.contains("--drivers=/etc/dranet-drivers/drivers.yaml"), "{name}");
            assert!(text.contains("\"mountPath\":\"/etc/dranet-drivers\""), "{name}");
            assert!(text.contains("\"configMap\":{\"name\":\"dranet-drivers\"}"), "{name}");
            let checksum = &pod["metadata"]["annotations"]["checksum/drivers"];
            let checksum = checksum.as_str().context("no checksum")?.to_owned();
            checksums.entry(other.clone()).or_insert_with(BTreeSet::new).insert(checksum);
            programs.insert(name);
        }
        assert_eq!(programs.len(), 4, "{programs:?}");
    }
    assert!(checksums.values().all(|of_file| of_file.len() == 1), "{checksums:?}");
    let all: BTreeSet<_> = checksums.values().flatten().collect();
    assert_eq!(all.len(), 2, "another file has another checksum");
    Ok(())
}

/// Network policies admit nobody to the port of metrics, and the driver, which is on the host's
/// network, does not listen there, unless someone is named or a monitor is set.
async fn metrics_are_closed_by_default(_: Arc<ControlPlane>) -> anyhow::Result<()> {
    let named = "--set=networkPolicy.metricsFrom[0].podSelector.matchLabels.app=prometheus";
    for (flags, is_open, address) in [
        (vec![], false, "127.0.0.1"),
        (vec![named], true, "127.0.0.1"),
        (vec!["--set=monitoring.monitor=PodMonitor"], true, "0.0.0.0"),
        (vec!["--set=nodeDriver.operationsAddress=192.0.2.1"], false, "192.0.2.1"),
        (vec!["--set=nodeDriver.operationsAddress=fd00::1"], false, "[fd00::1]"),
    ] {
        let objects = Helm::offline()?.template(&flags).await?;
        let of_kind = |kind: &str| {
            let is_kind =
                |it: &&DynamicObject| it.types.as_ref().is_some_and(|types| types.kind == kind);
            objects.iter().filter(is_kind).collect::<Vec<_>>()
        };
        for policy in of_kind("NetworkPolicy") {
            let ingress = policy.data["spec"]["ingress"].to_string();
            let name = policy.name_any();
            assert_eq!(ingress.contains("9178"), is_open, "{flags:?}: {name}: {ingress}");
            assert_eq!(ingress.contains("10250"), name == "admission", "{flags:?}: {ingress}");
        }
        let [driver] = of_kind("DaemonSet")[..] else { anyhow::bail!("{flags:?}") };
        let flag = format!("\"--operations-listen={address}:9178\"");
        assert!(driver.data.to_string().contains(&flag), "{flags:?}: {flag}");
    }
    Ok(())
}

/// With each component in turn. The overlay renames all images.
async fn kubectl_builds_the_documented_overlay(_: Arc<ControlPlane>) -> anyhow::Result<()> {
    let page = fs::read_to_string(binaries::in_tests("../docs/start/install.md"))?;
    let mut blocks = page.split("```yaml\n").filter_map(|rest| Some(rest.split_once("```")?.0));
    let overlay = blocks.find(|block| block.contains("kind: Kustomization"));
    let overlay = overlay.context("the page has an overlay")?;
    let folder = tempfile::tempdir()?;
    chart::copy(&binaries::in_tests("../deploy"), &folder.path().join("deploy"))?;
    let own = folder.path().join("overlay");
    fs::create_dir(&own)?;
    for component in fs::read_dir(folder.path().join("deploy/components"))? {
        let name = component?.file_name().to_string_lossy().into_owned();
        let documented = "components/kubeadm-scheduler";
        anyhow::ensure!(overlay.contains(documented), "the overlay has no component");
        let text = overlay.replace(documented, &format!("components/{name}"));
        fs::write(own.join("kustomization.yaml"), text)?;
        let kubectl = binaries::kubernetes("kubectl")?;
        let built = Command::new(kubectl).arg("kustomize").arg(&own).output().await?;
        let objects = printed(built).with_context(|| name.clone())?;
        assert!(objects.contains("image: REGISTRY/node-driver:"), "{name}");
        assert!(!objects.contains("image: dranet/"), "{name} has an image that was not renamed");
    }
    Ok(())
}

async fn helm_lint_passes(_: Arc<ControlPlane>) -> anyhow::Result<()> {
    let helm = Helm::offline()?;
    for (platform, values) in PLATFORMS {
        let fixed = ["lint", ".", "--strict", "--set=image.registry=example.org/dranet"];
        let said = helm.run(fixed.iter().chain(values)).await.context(platform)?;
        assert!(said.contains("0 chart(s) failed"), "{platform}: {said}");
    }
    Ok(())
}

/// Compares the output of the script that renders them, file by file.
async fn the_plain_manifests_are_what_the_chart_renders(
    _: Arc<ControlPlane>,
) -> anyhow::Result<()> {
    let made = tempfile::tempdir()?;
    let deploy = binaries::in_tests("../deploy");
    let rendered = Command::new(deploy.join("render"))
        .arg(made.path())
        .env("HELM", binaries::chart_tool("helm")?)
        .output()
        .await?;
    printed(rendered)?;
    for folder in [
        "manifests",
        "components/dranet-scheduler",
        "components/fabric-evict",
        "components/kubeadm-scheduler",
        "components/nri",
        "components/pod-groups",
        "components/preemption",
    ] {
        let (expected, there) = (texts(&made.path().join(folder))?, texts(&deploy.join(folder))?);
        let names = |texts: &BTreeMap<String, String>| texts.keys().cloned().collect::<Vec<_>>();
        assert_eq!(names(&there), names(&expected), "deploy/{folder}; run deploy/render");
        for (name, expected) in expected {
            assert_eq!(there[&name], expected, "deploy/{folder}/{name}; run deploy/render");
        }
    }
    Ok(())
}

/// The rendered files of a folder.
fn texts(folder: &Path) -> anyhow::Result<BTreeMap<String, String>> {
    let mut texts = BTreeMap::new();
    for entry in fs::read_dir(folder)? {
        let name = entry?.file_name().into_string().ok().context("a name is text")?;
        if name != "kustomization.yaml" {
            texts.insert(name.clone(), fs::read_to_string(folder.join(name))?);
        }
    }
    Ok(texts)
}

/// Each program reads its flags in order and stops at `--help`. It refuses unknown flags and
/// invalid values before that.
async fn each_flag_is_known_to_its_program(plane: Arc<ControlPlane>) -> anyhow::Result<()> {
    let helm = Helm::offline()?;
    let mut tried = BTreeSet::new();
    for (platform, values) in PLATFORMS {
        for object in helm.template(values).await.context(platform)? {
            for container in containers(&object) {
                let Some((program, args)) = ours(container) else { continue };
                if !tried.insert((program.clone(), args.clone())) {
                    continue;
                }
                let process = plane.program(&program)?.named(&format!("{program}-help"));
                let process = process.env("NODE_NAME", "node").args(args).args(["--help"]);
                let said = process.spawn()?.wait_for_success(SOON).await;
                let said = said.with_context(|| format!("{program} of {platform}"))?;
                assert!(said.contains("Usage: "), "{program} of {platform}: {said}");
            }
        }
    }
    let programs: BTreeSet<_> = tried.iter().map(|(program, _)| program.as_str()).collect();
    assert_eq!(
        programs,
        BTreeSet::from([
            "admission",
            "fabric-controller",
            "node-driver",
            "preemptor",
            "scheduler-ext"
        ])
    );
    Ok(())
}

/// The containers of an object's pods.
fn containers(object: &DynamicObject) -> &[Value] {
    let containers = object.data.pointer("/spec/template/spec/containers");
    containers.and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

/// The program and flags of a container, if its image is one of this project.
fn ours(container: &Value) -> Option<(String, Vec<String>)> {
    let image = container["image"].as_str()?.strip_prefix("example.org/dranet/")?;
    let program = image.split([':', '@']).next()?.to_owned();
    let args = container["args"].as_array()?.iter();
    Some((program, args.filter_map(|arg| Some(arg.as_str()?.to_owned())).collect()))
}

/// No permission, pod or policy without a use.
async fn each_choice_leaves_out_what_it_does_not_need(_: Arc<ControlPlane>) -> anyhow::Result<()> {
    let helm = Helm::offline()?;
    let text = async |values: &[&str]| helm.rendered(values).await;
    for (what, without, with) in [
        ("pods/eviction", &[][..], &["--set=fabricController.fullFabric=evict"][..]),
        (
            "For kube-scheduler, to place a group on one fabric",
            &[],
            &["--set=fabricController.podGroups=true"],
        ),
        ("name: preemptor", &[], &["--set=preemption.enabled=true"]),
        (
            "resourceclaims/binding",
            &["--set=preemption.enabled=true", "--set=preemption.keep=rules"],
            &["--set=preemption.enabled=true"],
        ),
        (
            "preemptor-evict.dranet.io",
            &["--set=preemption.enabled=true", "--set=preemption.dryRun=true"],
            &["--set=preemption.enabled=true"],
        ),
        (
            "request.namespace in ['team','other']",
            &["--set=preemption.enabled=true"],
            &["--set=preemption.enabled=true", "--set=preemption.victims.namespaces={team,other}"],
        ),
        ("--write-authority", &["--set=admission.certificate.source=cert-manager"], &[]),
        ("name: admission-certificates", &["--set=admission.certificate.source=cert-manager"], &[]),
        ("SYS_ADMIN", &["--values=platforms/topology.yaml"], &[]),
        ("hostPath", &["--values=platforms/topology.yaml"], &[]),
        ("resourceclaims/status", &["--values=platforms/topology.yaml"], &[]),
        ("/var/run/nri", &[], &["--set=nodeDriver.attach=nri"]),
        (
            "runbook_url: https://docs.example.com/dranet/operate/nic-down.html",
            &["--set=monitoring.monitor=PodMonitor", "--set=monitoring.rules=true"],
            &[
                "--set=monitoring.monitor=PodMonitor",
                "--set=monitoring.rules=true",
                "--set=monitoring.runbooks=https://docs.example.com/dranet",
            ],
        ),
        ("kind: DeviceClass", &["--values=platforms/topology.yaml"], &[]),
        ("--scheduler-name", &[], &["--set=scheduler.extender=dedicated"]),
        ("scheduler-ext", &[], &["--set=scheduler.extender=kubeadm"]),
        (
            "Where NICs are bound late: how many GPUs",
            &["--set=scheduler.extender=kubeadm"],
            &["--set=scheduler.extender=kubeadm", "--set=nodeDriver.bindNics=late"],
        ),
        (
            "--watch-pods",
            &["--set=scheduler.extender=dedicated"],
            &["--set=scheduler.extender=dedicated", "--set=nodeDriver.lateNodes[0].pool=late"],
        ),
        ("network-config.dranet.io", &["--set=networkConfig.namespaces={*}"], &[]),
        ("kind: Namespace", &[], &["--set=namespace.create=true"]),
        ("helm.sh/resource-policy: keep", &[], &["--set=crd.keep=true"]),
    ] {
        assert!(!text(without).await?.contains(what), "`{what}` with {without:?}");
        assert!(text(with).await?.contains(what), "`{what}` with {with:?}");
    }
    Ok(())
}

/// Alternatives: the label of a NIC, or no label at all.
async fn nodes_that_node_feature_discovery_has_not_seen_are_kept(
    _: Arc<ControlPlane>,
) -> anyhow::Result<()> {
    let rendered = Helm::offline()?.rendered(&["--set=nodeDriver.nfd.enabled=true"]).await?;
    let objects = manifest::parse(&rendered)?;
    let driver = objects.iter().find(|object| {
        object.name_any() == "node-driver"
            && object.types.as_ref().is_some_and(|types| types.kind == "DaemonSet")
    });
    let terms = driver.context("the driver")?.data.pointer(
        "/spec/template/spec/affinity/nodeAffinity/requiredDuringSchedulingIgnoredDuringExecution\
         /nodeSelectorTerms",
    );
    let terms = serde_saphyr::to_string(terms.context("alternatives")?)?;
    insta::assert_snapshot!(terms, @r#"
    - matchExpressions:
      - key: feature.node.kubernetes.io/pci-15b3.present
        operator: In
        values:
        - "true"
    - matchExpressions:
      - key: feature.node.kubernetes.io/kernel-version.full
        operator: DoesNotExist
    "#);
    Ok(())
}
