//! The component `dranet-scheduler`: its objects on a real API server, and kube-scheduler
//! and the extender run with its configuration, its flags and the rights of its account.

use std::{collections::BTreeMap, fs, path::Path, sync::Arc, time::Duration};

use anyhow::Context;
use k8s_openapi::api::{apps::v1::Deployment, core::v1::ConfigMap};
use kube::{Api, Client};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tests::{
    ControlPlane, Process, Program, Scope, binaries, installation::Installation, manifest, ports,
    suite::Test, with_scope,
};

use super::thin_line::{assert_aligned, create, devices, pod};

const NAMESPACE: &str = "dranet-system";
const NAME: &str = "dranet-scheduler";
const READY: Duration = Duration::from_mins(1);

pub(crate) fn tests() -> Vec<Test> {
    let all = tests::tests![the_own_scheduler_schedules_with_the_rights_of_its_account];
    all.into_iter().map(Test::alone).collect()
}

async fn the_own_scheduler_schedules_with_the_rights_of_its_account(
    plane: Arc<ControlPlane>,
) -> anyhow::Result<()> {
    with_scope(plane.client(), async |scope| {
        let mut installation = Installation::install(&plane, scope).await?;
        // Without the rule for an extender in a pod of its own: this account also writes what
        // kube-scheduler says.
        installation.apply("manifests/events-policy.yaml").await?;
        for name in ["one", "two"] {
            installation.gb300(name).await?;
        }
        install(scope).await?;
        let deployed = Deployed::read(plane.client()).await?;
        let kubeconfig = installation.kubeconfig("scheduler-ext").await?;
        let extender_port = ports::free()?;
        let _extender = deployed
            .start_extender(&plane, &kubeconfig.display().to_string(), extender_port)
            .await?;
        let scheduler = deployed.start_scheduler(&plane, &kubeconfig, extender_port).await?;
        installation.start_replicas(1, &[&format!("--scheduler-name={NAME}")]).await?;
        for name in ["a", "b"] {
            let made = create(scope, pod(name, Some("2"))).await?;
            let wanted = made.spec.and_then(|spec| spec.scheduler_name);
            assert_eq!(wanted.as_deref(), Some(NAME));
            assert_aligned(&devices(scope, name).await?, 2);
        }
        let log = scheduler.tail(usize::MAX);
        for refused in ["forbidden", "Unauthorized", "cannot list", "cannot get"] {
            let line = log.lines().find(|line| line.contains(refused));
            anyhow::ensure!(line.is_none(), "kube-scheduler: {}", line.unwrap_or_default());
        }
        Ok(())
    })
    .await
}

/// Creates every object of the component, checked by the API server field by field. The pods of the
/// Deployment are processes here.
async fn install(scope: &Scope) -> anyhow::Result<()> {
    for file in ["dranet-scheduler-rbac.yaml", "dranet-scheduler.yaml"] {
        let path = binaries::in_tests("../deploy/components/dranet-scheduler").join(file);
        for mut object in manifest::read(&path)? {
            manifest::check(&scope.client(), &object, NAMESPACE).await?;
            if object.types.as_ref().is_some_and(|types| types.kind == "Deployment") {
                object.data["spec"]["replicas"] = 0.into();
            }
            scope.apply(object).await?;
        }
    }
    let daemon_set =
        binaries::in_tests("../deploy/components/kubeadm-scheduler/scheduler-ext.yaml");
    for object in manifest::read(&daemon_set)? {
        manifest::check(&scope.client(), &object, NAMESPACE).await?;
    }
    Ok(())
}

/// The objects of the component on the API server.
struct Deployed {
    config: Value,
    /// The arguments of each container.
    args: BTreeMap<String, Vec<String>>,
}

impl Deployed {
    async fn read(client: Client) -> anyhow::Result<Self> {
        let config: ConfigMap = get(client.clone()).await?;
        let text = config.data.and_then(|mut data| data.remove("config.yaml"));
        let deployment: Deployment = get(client).await?;
        let pod = deployment.spec.template.spec.context("it has pods")?;
        let args = pod.containers.into_iter().map(|container| {
            let command = container.command.into_iter().chain(container.args).flatten();
            (container.name, command.collect())
        });
        let config = serde_saphyr::from_str(&text.context("it has a config.yaml")?)?;
        Ok(Self { config, args: args.collect() })
    }

    fn args(&self, container: &str) -> anyhow::Result<&[String]> {
        self.args.get(container).map(Vec::as_slice).with_context(|| format!("no `{container}`"))
    }

    /// Starts the extender with the flags of its container, except for its ports.
    async fn start_extender(
        &self,
        plane: &ControlPlane,
        kubeconfig: &str,
        port: u16,
    ) -> anyhow::Result<Process> {
        let operations = ports::free()?;
        let own = ["--listen=", "--operations-listen="];
        let flags = self.args("scheduler-ext")?.iter();
        let flags = flags.filter(|flag| !own.iter().any(|own| flag.starts_with(own)));
        let process = plane
            .program("scheduler-ext")?
            .named("own-scheduler-ext")
            .args(flags.cloned())
            .args([format!("--listen=127.0.0.1:{port}")])
            .args([format!("--operations-listen=127.0.0.1:{operations}")])
            .args([format!("--kubeconfig={kubeconfig}")])
            .spawn()?;
        let ready = format!("http://127.0.0.1:{operations}/readyz");
        process.wait_until_ready(&ready, READY).await?;
        Ok(process)
    }

    /// Starts kube-scheduler with the configuration of the ConfigMap, except for the API server's
    /// address, which a pod has from its environment, and the extender's port.
    async fn start_scheduler(
        &self,
        plane: &ControlPlane,
        kubeconfig: &Path,
        extender: u16,
    ) -> anyhow::Result<Process> {
        let [program, flags @ ..] = self.args("kube-scheduler")? else {
            anyhow::bail!("its container has no command");
        };
        anyhow::ensure!(flags.len() == 1 && flags[0].starts_with("--config="), "{flags:?}");
        let mut config = self.config.clone();
        config["clientConnection"] = json!({"kubeconfig": kubeconfig});
        let url = config["extenders"][0]["urlPrefix"].as_str().context("an extender")?;
        anyhow::ensure!(
            self.args("scheduler-ext")?
                .iter()
                .any(|flag| { flag.strip_prefix("--listen=") == url.strip_prefix("http://") }),
            "no process listens on {url}"
        );
        config["extenders"][0]["urlPrefix"] = format!("http://127.0.0.1:{extender}").into();
        let file = plane.directory().join("own-scheduler.yaml");
        fs::write(&file, config.to_string())?;
        let port = ports::free()?;
        let kubeconfig = kubeconfig.display();
        let process = Program::new(binaries::kubernetes(program)?, plane.logs())
            .named("own-kube-scheduler")
            .args([format!("--config={}", file.display()), "-v=2".into()])
            .args([format!("--authentication-kubeconfig={kubeconfig}")])
            .args([format!("--authorization-kubeconfig={kubeconfig}")])
            .args(["--bind-address=127.0.0.1".into(), format!("--secure-port={port}")])
            .spawn()?;
        process.wait_until_ready(&format!("https://127.0.0.1:{port}/readyz"), READY).await?;
        Ok(process)
    }
}

async fn get<K>(client: Client) -> anyhow::Result<K>
where
    K: kube::Resource<Scope = k8s_openapi::NamespaceResourceScope, DynamicType = ()>,
    K: Clone + DeserializeOwned + std::fmt::Debug,
{
    Ok(Api::namespaced(client, NAMESPACE).get(NAME).await?)
}
