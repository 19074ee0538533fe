//! What is written into the status of a claim.

use dra_allocator::ClaimAllocation;
use k8s_openapi::api::resource::v1::AllocationResult;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;
use sha2::{Digest, Sha256};

/// The finalizer of allocated claims (`Finalizer` in `k8s.io/api/resource/v1`).
pub(crate) const FINALIZER: &str = "resource.kubernetes.io/delete-protection";

/// The allocation with what kube-scheduler adds: the time, without which it cannot reserve the claim
/// later (`bindClaim` in `plugins/dynamicresources`), and the IDs of shares.
pub(crate) fn allocation_of(
    computed: &ClaimAllocation,
    claim_uid: &str,
    now: Timestamp,
) -> AllocationResult {
    let mut allocation = AllocationResult::from(computed);
    allocation.allocation_timestamp = Some(Time(now));
    let results = allocation.devices.as_mut().and_then(|devices| devices.results.as_mut());
    for (index, (own, wire)) in
        computed.results.iter().zip(results.into_iter().flatten()).enumerate()
    {
        wire.share_id = own.is_share.then(|| share_id(&format!("{claim_uid}/{index}")));
    }
    allocation
}

/// A UUID that no other share has, of version 8 (RFC 9562: of the program's own making).
fn share_id(of: &str) -> String {
    let mut bytes = [0; 16];
    bytes.iter_mut().zip(Sha256::digest(of)).for_each(|(byte, of_digest)| *byte = of_digest);
    bytes[6] = 0x80 | (bytes[6] & 0x0f);
    bytes[8] = 0x80 | (bytes[8] & 0x3f);
    let hex = format!("{:032x}", u128::from_be_bytes(bytes));
    [&hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..]].join("-")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_have_ids_that_differ() {
        let (one, two) = (share_id("a/0"), share_id("a/1"));
        assert_ne!(one, two);
        assert_eq!(one, share_id("a/0"), "a write that is repeated is the same");
        let lengths: Vec<usize> = one.split('-').map(str::len).collect();
        assert_eq!(lengths, [8, 4, 4, 4, 12], "{one}");
    }
}
