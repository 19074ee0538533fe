//! Who may use the annotations: pods of namespaces with the label that the operator names.

use std::{sync::Arc, time::Duration};

use k8s_openapi::api::core::v1::{Namespace, Pod};
use kube::{
    Api,
    api::{Patch, PatchParams, PostParams},
};
use serde_json::{Value, json};
use tests::{Check, ControlPlane, chart::Helm, eventually, suite::Test, with_scope};

const SOON: Duration = Duration::from_secs(30);
const POLICY: &str = "annotations.dranet.io";

pub(crate) fn tests() -> Vec<Test> {
    tests::tests![only_namespaces_with_the_label_use_the_annotations]
        .into_iter()
        .map(Test::alone)
        .collect()
}

async fn only_namespaces_with_the_label_use_the_annotations(
    plane: Arc<ControlPlane>,
) -> anyhow::Result<()> {
    with_scope(plane.client(), async |scope| {
        let label = "--set=admission.requiredNamespaceLabel=example.org/gpus=allowed";
        for object in Helm::offline()?.template(&[label]).await? {
            if object.metadata.name.as_deref() == Some(POLICY) {
                scope.apply(object).await?;
            }
        }
        let pods: Api<Pod> = scope.api();
        let create = async |annotations: Value| {
            let pod = serde_json::from_value(json!({
                "metadata": {"name": "probe", "annotations": annotations},
                "spec": {"containers": [{"name": "main", "image": "busybox"}]},
            }))?;
            let dry = PostParams { dry_run: true, ..PostParams::default() };
            anyhow::Ok(pods.create(&dry, &pod).await.map_err(|error| error.to_string()))
        };
        let aligned = json!({"dranet.io/aligned-nics": "1"});
        eventually(SOON, async || {
            let answer = create(aligned.clone()).await?;
            let refused = answer.as_ref().is_err_and(|why| {
                why.contains("need a namespace with the label example.org/gpus=allowed")
            });
            Ok(Check::that(refused, || format!("{answer:?}")))
        })
        .await?;
        assert!(create(json!({"team": "a"})).await?.is_ok(), "other pods are untouched");
        let namespaces: Api<Namespace> = Api::all(plane.client());
        let labels = json!({"metadata": {"labels": {"example.org/gpus": "allowed"}}});
        let params = PatchParams::default();
        namespaces.patch(scope.namespace(), &params, &Patch::Merge(labels)).await?;
        eventually(SOON, async || {
            let answer = create(aligned.clone()).await?;
            Ok(Check::that(answer.is_ok(), || format!("{answer:?}")))
        })
        .await
    })
    .await
}
