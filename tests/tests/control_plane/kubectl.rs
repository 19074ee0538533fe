//! `kubectl dranet` on the real control plane: a snapshot gives the same answers as the
//! cluster it was taken from, and missing rights are named.

use std::{
    fs,
    io::{BufRead as _, BufReader, Read as _, Write as _},
    net::TcpStream,
    path::Path,
    process::{Child, Command, Output, Stdio},
    sync::Arc,
};

use std::{
    collections::VecDeque,
    time::{Duration, Instant},
};

use anyhow::Context;
use kube::config::Kubeconfig;
use serde_json::{Value, json};
use tests::{
    Check, ControlPlane, Scope, binaries, eventually, lines::joined, random::Random, setting,
    suite::Test,
};

use super::thin_line::{create, devices, gone, pod, with_installation};

const SOON: Duration = Duration::from_secs(30);

/// The maximum number of pods at a time.
const TOGETHER: usize = 5;

/// Every command that reads a cluster and needs no name.
const COMMANDS: &[&[&str]] = &[
    &["graph"],
    &["verify", "-A", "-o", "json"],
    &["verify", "-A", "-o", "wide"],
    &["capacity", "-o", "json"],
    &["lint", "-A"],
    &["doctor"],
    &["fabric", "-o", "yaml"],
    &["top", "-o", "wide"],
    &["pools"],
    &["version"],
];

/// More than one page of a list (`cluster_model::watch`).
const CLAIMS: usize = 120;

/// An unused claim.
const SPARE: &str = "
apiVersion: resource.k8s.io/v1
kind: ResourceClaim
metadata: {name: NAME}
spec: {devices: {requests: [{name: gpu, exactly: {deviceClassName: gpu.nvidia.com}}]}}
";

/// A component of the project, without running pods.
const ADMISSION: &str = "
apiVersion: apps/v1
kind: Deployment
metadata: {name: admission, labels: {app.kubernetes.io/part-of: dranet}}
spec:
  replicas: 0
  selector: {matchLabels: {app: admission}}
  template:
    metadata: {labels: {app: admission}}
    spec:
      serviceAccountName: admission
      containers: [{name: admission, image: none}]
";

/// The permissions that `doctor` checks.
const RIGHTS: &str = "
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: NAMESPACE}
rules:
- apiGroups: [resource.k8s.io]
  resources: [resourceclaimtemplates]
  verbs: [create]
- apiGroups: [resource.k8s.io]
  resources: [resourceslices]
  verbs: [watch]
- apiGroups: [topology.dranet.io]
  resources: [nodetopologies]
  verbs: [watch]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: NAMESPACE}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: NAMESPACE}
subjects: [{kind: ServiceAccount, name: admission, namespace: NAMESPACE}]
";

const DRIVERS: &str = r#"
apiVersion: v1
kind: ConfigMap
metadata: {name: dranet-drivers}
data:
  drivers.yaml: |
    accelerators:
    - {driver: absent.example.com, class: a, pciVendor: "1da3", pciClasses: ["1200"]}
"#;

pub(crate) fn tests() -> Vec<Test> {
    let all = tests::tests![
        a_snapshot_gives_the_answers_of_its_cluster,
        missing_permissions_are_named,
        doctor_names_missing_permissions_of_a_component,
        the_scheduler_does_what_explain_says,
        a_page_follows_the_cluster,
    ];
    all.into_iter().map(Test::alone).collect()
}

/// Runs the program to its end.
fn run(args: &[&str]) -> anyhow::Result<Output> {
    Ok(Command::new(binaries::ours("kubectl-dranet")?).args(args).output()?)
}

/// Its standard output and exit code.
fn answer(args: &[&str]) -> anyhow::Result<(String, Option<i32>)> {
    let Output { status, stdout, stderr } = run(args)?;
    let errors = String::from_utf8(stderr)?;
    anyhow::ensure!(matches!(status.code(), Some(0 | 3)), "{args:?}: {status}: {errors}");
    Ok((String::from_utf8(stdout)?, status.code()))
}

