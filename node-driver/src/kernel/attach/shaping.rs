//! Limits what a shared NIC's interface may send: a token bucket filter
//! (`net/sched/sch_tbf.c`, `tc-tbf(8)`) as its root queueing discipline, in the pod's
//! namespace.
//!
//! It limits only traffic through the kernel. RDMA bypasses it, and a process with
//! `NET_ADMIN` in the pod can remove it.

use crate::kernel::attach::AttachError;
use futures::StreamExt;
use netlink_packet_core::{
    DefaultNla, NLM_F_ACK, NLM_F_CREATE, NLM_F_REPLACE, NLM_F_REQUEST, NetlinkMessage,
    NetlinkPayload,
};
use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::tc::{TcAttribute, TcHandle, TcMessage, TcOption};
use rtnetlink::{Error, Handle};

/// `TCA_TBF_PARMS`, `TCA_TBF_RATE64` and `TCA_TBF_BURST`.
const PARAMETERS: u16 = 1;
const RATE64: u16 = 4;
const BURST: u16 = 6;
/// `TC_LINKLAYER_ETHERNET`: with it the kernel needs no rate table.
const ETHERNET: u8 = 1;
/// Smallest burst, in bytes: more than the largest segment before it is split
/// (`GSO_MAX_SIZE`).
const BURST_MIN: u64 = 1 << 20;
/// A burst of 1 ms, and a queue of 25 ms.
const BURSTS_PER_SECOND: u64 = 1000;
const QUEUES_PER_SECOND: u64 = 40;

/// Limits the interface with this index to this many bits per second.
pub(super) async fn limit(
    handle: &Handle,
    name: &str,
    index: u32,
    rate: u64,
) -> Result<(), AttachError> {
    send(handle, message(index, rate)).await.map_err(|source| {
        let verb = format!("limit it to {rate} bit/s (module sch_tbf)");
        AttachError::netlink(name, verb, source)
    })
}

fn message(index: u32, rate: u64) -> TcMessage {
    let mut message = TcMessage::with_index(index.cast_signed());
    message.header.parent = TcHandle::ROOT;
    message.header.handle = TcHandle { major: 1, minor: 0 };
    let options = options(rate).into_iter().map(TcOption::Other).collect();
    message.attributes = vec![TcAttribute::Kind("tbf".to_owned()), TcAttribute::Options(options)];
    message
}

fn options(rate: u64) -> [DefaultNla; 3] {
    let bytes = rate / 8;
    let burst = (bytes / BURSTS_PER_SECOND).max(BURST_MIN);
    let queue = (bytes / QUEUES_PER_SECOND).max(burst);
    [
        DefaultNla::new(PARAMETERS, parameters(bytes, queue)),
        DefaultNla::new(RATE64, bytes.to_ne_bytes().to_vec()),
        DefaultNla::new(BURST, narrow(burst).to_ne_bytes().to_vec()),
    ]
}

/// `struct tc_tbf_qopt`: the rate, no peak rate, the queue in bytes, and two fields that
/// the burst attribute replaces.
fn parameters(rate: u64, queue: u64) -> Vec<u8> {
    let mut bytes = rate_spec(narrow(rate)).to_vec();
    bytes.extend(rate_spec(0));
    for word in [narrow(queue), 0, 0] {
        bytes.extend(word.to_ne_bytes());
    }
    bytes
}

/// `struct tc_ratespec`.
fn rate_spec(rate: u32) -> [u8; 12] {
    let mut spec = [0; 12];
    spec[1] = ETHERNET;
    spec[8..].copy_from_slice(&rate.to_ne_bytes());
    spec
}

/// Saturates: a larger rate has a separate attribute, and a larger queue is never needed.
fn narrow(number: u64) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}

async fn send(handle: &Handle, message: TcMessage) -> Result<(), Error> {
    let mut request = NetlinkMessage::from(RouteNetlinkMessage::NewQueueDiscipline(message));
    request.header.flags = NLM_F_REQUEST | NLM_F_ACK | NLM_F_CREATE | NLM_F_REPLACE;
    let mut answers = handle.clone().request(request)?;
    while let Some(answer) = answers.next().await {
        match answer.payload {
            NetlinkPayload::Error(error) if error.code.is_some() => {
                return Err(Error::NetlinkError(error));
            }
            _ => {}
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use netlink_packet_core::{Emitable, Nla};

    fn bytes(option: &DefaultNla) -> Vec<u8> {
        let mut bytes = vec![0; option.value_len()];
        option.emit_value(&mut bytes);
        bytes
    }

    /// `tc` shows the other parameters; no number may be truncated.
    #[test]
    fn rates_beyond_four_gigabytes_use_a_separate_attribute() {
        for (gigabits, rate, burst) in
            [(1, 125_000_000, 1 << 20), (100, u32::MAX, 12_500_000), (1600, u32::MAX, 200_000_000)]
        {
            let [parameters, rate64, most] = options(gigabits * 1_000_000_000);
            let parameters = bytes(&parameters);
            assert_eq!(parameters.len(), 36);
            assert_eq!(parameters[8..12], u32::to_ne_bytes(rate), "{gigabits} Gbit/s");
            assert_eq!(bytes(&rate64), (gigabits * 125_000_000).to_ne_bytes());
            assert_eq!(bytes(&most), u32::to_ne_bytes(burst));
        }
    }

    #[test]
    fn the_filter_is_the_root_discipline_of_its_interface() {
        let message = message(7, 1_000_000_000);
        assert_eq!((message.header.index, message.header.parent), (7, TcHandle::ROOT));
        assert_eq!(message.attributes.as_slice().buffer_len() % 4, 0);
    }
}
