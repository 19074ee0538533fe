//! The DRA service in both versions (`dra/v1`, `dra/v1beta1`). Every requested claim gets
//! its own answer, devices or an error; a failed claim never affects the others.

use crate::kubelet::metrics::Method;
use crate::kubelet::wire::{dra_v1, dra_v1beta1};
use crate::prepare::ClaimRef;
use crate::prepare::node::PreparedDevice;
use crate::prepare::preparer::Preparer;
use process::chain::Chain;
use std::collections::BTreeMap;
use std::time::Instant;
use tonic::{Request, Response, Status};

/// The service. Clones share its state.
#[derive(Clone)]
pub(super) struct DraService {
    preparer: Preparer,
}

impl DraService {
    pub(super) fn new(preparer: Preparer) -> Self {
        Self { preparer }
    }

    async fn prepare(&self, claim: &ClaimRef) -> Result<Vec<PreparedDevice>, String> {
        let begin = Instant::now();
        let prepared = self.preparer.prepare(claim).await;
        self.preparer.metrics().observe(Method::Prepare, prepared.is_ok(), begin.elapsed());
        prepared.map_or_else(
            |error| {
                let error = Chain(&error).to_string();
                tracing::warn!(%claim, uid = claim.uid, error, "Failed to prepare claim");
                Err(error)
            },
            |devices| {
                tracing::info!(%claim, uid = claim.uid, devices = devices.len(), "Prepared claim");
                Ok(devices)
            },
        )
    }

    async fn unprepare(&self, claim: &ClaimRef) -> String {
        let begin = Instant::now();
        let unprepared = self.preparer.unprepare(claim).await;
        self.preparer.metrics().observe(Method::Unprepare, unprepared.is_ok(), begin.elapsed());
        match unprepared {
            Ok(()) => {
                tracing::info!(%claim, uid = claim.uid, "Unprepared claim");
                String::new()
            }
            Err(error) => {
                let error = Chain(&error).to_string();
                tracing::warn!(%claim, uid = claim.uid, error, "Failed to unprepare claim");
                error
            }
        }
    }
}

/// The two versions differ in one field; their code is the same.
macro_rules! serve_version {
    ($version:ident, |$prepared:ident| $device:expr) => {
        impl From<$version::Claim> for ClaimRef {
            fn from(claim: $version::Claim) -> Self {
                let $version::Claim { namespace, uid, name } = claim;
                Self { namespace, name, uid }
            }
        }

        #[tonic::async_trait]
        impl $version::dra_plugin_server::DraPlugin for DraService {
            async fn node_prepare_resources(
                &self,
                request: Request<$version::NodePrepareResourcesRequest>,
            ) -> Result<Response<$version::NodePrepareResourcesResponse>, Status> {
                let mut claims = BTreeMap::new();
                for claim in request.into_inner().claims {
                    let claim = ClaimRef::from(claim);
                    let (devices, error) = match self.prepare(&claim).await {
                        Ok(devices) => (devices, String::new()),
                        Err(error) => (Vec::new(), error),
                    };
                    let devices = devices.into_iter().map(|$prepared| $device).collect();
                    let answer = $version::NodePrepareResourceResponse { devices, error };
                    claims.insert(claim.uid, answer);
                }
                Ok(Response::new($version::NodePrepareResourcesResponse { claims }))
            }

            async fn node_unprepare_resources(
                &self,
                request: Request<$version::NodeUnprepareResourcesRequest>,
            ) -> Result<Response<$version::NodeUnprepareResourcesResponse>, Status> {
                let mut claims = BTreeMap::new();
                for claim in request.into_inner().claims {
                    let claim = ClaimRef::from(claim);
                    let error = self.unprepare(&claim).await;
                    let answer = $version::NodeUnprepareResourceResponse { error };
                    claims.insert(claim.uid, answer);
                }
                Ok(Response::new($version::NodeUnprepareResourcesResponse { claims }))
            }
        }
    };
}

serve_version!(dra_v1, |prepared| dra_v1::Device {
    request_names: vec![prepared.request],
    pool_name: prepared.pool,
    device_name: prepared.device,
    cdi_device_ids: vec![prepared.cdi_id],
    share_id: prepared.share_id,
});

serve_version!(dra_v1beta1, |prepared| dra_v1beta1::Device {
    request_names: vec![prepared.request],
    pool_name: prepared.pool,
    device_name: prepared.device,
    cdi_device_ids: vec![prepared.cdi_id],
});