async fn a_snapshot_gives_the_answers_of_its_cluster(
    plane: Arc<ControlPlane>,
) -> anyhow::Result<()> {
    with_installation(Arc::clone(&plane), async |scope, _, _| {
        for name in ["a", "b"] {
            create(scope, pod(name, Some("2"))).await?;
            devices(scope, name).await?;
        }
        create(scope, pod("c", Some("1"))).await?;
        let kubeconfig = plane.kubeconfig().display().to_string();
        let live = ["--kubeconfig", &kubeconfig];
        devices(scope, "c").await?;
        for number in 0..CLAIMS {
            let name = format!("spare-{number}");
            scope.apply_yaml(&SPARE.replace("NAME", &name)).await?;
        }
        // As the chart writes its values.
        scope.apply_yaml(DRIVERS).await?;
        let file = plane.directory().join("cluster.gz").display().to_string();
        let (said, _) = answer(&[&["snapshot", "-o", &file], &live[..]].concat())?;
        assert!(said.contains("ResourceSlice") && said.contains("3 Pods"), "{said}");
        let claims =
            said.split(", ").find_map(|it| it.split_once(" ResourceClaims")?.0.parse().ok());
        assert!(claims.is_some_and(|claims: usize| claims >= CLAIMS), "{said}");
        let offline = ["--snapshot", &file];
        let namespace = scope.namespace();
        let explain: &[&str] = &["explain", "pod/a", "-n", namespace];
        let example = binaries::in_tests("../deploy/examples/aks-gb300/2nic-aligned.yaml");
        let example = example.display().to_string();
        let plan: &[&str] = &["plan", "-f", &example, "-o", "json"];
        let simulate: &[&str] = &["simulate", "-f", &example, "-o", "json"];
        for command in COMMANDS.iter().copied().chain([explain, plan, simulate]) {
            let answers = [&live[..], &offline].map(|source| answer(&[command, source].concat()));
            let [live, offline] = answers;
            let (live, offline) = (live?, offline?);
            let (live, offline) = (comparable(live), comparable(offline));
            assert_eq!(live, offline, "{command:?}");
            assert!(!live.0.is_empty(), "{command:?}");
        }
        let (found, _) = answer(&[&["doctor"], &offline[..]].concat())?;
        assert!(found.contains("absent.example.com"), "{found}");
        let (verified, code) = answer(&[&["verify", "-A"], &offline[..]].concat())?;
        assert!(verified.contains("3 pods with"), "{verified}");
        assert_eq!(code, Some(0), "{verified}");
        Ok(())
    })
    .await
}

/// An answer without the checks of `doctor` that need the cluster itself.
fn comparable((text, code): (String, Option<i32>)) -> (String, Option<i32>) {
    const LIVE: [&str; 4] = [
        "the webhook is called",
        "scheduler-ext answers",
        "rights of the service accounts",
        "kubelets place CPUs and memory",
    ];
    let lines = text.lines().filter(|line| !LIVE.iter().any(|check| line.contains(check)));
    (lines.collect::<Vec<_>>().join("\n"), code)
}

async fn missing_permissions_are_named(plane: Arc<ControlPlane>) -> anyhow::Result<()> {
    with_installation(Arc::clone(&plane), async |_, _, _| {
        let path = plane.directory().join("nobody.kubeconfig");
        as_nobody(&plane.kubeconfig(), &path)?;
        let path = path.display().to_string();
        for (command, right) in [
            (&["top"][..], "nodes, "),
            (&["capacity"], "resourceslices.resource.k8s.io"),
            (&["verify", "-A"], "resourceclaims.resource.k8s.io"),
            (&["version"], "list deployments.apps in namespace `dranet-system`"),
            (&["doctor"], "list nodetopologies.topology.dranet.io in the whole cluster"),
        ] {
            let output = run(&[command, &["--kubeconfig", &path]].concat())?;
            let errors = String::from_utf8(output.stderr)?;
            let is_unknown = errors.contains("the answer is not known: you may not list ");
            if matches!(command, ["version" | "doctor"]) {
                assert!(errors.contains(&format!("note: you may not {right}, so ")), "{errors}");
                assert!(matches!(output.status.code(), Some(0 | 3)), "{errors}");
                let text = String::from_utf8(output.stdout)?;
                assert!(!text.is_empty() && !text.contains('✓'), "nothing was checked: {text}");
            } else {
                assert!(is_unknown && errors.contains(right), "{errors}");
                assert_eq!(output.status.code(), Some(1), "{errors}");
            }
        }
        Ok(())
    })
    .await
}

/// One of two Deployments runs as the service account that the chart grants permissions to.
async fn doctor_names_missing_permissions_of_a_component(
    plane: Arc<ControlPlane>,
) -> anyhow::Result<()> {
    with_installation(Arc::clone(&plane), async |scope, _, _| {
        let kubeconfig = plane.kubeconfig().display().to_string();
        let namespace = scope.namespace();
        let doctor = || {
            let args = ["doctor", "--admission-namespace", namespace];
            answer(&[&args[..], &["--kubeconfig", &kubeconfig]].concat())
        };
        let lacks = "error: service account {namespace}/admission of admission may not create \
                     resourceclaimtemplates.resource.k8s.io, so annotated pods are admitted and wait";
        let lacks = lacks.replace("{namespace}", namespace);
        scope.apply_yaml(ADMISSION).await?;
        let (text, code) = doctor()?;
        assert!(joined(&text).contains(&lacks), "{text}");
        assert_eq!(code, Some(3), "{text}");
        scope.apply_yaml(&RIGHTS.replace("NAMESPACE", namespace)).await?;
        eventually(SOON, async || {
            let (text, _) = doctor()?;
            Ok(Check::that(!text.contains("error: service account"), || text.clone()))
        })
        .await
    })
    .await
}

