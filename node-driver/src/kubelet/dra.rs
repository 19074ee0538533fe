//! The DRA service (`dra/v1`, since Kubernetes 1.34). Every requested claim gets its own
//! answer, devices or an error; a failed claim never affects the others.

use crate::claims::preparer::Preparer;
use crate::kubelet::wire::dra_v1;
use crate::kubelet::wire::dra_v1::dra_plugin_server::DraPlugin;
use crate::model::claim::ClaimRef;
use crate::prepare::local::PreparedDevice;
use crate::prepare::metrics::Method;
use process::chain::Chain;
use std::collections::BTreeMap;
use std::time::Instant;
use tonic::{Request, Response, Status};

/// The service.
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

impl From<dra_v1::Claim> for ClaimRef {
    fn from(claim: dra_v1::Claim) -> Self {
        let dra_v1::Claim { namespace, uid, name } = claim;
        Self { namespace, name, uid }
    }
}

impl From<PreparedDevice> for dra_v1::Device {
    fn from(prepared: PreparedDevice) -> Self {
        Self {
            request_names: vec![prepared.request],
            pool_name: prepared.pool,
            device_name: prepared.device,
            cdi_device_ids: vec![prepared.cdi_id],
            share_id: prepared.share_id,
        }
    }
}

#[tonic::async_trait]
impl DraPlugin for DraService {
    async fn node_prepare_resources(
        &self,
        request: Request<dra_v1::NodePrepareResourcesRequest>,
    ) -> Result<Response<dra_v1::NodePrepareResourcesResponse>, Status> {
        let mut claims = BTreeMap::new();
        for claim in request.into_inner().claims {
            let claim = ClaimRef::from(claim);
            let (devices, error) = match self.prepare(&claim).await {
                Ok(devices) => (devices, String::new()),
                Err(error) => (Vec::new(), error),
            };
            let devices = devices.into_iter().map(dra_v1::Device::from).collect();
            claims.insert(claim.uid, dra_v1::NodePrepareResourceResponse { devices, error });
        }
        Ok(Response::new(dra_v1::NodePrepareResourcesResponse { claims }))
    }

    async fn node_unprepare_resources(
        &self,
        request: Request<dra_v1::NodeUnprepareResourcesRequest>,
    ) -> Result<Response<dra_v1::NodeUnprepareResourcesResponse>, Status> {
        let mut claims = BTreeMap::new();
        for claim in request.into_inner().claims {
            let claim = ClaimRef::from(claim);
            let error = self.unprepare(&claim).await;
            claims.insert(claim.uid, dra_v1::NodeUnprepareResourceResponse { error });
        }
        Ok(Response::new(dra_v1::NodeUnprepareResourcesResponse { claims }))
    }
}
