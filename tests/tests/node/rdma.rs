//! InfiniBand NICs: character devices, variables and files, per claim.

use std::{collections::BTreeSet, sync::Arc};

use anyhow::Context;
use serde_json::json;
use tests::{
    ControlPlane, Scope,
    node::{Machine, pods, with_machine},
    suite::Test,
};

pub(crate) fn tests() -> Vec<Test> {
    let all = tests::tests![
        a_pod_sees_exactly_its_devices,
        a_container_with_two_claims_has_the_data_of_both,
        a_driver_that_dies_changes_nothing,
    ];
    all.into_iter().map(Test::alone).collect()
}

/// The GPUs of the machine. The file for NCCL has all of them if the claim has none.
const GPUS: usize = 4;

/// Sysfs of the machine shows all that the file has, so containers get it only where this is set.
const TOPOLOGY_FILE: [&str; 2] = ["--container-nccl-topo-file", "true"];

/// Two pods from one template: the scheduler gives each a NIC that our driver
/// published, and the runtime gives each the devices of that NIC.
async fn a_pod_sees_exactly_its_devices(plane: Arc<ControlPlane>) -> anyhow::Result<()> {
    with_machine(&plane, "rdma", &[], async |machine, scope| {
        machine.start_driver(&TOPOLOGY_FILE).await?;
        let seen = two_pods(scope, machine).await?;
        let all: BTreeSet<_> = seen.iter().flat_map(Told::devices).collect();
        // uverbs and umad of two virtual functions, and the one rdma_cm.
        assert_eq!(all.len(), 5, "{seen:?}");
        for told in &seen {
            let number = told.number();
            let expected =
                ["rdma_cm".to_owned(), format!("uverbs{number}"), format!("umad{number}")];
            assert_eq!(told.devices(), BTreeSet::from(expected));
            assert!(told.0.contains(&format!("ENV NCCL_IB_HCA==mlx5_{number}\n")), "{told:?}");
            assert!(told.0.contains(&format!("ENV UCX_NET_DEVICES=mlx5_{number}:1\n")), "{told:?}");
            let bus = number.parse::<u32>()? + 1;
            let own = format!("ENV DRANET_PCI_010{bus}_00_00_0=010{bus}:00:00.0\n");
            assert!(told.0.contains(&own), "{told:?}");
            assert!(told.0.contains(&format!("\"rdmaDevice\": \"mlx5_{number}\"")), "{told:?}");
            for line in [
                "ENV NCCL_TOPO_FILE=/etc/dranet/nccl-topology.xml\n",
                &format!("<pci busid=\"010{bus}:00:00.0\""),
                "/resourceclaimtemplates/nics/nics/dra.net-metadata.json\n",
                "\"apiVersion\": \"metadata.resource.k8s.io/v1beta1\"",
                &format!("\"string\": \"mlx5_{number}\""),
            ] {
                assert!(told.0.contains(line), "`{line}` is not in {told:?}");
            }
            let functions = told.0.matches("<pci ").count();
            assert_eq!(functions, 1 + GPUS, "no other NIC: {told:?}");
        }
        for pod in ["first", "second"] {
            pods::delete(scope, pod).await?;
        }
        Ok(())
    })
    .await
}

/// There is one file per path and one variable per name, whichever claim the runtime takes it from.
async fn a_container_with_two_claims_has_the_data_of_both(
    plane: Arc<ControlPlane>,
) -> anyhow::Result<()> {
    with_machine(&plane, "two", &[], async |machine, scope| {
        let flags = [&TOPOLOGY_FILE[..], &["--management-devices", "true"]].concat();
        machine.start_driver(&flags).await?;
        template(scope).await?;
        let claim = json!({"resourceClaimTemplateName": "one-nic"});
        let mut pod = serde_json::to_value(pods::pod("user", &machine.name, claim)?)?;
        let more = json!({"name": "more", "resourceClaimTemplateName": "one-nic"});
        let claims = pod["spec"]["resourceClaims"].as_array_mut().context("a list")?;
        claims.push(more);
        pod["spec"]["containers"][0]["resources"]["claims"] =
            json!([{"name": "nics"}, {"name": "more"}]);
        pods::create(scope, &serde_json::from_value(pod)?).await?;
        pods::running(scope, "user").await?;
        let told = Told(pods::told(scope, machine, "user").await?);
        // uverbs, umad and issm of two NICs, and the one rdma_cm.
        let devices = told.devices();
        assert_eq!(devices.len(), 7, "{told:?}");
        let numbers = devices.iter().filter_map(|name| name.strip_prefix("uverbs"));
        let names: Vec<_> = numbers.map(|number| format!("mlx5_{number}")).collect();
        let line = format!("ENV NCCL_IB_HCA=={}\n", names.join(","));
        assert!(told.0.contains(&line), "`{line}` is not in {told:?}");
        for name in &names {
            let line = format!("\"rdmaDevice\": \"{name}\"");
            assert_eq!(told.0.matches(&line).count(), 1, "`{line}` in {told:?}");
        }
        assert_eq!(told.0.matches("<pci ").count(), 2 + GPUS, "{told:?}");
        assert_eq!(told.0.matches("-metadata.json\n").count(), 2, "{told:?}");
        pods::delete(scope, "user").await
    })
    .await
}

/// Pods keep running while the driver is down. It continues with its former plans.
async fn a_driver_that_dies_changes_nothing(plane: Arc<ControlPlane>) -> anyhow::Result<()> {
    with_machine(&plane, "restart", &[], async |machine, scope| {
        machine.start_driver(&[]).await?;
        two_pods(scope, machine).await?;
        let before = machine.driver_files()?;
        machine.kill_driver();
        machine.start_driver(&[]).await?;
        assert_eq!(machine.driver_files()?, before);
        machine.restart_kubelet().await?;
        machine.restart_containerd().await?;
        for pod in ["first", "second"] {
            pods::running(scope, pod).await?;
        }
        // A pod that is deleted while the driver is down is undone when the driver is back.
        machine.kill_driver();
        let deleting =
            async { tokio::try_join!(pods::delete(scope, "first"), pods::delete(scope, "second")) };
        let (deleted, started) = tokio::join!(deleting, machine.start_driver(&[]));
        deleted?;
        started
    })
    .await
}

/// The output of a pod.
#[derive(Debug)]
struct Told(String);

impl Told {
    fn devices(&self) -> BTreeSet<String> {
        self.0.lines().filter_map(|line| line.strip_prefix("DEV ")).map(str::to_owned).collect()
    }

    fn number(&self) -> String {
        let devices = self.devices();
        let verbs = devices.iter().find_map(|name| name.strip_prefix("uverbs"));
        verbs.unwrap_or_default().to_owned()
    }
}

async fn template(scope: &Scope) -> anyhow::Result<()> {
    scope
        .apply_yaml(
            "
apiVersion: resource.k8s.io/v1
kind: ResourceClaimTemplate
metadata:
  name: one-nic
spec:
  spec:
    devices:
      requests:
      - name: nics
        exactly:
          deviceClassName: dranet.net
",
        )
        .await?;
    Ok(())
}

async fn two_pods(scope: &Scope, machine: &Machine) -> anyhow::Result<Vec<Told>> {
    template(scope).await?;
    let mut seen = Vec::new();
    for name in ["first", "second"] {
        let pod = pods::pod(name, &machine.name, json!({"resourceClaimTemplateName": "one-nic"}))?;
        pods::create(scope, &pod).await?;
        pods::running(scope, name).await?;
        seen.push(Told(pods::told(scope, machine, name).await?));
    }
    Ok(seen)
}