/// Random pods come and go. Each is explained before it is created. It must then be bound to one of
/// the nodes on which it fits, stay pending if it fits nowhere, or be denied as predicted. The
/// smallest change that explain suggests, to its annotations or to devices in use, must let it run.
async fn the_scheduler_does_what_explain_says(plane: Arc<ControlPlane>) -> anyhow::Result<()> {
    with_installation(Arc::clone(&plane), async |scope, _, _| {
        let kubeconfig = plane.kubeconfig().display().to_string();
        let file = plane.directory().join("asked.json").display().to_string();
        let explain = |pod: &Value| -> anyhow::Result<Value> {
            fs::write(&file, pod.to_string())?;
            let namespace = scope.namespace();
            let args = ["explain", "-f", &file, "-n", namespace, "-o", "json"];
            let (text, _) = answer(&[&args[..], &["--kubeconfig", &kubeconfig]].concat())?;
            Ok(serde_json::from_str(&text)?)
        };
        let mut random = Random(0xc11);
        let mut alive = VecDeque::new();
        let (mut bound, mut pending, mut denied, mut changed) = (0, 0, 0, 0);
        for number in 0..setting("DRANET_EXPLAINED_PODS", 40)? {
            while alive.len() > random.below(TOGETHER) {
                let name: String = alive.pop_front().context("it is not empty")?;
                scope.delete_pod(&name).await?;
                gone(scope, &name).await?;
            }
            let name = format!("random-{number:03}");
            let asked = asked(&name, &mut random);
            let said = explain(&asked)?;
            if said["refused"].is_string() {
                let made = create(scope, serde_json::from_value(asked.clone())?).await;
                anyhow::ensure!(
                    made.is_err(),
                    "{asked} was created, but the prediction was: {said}"
                );
                denied += 1;
                continue;
            }
            agree(scope, &name, &asked, &said).await?;
            if said["fits"] != json!([]) {
                bound += 1;
                alive.push_back(name);
                continue;
            }
            pending += 1;
            scope.delete_pod(&name).await?;
            gone(scope, &name).await?;
            let Some(change) = said["changes"][0]["change"].as_str() else { continue };
            let mut other = asked.clone();
            if let Some((key, value)) = change.split_once(": \"") {
                other["metadata"]["annotations"][key] = value.trim_end_matches('"').into();
            }
            for holder in holders(change) {
                scope.delete_pod(holder).await?;
                gone(scope, holder).await?;
                alive.retain(|name| name != holder);
            }
            create(scope, serde_json::from_value(other)?).await?;
            scope.bound(&name, SOON).await.with_context(|| format!("{asked}: {said}"))?;
            changed += 1;
            alive.push_back(name);
        }
        report(&format!(
            "{bound} bound, {pending} pending, {denied} denied; {changed} by the change named first"
        ));
        assert!(bound > 0 && pending > 0 && denied > 0, "{bound} {pending} {denied}");
        assert!(changed > 0, "no change was named for {pending} pods");
        Ok(())
    })
    .await
}

/// The pods whose claims release their devices in a change, `when … default/a of pod train, …`.
fn holders(change: &str) -> impl Iterator<Item = &str> {
    let names = change.split(" of pod ").skip(1);
    names.map(|rest| rest.split([',', ' ']).next().unwrap_or_default())
}

#[expect(clippy::print_stderr, reason = "the counts are worth reading")]
fn report(line: &str) {
    eprintln!("{line}");
}

/// Creates the pod, and checks that the scheduler does what was predicted.
async fn agree(scope: &Scope, name: &str, asked: &Value, said: &Value) -> anyhow::Result<()> {
    create(scope, serde_json::from_value(asked.clone())?).await?;
    let fits: Vec<&str> =
        said["fits"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    if fits.is_empty() {
        scope.unschedulable(name, SOON).await.with_context(|| format!("{asked}: {said}"))?;
        return Ok(());
    }
    let made = scope.bound(name, SOON).await.with_context(|| format!("{asked}: {said}"))?;
    let node = made.spec.and_then(|spec| spec.node_name).context("it is bound")?;
    anyhow::ensure!(
        fits.contains(&node.as_str()),
        "{asked} is on {node}, but the prediction was: {said}"
    );
    Ok(())
}

/// A pod that requests a few GPUs and NICs, aligned or not.
fn asked(name: &str, random: &mut Random) -> Value {
    let gpus = [1, 1, 2, 4][random.below(4)];
    let nics = [1, 1, 2, 2, 3, 4][random.below(6)];
    let mut annotations = json!({
        "dranet.io/aligned-nics": nics.to_string(),
        "dranet.io/gpus": gpus.to_string(),
    });
    if random.below(3) == 0 {
        annotations["dranet.io/alignment-policy"] = "preferred".into();
    }
    if random.below(3) == 0 {
        annotations["dranet.io/pairing"] = "group".into();
    }
    json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": { "name": name, "annotations": annotations },
        "spec": { "containers": [{ "name": "nccl", "image": "nccl" }] },
    })
}

