//! A device plugin that offers GPUs by their UUIDs, as NVIDIA's does. It gives a container the UUIDs of
//! its GPUs in `NVIDIA_VISIBLE_DEVICES`.

use std::{collections::BTreeMap, path::Path, pin::Pin, time::Duration};

use anyhow::Context;
use futures::{Stream, StreamExt, stream};
use node_driver::kubelet::wire::device_plugin_v1beta1::{
    self as api,
    device_plugin_server::{DevicePlugin as Api, DevicePluginServer},
    registration_client::RegistrationClient,
};
use tokio::{net::UnixListener, task::JoinHandle};
use tokio_stream::wrappers::UnixListenerStream;
use tonic::{
    Request, Response, Status,
    transport::{Endpoint, Server},
};

use crate::{Check, eventually};

/// The extended resource.
pub const RESOURCE: &str = "nvidia.com/gpu";
/// The kubelet's directory for device plugins (`DevicePluginPath`).
const FOLDER: &str = "/var/lib/kubelet/device-plugins";
const ENDPOINT: &str = "gpus.sock";
const SOON: Duration = Duration::from_mins(1);

/// A running device plugin, which ends with this value.
#[derive(Debug)]
pub struct DevicePlugin(JoinHandle<()>);

/// A GPU: its UUID and NUMA node.
pub type Gpu = (String, Option<i64>);

impl DevicePlugin {
    /// Serves these GPUs and registers with the kubelet.
    pub async fn start(gpus: Vec<Gpu>) -> anyhow::Result<Self> {
        let folder = Path::new(FOLDER);
        let kubelet = folder.join("kubelet.sock");
        eventually(SOON, async || {
            Ok(Check::that(kubelet.exists(), || format!("no `{}`", kubelet.display())))
        })
        .await?;
        let socket = folder.join(ENDPOINT);
        let _ = std::fs::remove_file(&socket);
        let listener = UnixListener::bind(&socket)?;
        let server = Server::builder().add_service(DevicePluginServer::new(Gpus(gpus)));
        let serving = server.serve_with_incoming(UnixListenerStream::new(listener));
        let task = tokio::spawn(async {
            // The test sees that no GPU is offered.
            let _ = serving.await;
        });
        let channel = Endpoint::from_shared(format!("unix:{}", kubelet.display()))?;
        let mut client = RegistrationClient::new(channel.connect().await?);
        let request = api::RegisterRequest {
            version: "v1beta1".to_owned(),
            endpoint: ENDPOINT.to_owned(),
            resource_name: RESOURCE.to_owned(),
            options: None,
        };
        client.register(request).await.context("failed to register the device plugin")?;
        Ok(Self(task))
    }
}

impl Drop for DevicePlugin {
    fn drop(&mut self) {
        self.0.abort();
    }
}

struct Gpus(Vec<Gpu>);

type Lists = Pin<Box<dyn Stream<Item = Result<api::ListAndWatchResponse, Status>> + Send>>;

#[tonic::async_trait]
impl Api for Gpus {
    type ListAndWatchStream = Lists;

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
        let list = api::ListAndWatchResponse {
            devices: self
                .0
                .iter()
                .map(|(uuid, numa)| api::Device {
                    id: uuid.clone(),
                    health: "Healthy".to_owned(),
                    topology: numa
                        .map(|id| api::TopologyInfo { nodes: vec![api::NumaNode { id }] }),
                })
                .collect(),
        };
        Ok(Response::new(stream::iter([Ok(list)]).chain(stream::pending()).boxed()))
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
        let containers = request.into_inner().container_requests.into_iter().map(|container| {
            api::ContainerAllocateResponse {
                envs: BTreeMap::from([(
                    "NVIDIA_VISIBLE_DEVICES".to_owned(),
                    container.devices_ids.join(","),
                )]),
                ..Default::default()
            }
        });
        Ok(Response::new(api::AllocateResponse { container_responses: containers.collect() }))
    }

    async fn pre_start_container(
        &self,
        _: Request<api::PreStartContainerRequest>,
    ) -> Result<Response<api::PreStartContainerResponse>, Status> {
        Ok(Response::new(api::PreStartContainerResponse::default()))
    }
}
