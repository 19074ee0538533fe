//! Registration with the kubelet (`pluginregistration/v1`): the kubelet finds the socket,
//! asks for the plugin's information, dials the endpoint, and reports the result. After a
//! restart the kubelet does so again.

use crate::kubelet::SUPPORTED_VERSIONS;
use crate::kubelet::wire::registration_v1::registration_server::Registration;
use crate::kubelet::wire::registration_v1::{
    InfoRequest, PluginInfo, RegistrationStatus, RegistrationStatusResponse,
};
use std::path::Path;
use std::sync::Arc;
use tokio::sync::watch;
use tonic::{Request, Response, Status};

/// The plugin type, as the kubelet spells it.
const DRA_PLUGIN: &str = "DRAPlugin";

/// The kubelet's latest report.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
enum State {
    #[default]
    Unknown,
    Registered,
    Refused(String),
}

/// Whether the kubelet has registered the plugin. Clones share the state.
#[derive(Clone, Debug)]
pub struct Registered(Arc<watch::Sender<State>>);

impl Default for Registered {
    fn default() -> Self {
        Self(Arc::new(watch::Sender::default()))
    }
}

impl Registered {
    /// Waits until the kubelet has registered the plugin.
    pub(super) async fn accepted(&self) {
        // This value holds the sender, so the channel stays open.
        let _ = self.0.subscribe().wait_for(|state| *state == State::Registered).await;
    }

    /// Waits until the kubelet refuses, and returns its reason.
    pub(super) async fn refused(&self) -> String {
        let mut state = self.0.subscribe();
        let refused = state.wait_for(|state| matches!(state, State::Refused(_))).await;
        match refused.as_deref() {
            Ok(State::Refused(reason)) => reason.clone(),
            _ => "no reason given".to_owned(),
        }
    }
}

/// The gRPC service.
pub(super) struct RegistrationService {
    info: PluginInfo,
    registered: Registered,
}

impl RegistrationService {
    /// Creates the service for a plugin.
    pub(super) fn new(info: PluginInfo, registered: Registered) -> Self {
        Self { info, registered }
    }
}

/// What the driver that serves at `endpoint` tells the kubelet.
pub(super) fn info(driver: &str, endpoint: &Path) -> PluginInfo {
    PluginInfo {
        r#type: DRA_PLUGIN.to_owned(),
        name: driver.to_owned(),
        endpoint: endpoint.display().to_string(),
        supported_versions: SUPPORTED_VERSIONS.map(str::to_owned).to_vec(),
    }
}

#[tonic::async_trait]
impl Registration for RegistrationService {
    async fn get_info(&self, _: Request<InfoRequest>) -> Result<Response<PluginInfo>, Status> {
        Ok(Response::new(self.info.clone()))
    }

    async fn notify_registration_status(
        &self,
        request: Request<RegistrationStatus>,
    ) -> Result<Response<RegistrationStatusResponse>, Status> {
        let RegistrationStatus { plugin_registered, error } = request.into_inner();
        let state = if plugin_registered {
            tracing::info!(plugin = self.info.name, "Registered with the kubelet");
            State::Registered
        } else {
            tracing::error!(error, plugin = self.info.name, "Kubelet refused the registration");
            State::Refused(error)
        };
        self.registered.0.send_replace(state);
        Ok(Response::new(RegistrationStatusResponse {}))
    }
}