/// Writes a kubeconfig of a user without permissions.
fn as_nobody(admin: &Path, to: &Path) -> anyhow::Result<()> {
    let mut config = Kubeconfig::read_from(admin)?;
    let user = config.auth_infos.first_mut().context("it has a user")?;
    let info = user.auth_info.as_mut().context("the user has credentials")?;
    info.impersonate = Some("nobody".to_owned());
    Ok(fs::write(to, serde_json::to_string(&config)?)?)
}

/// A running `kubectl dranet ui`; it ends with the value.
struct Page {
    child: Child,
    /// Host and port.
    address: String,
    token: String,
}

impl Page {
    fn start(plane: &ControlPlane) -> anyhow::Result<Self> {
        let mut child = Command::new(binaries::ours("kubectl-dranet")?)
            .args(["ui", "--kubeconfig"])
            .arg(plane.kubeconfig())
            .stdout(Stdio::piped())
            .spawn()?;
        let mut line = String::new();
        let stdout = child.stdout.take().context("standard output is a pipe")?;
        BufReader::new(stdout).read_line(&mut line)?;
        let address = line.trim().strip_prefix("http://").context("it prints its address")?;
        let (address, token) = address.split_once("/?token=").context("with a token")?;
        Ok(Self { child, address: address.to_owned(), token: token.to_owned() })
    }

    /// Sends a request; the answer can be read line by line.
    fn get(&self, path: &str) -> anyhow::Result<BufReader<TcpStream>> {
        let mut stream = TcpStream::connect(&self.address)?;
        stream.set_read_timeout(Some(SOON))?;
        let Self { token, .. } = self;
        write!(
            stream,
            "GET {path}token={token} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
        )?;
        Ok(BufReader::new(stream))
    }

    /// The data of the page.
    fn data(&self) -> anyhow::Result<Value> {
        let mut page = String::new();
        self.get("/?")?.read_to_string(&mut page)?;
        let (_, data) = page.split_once("type=\"application/json\">").context("it has data")?;
        let (data, _) = data.split_once("</script>").context("which end")?;
        Ok(serde_json::from_str(data)?)
    }
}

impl Drop for Page {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The page of `ui` shows what `top` shows, and is told of the nodes that change, and of no others.
async fn a_page_follows_the_cluster(plane: Arc<ControlPlane>) -> anyhow::Result<()> {
    with_installation(Arc::clone(&plane), async |scope, _, nodes| {
        let page = Page::start(&plane)?;
        let data = page.data()?;
        let shown = data["nodes"].as_array().context("nodes")?;
        let free: Vec<_> = shown.iter().map(|node| (&node["name"], &node["devices"])).collect();
        anyhow::ensure!(free.iter().all(|(_, devices)| *devices == "ffffffff"), "{free:?}");
        anyhow::ensure!(free.len() == nodes.len(), "{free:?}");

        let mut events = page.get(&format!("/events?since={}&", data["revision"]))?;
        create(scope, pod("a", Some("2"))).await?;
        let got = devices(scope, "a").await?;
        let node = got.first().context("it has devices")?.node.clone();
        let end = Instant::now() + SOON;
        let held = loop {
            anyhow::ensure!(Instant::now() < end, "no event shows the devices of the pod");
            let mut line = String::new();
            anyhow::ensure!(events.read_line(&mut line)? > 0, "the events ended");
            let Some(update) = line.strip_prefix("data: ") else { continue };
            let update: Value = serde_json::from_str(update)?;
            let changed = update["nodes"].as_array().context("nodes")?.clone();
            let other = changed.iter().find(|changed| changed["name"] != node.as_str());
            anyhow::ensure!(other.is_none(), "a node that did not change: {other:?}");
            let held = changed.into_iter().find(|node| node["pods"][0]["pairs"].is_array());
            if let Some(held) = held {
                break held;
            }
        };
        let letters = held["devices"].as_str().unwrap_or_default();
        anyhow::ensure!(letters.matches('h').count() == got.len(), "{held}");
        anyhow::ensure!(held["pods"][0]["name"] == format!("{}/a", scope.namespace()), "{held}");
        Ok(())
    })
    .await
}
