//! Port counters of the RDMA devices that pods have, read when Prometheus asks for them
//! (`Documentation/ABI/stable/sysfs-class-infiniband`, `counters` and `hw_counters`).
//!
//! A read asks the device's firmware. It runs on a thread of its own: a device that does not answer
//! costs its counters, and nothing else. In the RDMA subsystem's exclusive mode a device is in its
//! pod's namespace, and the host does not see its counters.

use crate::facts::held::{Claims, HeldPort};
use crate::facts::ports::KnownPorts;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeLabelSet, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::registry::Registry;
use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

/// Longest wait for all counters. Prometheus waits ten seconds.
const PATIENCE: Duration = Duration::from_secs(2);

/// The counters, by the directory and name that the kernel gives them, with a factor: the data
/// counters count units of four octets.
const COUNTERS: [(&str, &str, u64); 24] = [
    ("counters", "port_xmit_data", 4),
    ("counters", "port_rcv_data", 4),
    ("counters", "port_xmit_packets", 1),
    ("counters", "port_rcv_packets", 1),
    ("counters", "port_xmit_wait", 1),
    ("counters", "port_xmit_discards", 1),
    ("counters", "port_rcv_errors", 1),
    ("counters", "symbol_error", 1),
    ("counters", "link_downed", 1),
    ("counters", "link_error_recovery", 1),
    ("counters", "local_link_integrity_errors", 1),
    ("counters", "excessive_buffer_overrun_errors", 1),
    ("hw_counters", "out_of_buffer", 1),
    ("hw_counters", "out_of_sequence", 1),
    ("hw_counters", "packet_seq_err", 1),
    ("hw_counters", "duplicate_request", 1),
    ("hw_counters", "rnr_nak_retry_err", 1),
    ("hw_counters", "local_ack_timeout_err", 1),
    ("hw_counters", "roce_adp_retrans", 1),
    ("hw_counters", "np_cnp_sent", 1),
    ("hw_counters", "rp_cnp_handled", 1),
    ("hw_counters", "np_ecn_marked_roce_packets", 1),
    ("hw_counters", "rx_bytes", 1),
    ("hw_counters", "tx_bytes", 1),
];

/// Reads counters for a node's pods.
#[derive(Clone, Debug)]
pub(crate) struct NicCounters {
    reader: Reader,
    node: String,
    /// The thread of an earlier scrape that still waits for a device.
    waiting: Arc<Mutex<Option<JoinHandle<()>>>>,
}

/// What a reading thread needs.
#[derive(Clone, Debug)]
struct Reader {
    /// `class/infiniband` of the host's sysfs.
    devices: PathBuf,
    claims: Claims,
    ports: KnownPorts,
}

/// The counters of one port of a device that a pod has.
#[derive(Clone, Debug, PartialEq, Eq)]
struct PortCounters {
    port: HeldPort,
    values: Vec<(&'static str, u64)>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Labels {
    node: String,
    namespace: String,
    pod: String,
    claim: String,
    nic: String,
    rdma_device: String,
    port: u32,
    counter: &'static str,
}

impl NicCounters {
    /// Counters of the devices below this sysfs that these claims have.
    pub(crate) fn new(sys: &Path, claims: Claims, ports: KnownPorts, node: &str) -> Self {
        let reader = Reader { devices: sys.join("class/infiniband"), claims, ports };
        Self { reader, node: node.to_owned(), waiting: Arc::default() }
    }

    /// Registers the metric.
    pub(crate) fn register(self, registry: &mut Registry) {
        registry.sub_registry_with_prefix("dranet_driver").register_collector(Box::new(self));
    }

    /// Reads all counters; none if a device does not answer.
    fn read(&self) -> Vec<PortCounters> {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        if waiting.as_ref().is_some_and(|thread| !thread.is_finished()) {
            return Vec::new();
        }
        let (sender, counters) = channel();
        let reader = self.reader.clone();
        let thread = thread::Builder::new().name("counters".to_owned()).spawn(move || {
            // The receiver is gone if it took too long.
            let _ = sender.send(reader.read());
        });
        *waiting = thread.ok();
        counters.recv_timeout(PATIENCE).unwrap_or_else(|_| {
            tracing::warn!("A device does not answer; its counters are not read");
            Vec::new()
        })
    }
}

impl Reader {
    fn read(&self) -> Vec<PortCounters> {
        let unresponsive = self.ports.unresponsive();
        let ports = self.claims.ports().into_iter();
        let ports = ports.filter(|port| !unresponsive.contains(&port.rdma_device));
        ports.map(|port| PortCounters { values: self.values(&port), port }).collect()
    }

