//! Generic netlink (`Documentation/userspace-api/netlink/intro.rst`): a family has a name, and a
//! number that the kernel gives it. Works in the calling thread's namespace.

use crate::kernel::netlink::{attribute, exchange, find, open};
use netlink_packet_core::{NLM_F_ACK, NLM_F_DUMP};
use netlink_sys::Socket;
use netlink_sys::protocols::NETLINK_GENERIC;
use std::io;

/// `GENL_ID_CTRL`, `CTRL_CMD_GETFAMILY`, and the attributes of its request and answer.
const CONTROLLER: u16 = 0x10;
const GET_FAMILY: u8 = 3;
const FAMILY_ID: u16 = 1;
const FAMILY_NAME: u16 = 2;

/// Length of `struct genlmsghdr`.
const GENERIC_HEADER: usize = 4;

/// A socket, and the number of a family.
#[derive(Debug)]
pub(crate) struct Family {
    socket: Socket,
    number: u16,
}

impl Family {
    /// Asks the kernel for a family. The error is `ENOENT` if the kernel does not have it.
    pub(crate) fn open(name: &str) -> io::Result<Self> {
        let socket = open(NETLINK_GENERIC)?;
        let name = attribute(FAMILY_NAME, format!("{name}\0").as_bytes());
        let replies = exchange(&socket, CONTROLLER, 0, &payload(GET_FAMILY, &[name]))?;
        let id = replies.first().and_then(|reply| find(reply.get(GENERIC_HEADER..)?, FAMILY_ID));
        let number = id.and_then(|id| id.try_into().ok()).map(u16::from_ne_bytes);
        let number = number.ok_or_else(|| io::Error::other("malformed answer of the kernel"))?;
        Ok(Self { socket, number })
    }

    /// The attributes of the answer.
    pub(crate) fn ask(&self, command: u8, attributes: &[Vec<u8>]) -> io::Result<Vec<u8>> {
        let replies = self.exchange(command, 0, attributes)?;
        Ok(replies.into_iter().next().unwrap_or_default())
    }

    /// The attributes of each answer.
    pub(crate) fn list(&self, command: u8, attributes: &[Vec<u8>]) -> io::Result<Vec<Vec<u8>>> {
        self.exchange(command, NLM_F_DUMP, attributes)
    }

    /// Sends a command that has no answer but success.
    pub(crate) fn send(&self, command: u8, attributes: &[Vec<u8>]) -> io::Result<()> {
        self.exchange(command, NLM_F_ACK, attributes).map(drop)
    }

    fn exchange(
        &self,
        command: u8,
        flags: u16,
        attributes: &[Vec<u8>],
    ) -> io::Result<Vec<Vec<u8>>> {
        let replies = exchange(&self.socket, self.number, flags, &payload(command, attributes))?;
        Ok(replies
            .into_iter()
            .map(|reply| reply.get(GENERIC_HEADER..).unwrap_or_default().to_vec())
            .collect())
    }
}

/// `struct genlmsghdr` of version 1, and attributes.
fn payload(command: u8, attributes: &[Vec<u8>]) -> Vec<u8> {
    let mut payload = vec![command, 1, 0, 0];
    payload.extend(attributes.concat());
    payload
}
