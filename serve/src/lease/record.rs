//! Decides what to do about a lease, from its content and the time since it last changed.

use k8s_openapi::api::coordination::v1::LeaseSpec;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use k8s_openapi::jiff::Timestamp;
use std::time::Duration;

/// The next step of a process that wants the lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Attempt {
    /// Wait, since another process holds it.
    Wait,
    /// Take it, since it is free.
    Take,
}

/// Decides the next step. `unchanged` is the time for which this process has seen the lease
/// unchanged.
pub(super) fn attempt(spec: &LeaseSpec, identity: &str, unchanged: Duration) -> Attempt {
    let holder = spec.holder_identity.as_deref().unwrap_or_default();
    if holder.is_empty() || holder == identity {
        return Attempt::Take;
    }
    let seconds = spec.lease_duration_seconds.and_then(|seconds| u64::try_from(seconds).ok());
    match seconds {
        Some(seconds) if unchanged < Duration::from_secs(seconds) => Attempt::Wait,
        _ => Attempt::Take,
    }
}

/// The lease with this holder, for a first write or a renewal.
pub(super) fn taken(
    spec: &LeaseSpec,
    identity: &str,
    duration: Duration,
    now: Timestamp,
) -> LeaseSpec {
    let again = spec.holder_identity.as_deref() == Some(identity);
    let acquired = spec.acquire_time.clone().filter(|_| again);
    LeaseSpec {
        holder_identity: Some(identity.to_owned()),
        lease_duration_seconds: i32::try_from(duration.as_secs()).ok(),
        acquire_time: Some(acquired.unwrap_or(MicroTime(now))),
        renew_time: Some(MicroTime(now)),
        lease_transitions: Some(spec.lease_transitions.unwrap_or(0) + i32::from(!again)),
        ..spec.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Timestamp = Timestamp::UNIX_EPOCH;
    const DURATION: Duration = Duration::from_secs(15);

    fn held_by(identity: &str) -> LeaseSpec {
        taken(&LeaseSpec::default(), identity, DURATION, NOW)
    }

    #[test]
    fn a_free_own_or_expired_lease_is_taken() {
        let released = LeaseSpec { holder_identity: Some(String::new()), ..held_by("b") };
        let endless = LeaseSpec { lease_duration_seconds: None, ..held_by("b") };
        for (spec, unchanged, expected) in [
            (LeaseSpec::default(), 0, Attempt::Take),
            (released, 0, Attempt::Take),
            (held_by("a"), 0, Attempt::Take),
            (held_by("b"), 0, Attempt::Wait),
            (held_by("b"), 14, Attempt::Wait),
            (held_by("b"), 15, Attempt::Take),
            (endless, 0, Attempt::Take),
        ] {
            let found = attempt(&spec, "a", Duration::from_secs(unchanged));
            assert_eq!(found, expected, "{spec:?} for {unchanged} s");
        }
    }

    #[test]
    fn renewing_keeps_acquire_time_and_taking_counts() {
        let first = held_by("a");
        assert_eq!(first.lease_transitions, Some(1));
        let later = Timestamp::from_second(10).unwrap();
        let again = taken(&first, "a", DURATION, later);
        assert_eq!((again.lease_transitions, &again.acquire_time), (Some(1), &first.acquire_time));
        assert_eq!(again.renew_time, Some(MicroTime(later)));
        let other = taken(&again, "b", DURATION, later);
        assert_eq!(
            (other.lease_transitions, other.acquire_time),
            (Some(2), Some(MicroTime(later)))
        );
    }
}
