//! Names of features. The kernel has one name for each feature bit
//! (`net/ethtool/common.c`); `ethtool` has two names for each group of bits that one ioctl
//! used to switch (`off_flag_def` in its `ethtool.c`).

/// Name for `ethtool -K`, name in `ethtool -k`, and the kernel's name, in which `*`
/// matches any text.
const GROUPS: [[&str; 3]; 12] = [
    ["rx", "rx-checksumming", "rx-checksum"],
    ["tx", "tx-checksumming", "tx-checksum-*"],
    ["sg", "scatter-gather", "tx-scatter-gather*"],
    ["tso", "tcp-segmentation-offload", "tx-tcp*-segmentation"],
    ["ufo", "udp-fragmentation-offload", "tx-udp-fragmentation"],
    ["gso", "generic-segmentation-offload", "tx-generic-segmentation"],
    ["gro", "generic-receive-offload", "rx-gro"],
    ["lro", "large-receive-offload", "rx-lro"],
    ["rxvlan", "rx-vlan-offload", "rx-vlan-hw-parse"],
    ["txvlan", "tx-vlan-offload", "tx-vlan-hw-insert"],
    ["ntuple", "ntuple-filters", "rx-ntuple-filter"],
    ["rxhash", "receive-hashing", "rx-hashing"],
];

/// Whether `name`, as `ethtool` users write it, includes the kernel's `feature`.
pub(super) fn is_meant(name: &str, feature: &str) -> bool {
    let group = GROUPS.iter().find(|[short, long, _]| *short == name || *long == name);
    let pattern = group.map_or(name, |[_, _, pattern]| pattern);
    match pattern.split_once('*').filter(|_| group.is_some()) {
        Some((begin, end)) => feature.strip_prefix(begin).is_some_and(|rest| rest.ends_with(end)),
        None => pattern == feature,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_means_one_feature_or_a_group() {
        let tcp = ["tx-tcp-segmentation", "tx-tcp6-segmentation", "tx-tcp-ecn-segmentation"];
        for feature in tcp {
            assert!(is_meant("tso", feature) && is_meant("tcp-segmentation-offload", feature));
        }
        assert!(!is_meant("tso", "tx-udp-segmentation"));
        assert!(
            is_meant("sg", "tx-scatter-gather") && is_meant("sg", "tx-scatter-gather-fraglist")
        );
        assert!(is_meant("rx-gro", "rx-gro") && !is_meant("rx-gro", "rx-gro-list"));
        assert!(is_meant("gro", "rx-gro") && !is_meant("gro", "rx-gro-list"));
        assert!(!is_meant("tx-*", "tx-scatter-gather"), "users cannot write patterns");
    }
}
