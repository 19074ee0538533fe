//! Karpenter with its provider `kwok`.

use std::sync::Arc;

use tests::{ControlPlane, karpenter::Karpenter, suite::Test, with_last_scope};

use super::grown::{KINDS, Player, empty, from_no_node_and_back, labels};

pub(crate) fn tests() -> Vec<Test> {
    tests::tests![karpenter_adds_the_nodes_that_aligned_pods_need]
}

async fn karpenter_adds_the_nodes_that_aligned_pods_need(
    plane: Arc<ControlPlane>,
) -> anyhow::Result<()> {
    let plane = &*plane;
    with_last_scope(plane.client(), async |scope| {
        let installation = empty(plane, scope).await?;
        let _karpenter =
            Karpenter::start(plane, scope, &KINDS.map(|kind| kind.name), &labels()).await?;
        let player = Player { scope, installation: &installation };
        from_no_node_and_back(plane, &player, ("karpenter.sh/do-not-disrupt", "true")).await
    })
    .await
}
