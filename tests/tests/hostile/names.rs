//! Names that tenants write on their pods, and that programs look up.

use std::{sync::Arc, time::Duration};

use k8s_openapi::api::core::v1::Pod;
use kube::api::{ListParams, PostParams};
use serde_json::json;
use tests::{Check, ControlPlane, eventually, installation::Installation, suite::Test, with_scope};

const SOON: Duration = Duration::from_mins(1);
/// The number of groups, each with such a name.
const GROUPS: usize = 100;
const NAMES: [&str; 5] = ["bad name", "mine?watch=true", "../pods/p", "a/b%2fc", "a\nWARN forged"];

pub(crate) fn tests() -> Vec<Test> {
    let all = tests::attempts![names_of_jobs_that_cannot_exist_flood_no_log];
    all.into_iter().map(Test::alone).collect()
}

async fn names_of_jobs_that_cannot_exist_flood_no_log(
    plane: Arc<ControlPlane>,
) -> anyhow::Result<String> {
    with_scope(plane.client(), async |scope| {
        let mut installation = Installation::install(&plane, scope).await?;
        for index in 0..GROUPS {
            let name = format!("{} {index}", NAMES[index % NAMES.len()]);
            // As admission admits it, which is not asked here.
            let pod: Pod = serde_json::from_value(json!({
                "metadata": {
                    "name": format!("p{index}"),
                    "labels": {"dranet.io/fabric-group": format!("{index:016x}")},
                    "annotations": {
                        "dranet.io/fabric": "same", "jobset.sigs.k8s.io/jobset-name": name,
                    },
                },
                "spec": {
                    "containers": [{"name": "main", "image": "none"}],
                    "schedulingGates": [{"name": "dranet.io/fabric"}],
                },
            }))?;
            scope.api::<Pod>().create(&PostParams::default(), &pod).await?;
        }
        installation.start_fabric_controllers(1, &[]).await?;
        eventually(SOON, async || {
            let pods = scope.api::<Pod>().list(&ListParams::default()).await?.items;
            let told = pods.iter().filter(|pod| {
                let status = pod.status.as_ref().and_then(|status| status.conditions.as_ref());
                status.into_iter().flatten().any(|it| it.type_ == "dranet.io/FabricChosen")
            });
            let told = told.count();
            Ok(Check::that(told == GROUPS, || format!("{told} of {GROUPS} have a condition")))
        })
        .await?;
        let log = installation.fabric_controllers()[0].process().tail(usize::MAX);
        let warnings = log.lines().filter(|line| line.contains(" WARN ")).count();
        anyhow::ensure!(warnings < GROUPS / 4, "{warnings} warnings");
        Ok(format!("all {GROUPS} pods say why they wait; {warnings} warnings in the log"))
    })
    .await
}
