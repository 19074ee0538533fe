//! What an interface in a pod is for the API: in the status of its claim, and in device metadata.

use crate::model::plan::PlannedLink;
use serde_json::{Value, json};

/// An interface as the API's `NetworkDeviceData`.
pub(crate) fn network_data(link: &PlannedLink) -> Value {
    let interface = &link.config.interface;
    let address = interface.hardware_addr.as_ref().or(link.host.hardware_addr.as_ref());
    let ips: Vec<_> = interface.addresses.iter().map(ToString::to_string).collect();
    let mut data = json!({"interfaceName": link.name, "ips": ips});
    if let Some(address) = address {
        data["hardwareAddress"] = json!(address);
    }
    data
}
