//! Multiplexes two ttrpc connections over one socket, in frames of a connection number, a
//! length and that many bytes. Follows NRI's `pkg/net/multiplex/mux.go`.

use crate::runtime::nri::ProtocolError;
use crate::runtime::nri::message;
use bytes::{Buf, Bytes, BytesMut};

/// The connection on which the runtime calls the plugin (`PluginServiceConn`).
pub const PLUGIN: u32 = 1;
/// The connection on which the plugin calls the runtime (`RuntimeServiceConn`).
pub const RUNTIME: u32 = 2;

/// Header length: number and length, 32 bits each, big-endian.
const HEADER: usize = 8;
/// Longest payload (`maxPayloadSize`).
const PAYLOAD_MAX: usize = message::HEADER + message::DATA_MAX;
/// Longest payload that is sent. The runtime reads each frame at once, into a buffer of
/// `bufio`'s default size.
const SENT_MAX: usize = 4096;

/// Splits received bytes into frames.
#[derive(Debug, Default)]
pub struct TrunkReader {
    buffer: BytesMut,
}

impl TrunkReader {
    /// Appends received bytes.
    pub fn push(&mut self, bytes: &[u8]) {
        self.buffer.extend_from_slice(bytes);
    }

    /// Takes the next complete frame: its connection and its payload.
    pub fn next_frame(&mut self) -> Result<Option<(u32, Bytes)>, ProtocolError> {
        let mut header = &self.buffer[..];
        if header.len() < HEADER {
            return Ok(None);
        }
        let (connection, length) = (header.get_u32(), header.get_u32());
        let length = usize::try_from(length).unwrap_or(usize::MAX);
        if length > PAYLOAD_MAX {
            return Err(ProtocolError::LongFrame { length });
        }
        if header.len() < length {
            return Ok(None);
        }
        self.buffer.advance(HEADER);
        Ok(Some((connection, self.buffer.split_to(length).freeze())))
    }
}

/// Encodes a message as frames of a connection.
pub fn frames(connection: u32, message: &[u8]) -> Vec<u8> {
    let count = message.len().div_ceil(SENT_MAX);
    let mut frames = Vec::with_capacity(message.len() + HEADER * count);
    for payload in message.chunks(SENT_MAX) {
        let length = u32::try_from(payload.len()).unwrap_or(u32::MAX);
        frames.extend(connection.to_be_bytes());
        frames.extend(length.to_be_bytes());
        frames.extend(payload);
    }
    frames
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// However a stream of frames is split into reads, the frames are the same.
        #[test]
        fn frames_survive_any_split(
            message in prop::collection::vec(any::<u8>(), 1..9000),
            cuts in prop::collection::vec(1..700_usize, 1..20),
        ) {
            let stream = frames(PLUGIN, &message);
            let mut reader = TrunkReader::default();
            let mut taken = Vec::new();
            let mut rest = &stream[..];
            for cut in cuts.iter().cycle() {
                let (now, later) = rest.split_at((*cut).min(rest.len()));
                reader.push(now);
                while let Some((connection, payload)) = reader.next_frame().unwrap() {
                    prop_assert_eq!(connection, PLUGIN);
                    prop_assert!(payload.len() <= SENT_MAX);
                    taken.extend(payload);
                }
                rest = later;
                if rest.is_empty() {
                    break;
                }
            }
            prop_assert_eq!(taken, message);
        }
    }

    #[test]
    fn an_overlong_frame_is_an_error_before_it_is_read() {
        let mut reader = TrunkReader::default();
        reader.push(&[0, 0, 0, 1, 0, 0x40, 0, 10]);
        assert_eq!(reader.next_frame(), Ok(None), "the longest");
        let mut reader = TrunkReader::default();
        reader.push(&[0, 0, 0, 1, 0, 0x40, 0, 11]);
        let length = PAYLOAD_MAX + 1;
        assert_eq!(reader.next_frame(), Err(ProtocolError::LongFrame { length }));
    }
}
