//! The GPUs of the node as a countable extended resource, by the device plugin API
//! (`deviceplugin/v1beta1`): pods request it beside their claims, so that quotas and queues count them. It
//! gives containers nothing.
//!
//! The kubelet would also keep an amount that somebody writes into the node's status, but sets it to zero
//! when it starts without a checkpoint of device plugins (`reconcileExtendedResource` in
//! `pkg/kubelet/kubelet_node_status.go`), and then refuses pods that run.

use crate::kubelet::wire::device_plugin_v1beta1 as api;
use crate::kubelet::wire::registration_v1::PluginInfo;
use cluster_model::counted::Counted;
use std::collections::BTreeMap;
use std::path::Path;
use std::pin::Pin;
use tokio::sync::watch;
use tokio_stream::wrappers::WatchStream;
use tokio_stream::{Stream, StreamExt};
use tokio_util::sync::CancellationToken;
use tonic::{Request, Response, Status};

/// The plugin type, as the kubelet spells it.
const DEVICE_PLUGIN: &str = "DevicePlugin";

/// The version of the API.
const VERSION: &str = "v1beta1";

/// The number of GPUs by PCI vendor; `None` before the machine has been read.
pub type Gpus = Option<BTreeMap<u16, usize>>;

/// What the plugin tells the kubelet when it registers.
pub(super) fn info(resource: &str, endpoint: &Path) -> PluginInfo {
    PluginInfo {
        r#type: DEVICE_PLUGIN.to_owned(),
        name: resource.to_owned(),
        endpoint: endpoint.display().to_string(),
        supported_versions: vec![VERSION.to_owned()],
    }
}

/// The device plugin of one resource.
pub(super) struct CountService {
    /// The PCI vendor of the GPUs.
    vendor: u16,
    gpus: watch::Receiver<Gpus>,
    stop: CancellationToken,
}

impl CountService {
    /// A service that counts the GPUs of the resource's class; `None` if no driver has the class.
    pub(super) fn new(
        counted: &Counted,
        gpus: watch::Receiver<Gpus>,
        stop: CancellationToken,
    ) -> Option<Self> {
        let vendor = counted.driver().ok()?.pci_vendor;
        Some(Self { vendor, gpus, stop })
    }

    /// The devices now, and after each change. The stream ends with the driver; otherwise it would delay its
    /// shutdown.
    fn lists(&self) -> impl Stream<Item = api::ListAndWatchResponse> + Send + use<> {
        let vendor = self.vendor;
        let lists = WatchStream::new(self.gpus.clone());
        let lists = lists.filter_map(move |gpus| Some(devices(*gpus?.get(&vendor).unwrap_or(&0))));
        futures::StreamExt::take_until(lists, self.stop.clone().cancelled_owned())
    }
}

/// This many devices. Which of them a container gets means nothing, so they are numbered.
fn devices(count: usize) -> api::ListAndWatchResponse {
    let devices = (0..count).map(|id| api::Device {
        id: id.to_string(),
        health: "Healthy".to_owned(),
        topology: None,
    });
    api::ListAndWatchResponse { devices: devices.collect() }
}

#[tonic::async_trait]
impl api::device_plugin_server::DevicePlugin for CountService {
    type ListAndWatchStream =
        Pin<Box<dyn Stream<Item = Result<api::ListAndWatchResponse, Status>> + Send>>;

    async fn get_device_plugin_options(
        &self,
        _: Request<api::Empty>,
    ) -> Result<Response<api::DevicePluginOptions>, Status> {
        Ok(Response::new(api::DevicePluginOptions::default()))
    }

    async fn list_and_watch(
        &self,
        _: Request<api::Empty>,
    ) -> Result<Response<Self::ListAndWatchStream>, Status> {
        Ok(Response::new(Box::pin(self.lists().map(Ok))))
    }

    async fn get_preferred_allocation(
        &self,
        _: Request<api::PreferredAllocationRequest>,
    ) -> Result<Response<api::PreferredAllocationResponse>, Status> {
        Err(Status::unimplemented("not offered"))
    }

    async fn allocate(
        &self,
        request: Request<api::AllocateRequest>,
    ) -> Result<Response<api::AllocateResponse>, Status> {
        let containers = request.into_inner().container_requests;
        let nothing = containers.iter().map(|_| api::ContainerAllocateResponse::default());
        Ok(Response::new(api::AllocateResponse { container_responses: nothing.collect() }))
    }

    async fn pre_start_container(
        &self,
        _: Request<api::PreStartContainerRequest>,
    ) -> Result<Response<api::PreStartContainerResponse>, Status> {
        Ok(Response::new(api::PreStartContainerResponse::default()))
    }
}