    /// The counters that the driver of this device has.
    fn values(&self, port: &HeldPort) -> Vec<(&'static str, u64)> {
        let directory =
            self.devices.join(&port.rdma_device).join("ports").join(port.port.to_string());
        COUNTERS
            .iter()
            .filter_map(|(folder, name, factor)| {
                let text = fs::read_to_string(directory.join(folder).join(name)).ok()?;
                Some((*name, text.trim().parse::<u64>().ok()?.wrapping_mul(*factor)))
            })
            .collect()
    }
}

impl Collector for NicCounters {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let help = "Counters of the ports of NICs that pods have, as the kernel names them; data in \
                    bytes";
        let mut metric =
            encoder.encode_descriptor("nic_port_counter", help, None, MetricType::Counter)?;
        for PortCounters { port, values } in self.read() {
            for (counter, value) in values {
                let HeldPort { namespace, pod, claim, device, rdma_device, port } = port.clone();
                let node = self.node.clone();
                let nic = device;
                let labels =
                    Labels { node, namespace, pod, claim, nic, rdma_device, port, counter };
                ConstCounter::new(value).encode(metric.encode_family(&labels)?)?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::checkpoint::Checkpoint;
    use prometheus_client::encoding::text::encode;
    use rustix::fs::{CWD, FileType, Mode, mknodat};
    use serde_json::json;
    use std::time::Instant;
    use tempfile::TempDir;

    fn machine() -> (TempDir, NicCounters) {
        let root = tempfile::tempdir().unwrap();
        let file = |path: &str, text: &str| {
            let path = root.path().join("class/infiniband/mlx5_2/ports/1").join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        file("counters/port_xmit_data", "1000\n");
        file("counters/symbol_error", "7\n");
        file("hw_counters/out_of_sequence", "N/A (no PMA)\n");
        let rdma = json!({"name": "mlx5_2", "ports": [1], "chars": [], "moves": false});
        let device = json!({
            "request": "nic", "pool": "n1", "device": "pci-0103-00-00-0", "pciBusId": "",
            "rdma": rdma, "link": null,
        });
        let plan = json!({
            "claim": {"namespace": "team", "name": "nics", "uid": "c-1"},
            "pods": [{"name": "train-0", "uid": "p-1"}],
            "devices": [device], "rdmaCm": null, "others": [],
        });
        let claims = json!({"c-1": {"phase": "prepared", "plan": plan}});
        let checkpoint: Checkpoint = serde_json::from_value(json!({"claims": claims})).unwrap();
        let path = root.path().join("checkpoint.json");
        checkpoint.store(&path).unwrap();
        let claims = Claims::new(Some(path));
        let counters = NicCounters::new(root.path(), claims, KnownPorts::default(), "n1");
        (root, counters)
    }

    fn scraped(counters: &NicCounters) -> String {
        let mut registry = Registry::default();
        counters.clone().register(&mut registry);
        let mut text = String::new();
        encode(&mut text, &registry).unwrap();
        let lines = text.lines().filter(|line| !line.starts_with('#'));
        lines.fold(String::new(), |all, line| all + line + "\n")
    }

    #[test]
    fn counters_have_the_pod_that_has_the_nic() {
        let (root, counters) = machine();
        let labels = "node=\"n1\",namespace=\"team\",pod=\"train-0\",claim=\"nics\",\
                      nic=\"pci-0103-00-00-0\",rdma_device=\"mlx5_2\",port=\"1\"";
        let expected = format!(
            "dranet_driver_nic_port_counter_total{{{labels},counter=\"port_xmit_data\"}} 4000\n\
             dranet_driver_nic_port_counter_total{{{labels},counter=\"symbol_error\"}} 7\n"
        );
        assert_eq!(scraped(&counters), expected);
        Checkpoint::default().store(&root.path().join("checkpoint.json")).unwrap();
        assert_eq!(scraped(&counters), "", "no pod has a NIC");
    }

    /// A FIFO without a writer blocks the reading thread as such a device does.
    #[test]
    fn a_device_that_does_not_answer_delays_one_scrape() {
        let (root, counters) = machine();
        let file = root.path().join("class/infiniband/mlx5_2/ports/1/counters/symbol_error");
        fs::remove_file(&file).unwrap();
        mknodat(CWD, &file, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
        assert_eq!(scraped(&counters), "");
        let began = Instant::now();
        assert_eq!(scraped(&counters), "", "the thread still waits");
        assert!(began.elapsed() < PATIENCE);
        drop(fs::OpenOptions::new().write(true).open(&file).unwrap());
    }
}
