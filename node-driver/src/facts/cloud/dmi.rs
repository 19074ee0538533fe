//! Detects the cloud from the firmware's DMI data. It uses no network, because probing an
//! absent metadata service takes seconds.

use super::CloudProvider;
use std::fs;
use topology_graph::HostRoot;

/// Azure's asset tag (Azure documentation, and `ds-identify` of cloud-init).
const AZURE_ASSET_TAG: &str = "7783-7084-3265-9085-8269-3286-77";

/// DMI file, text and the cloud that the text identifies.
const SIGNS: [(&str, &str, CloudProvider); 5] = [
    ("chassis_asset_tag", AZURE_ASSET_TAG, CloudProvider::Azure),
    ("sys_vendor", "Amazon EC2", CloudProvider::Aws),
    ("product_name", "Google Compute Engine", CloudProvider::Gce),
    ("chassis_asset_tag", "OracleCloud.com", CloudProvider::Oci),
    ("sys_vendor", "Alibaba Cloud", CloudProvider::Alibaba),
];

/// The cloud that the firmware names, or none.
pub(super) fn detect(host: &HostRoot) -> CloudProvider {
    let dmi = host.sys().join("class/dmi/id");
    let found = SIGNS.iter().find(|(file, words, _)| {
        fs::read_to_string(dmi.join(file)).is_ok_and(|text| text.trim() == *words)
    });
    found.map_or(CloudProvider::None, |(_, _, provider)| *provider)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clouds_by_their_firmware() {
        for (file, words, expected) in [
            ("chassis_asset_tag", "7783-7084-3265-9085-8269-3286-77\n", CloudProvider::Azure),
            ("sys_vendor", "Amazon EC2\n", CloudProvider::Aws),
            ("product_name", "Google Compute Engine\n", CloudProvider::Gce),
            ("chassis_asset_tag", "OracleCloud.com\n", CloudProvider::Oci),
            ("sys_vendor", "Alibaba Cloud\n", CloudProvider::Alibaba),
            ("sys_vendor", "Microsoft Corporation\n", CloudProvider::None),
            ("sys_vendor", "QEMU\n", CloudProvider::None),
        ] {
            let root = tempfile::tempdir().unwrap();
            let dmi = root.path().join("sys/class/dmi/id");
            fs::create_dir_all(&dmi).unwrap();
            fs::write(dmi.join(file), words).unwrap();
            assert_eq!(detect(&HostRoot::at(root.path())), expected, "{words}");
        }
        assert_eq!(detect(&HostRoot::at("/nowhere")), CloudProvider::None);
    }
}
