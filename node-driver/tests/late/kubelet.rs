//! The kubelet's list of pods and their devices, served on its socket.

use node_driver::facts::pod_resources::wire::v1 as wire;
use std::path::Path;
use std::sync::{Arc, Mutex};
use tokio::net::UnixListener;
use tokio::task::JoinHandle;
use tokio_stream::wrappers::UnixListenerStream;
use tonic::{Request, Response, Status};
use wire::pod_resources_lister_server::{PodResourcesLister, PodResourcesListerServer};

/// Pods by name, each with its devices by resource and ID.
pub(crate) type PodList = Vec<(String, Vec<(String, String)>)>;

/// The list of the pods of one namespace. Clones share it.
#[derive(Clone)]
pub(crate) struct Listed {
    namespace: String,
    pods: Arc<Mutex<PodList>>,
}

impl Default for Listed {
    fn default() -> Self {
        Self::new("team")
    }
}

impl Listed {
    pub(crate) fn new(namespace: &str) -> Self {
        Self { namespace: namespace.to_owned(), pods: Arc::default() }
    }

    pub(crate) fn set(&self, pods: PodList) {
        *self.pods.lock().unwrap() = pods;
    }

    pub(crate) fn add(&self, pod: String, devices: Vec<(String, String)>) {
        self.pods.lock().unwrap().push((pod, devices));
    }

    pub(crate) fn remove(&self, pod: &str) {
        self.pods.lock().unwrap().retain(|(name, _)| name != pod);
    }

    pub(crate) fn ids(&self) -> Vec<String> {
        let pods = self.pods.lock().unwrap();
        pods.iter().flat_map(|(_, devices)| devices).map(|(_, id)| id.clone()).collect()
    }

    /// Serves the list below the kubelet's directory.
    pub(crate) fn serve(&self, kubelet: &Path) -> JoinHandle<()> {
        let folder = kubelet.join("pod-resources");
        std::fs::create_dir_all(&folder).unwrap();
        let listener = UnixListener::bind(folder.join("kubelet.sock")).unwrap();
        let service = PodResourcesListerServer::new(self.clone());
        let server = tonic::transport::Server::builder().add_service(service);
        let serving = server.serve_with_incoming(UnixListenerStream::new(listener));
        tokio::spawn(async move { serving.await.unwrap() })
    }
}

#[tonic::async_trait]
impl PodResourcesLister for Listed {
    async fn list(
        &self,
        _: Request<wire::ListPodResourcesRequest>,
    ) -> Result<Response<wire::ListPodResourcesResponse>, Status> {
        let pods = self.pods.lock().unwrap().clone();
        let pod = |(name, devices): (String, Vec<(String, String)>)| wire::PodResources {
            name,
            namespace: self.namespace.clone(),
            containers: vec![wire::ContainerResources {
                name: "main".to_owned(),
                devices: devices.into_iter().map(one).collect(),
                ..Default::default()
            }],
            ..Default::default()
        };
        let pod_resources = pods.into_iter().map(pod).collect();
        Ok(Response::new(wire::ListPodResourcesResponse { pod_resources }))
    }

    async fn get_allocatable_resources(
        &self,
        _: Request<wire::AllocatableResourcesRequest>,
    ) -> Result<Response<wire::AllocatableResourcesResponse>, Status> {
        Err(Status::unimplemented("the driver does not ask"))
    }

    async fn get(
        &self,
        _: Request<wire::GetPodResourcesRequest>,
    ) -> Result<Response<wire::GetPodResourcesResponse>, Status> {
        Err(Status::unimplemented("the driver does not ask"))
    }
}

fn one((resource, id): (String, String)) -> wire::ContainerDevices {
    wire::ContainerDevices { resource_name: resource, device_ids: vec![id], topology: None }
}
