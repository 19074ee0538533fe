//! ttrpc messages: a header of ten bytes, then data. Follows `PROTOCOL.md` of
//! github.com/containerd/ttrpc. Supports only unary calls, because NRI has no others.

use crate::runtime::nri::ProtocolError;
use bytes::{Buf, Bytes, BytesMut};

/// Header length: length and stream, 32 bits each; type and flags, a byte each.
pub const HEADER: usize = 10;
/// Longest data, in bytes (`messageLengthMax`).
pub const DATA_MAX: usize = 4 << 20;

/// The type of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MessageKind {
    /// Starts a call.
    Request,
    /// Ends a call.
    Response,
    /// More data of a streaming call.
    Data,
}

impl MessageKind {
    const ALL: [(u8, Self); 3] = [(1, Self::Request), (2, Self::Response), (3, Self::Data)];
}

/// One message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    /// The call that it belongs to; callers use odd numbers.
    pub stream: u32,
    /// Its type.
    pub kind: MessageKind,
    /// Zero in unary calls.
    pub flags: u8,
    /// A request or a response.
    pub data: Bytes,
}

impl Message {
    /// Encodes the message.
    pub fn encode(&self) -> Vec<u8> {
        let length = u32::try_from(self.data.len()).unwrap_or(u32::MAX);
        let number = MessageKind::ALL.iter().find(|(_, kind)| *kind == self.kind);
        let mut bytes = Vec::with_capacity(HEADER + self.data.len());
        bytes.extend(length.to_be_bytes());
        bytes.extend(self.stream.to_be_bytes());
        bytes.push(number.map_or(0, |(number, _)| *number));
        bytes.push(self.flags);
        bytes.extend(&self.data);
        bytes
    }
}

/// Splits the bytes of one connection into messages.
#[derive(Debug, Default)]
pub struct MessageReader {
    buffer: BytesMut,
}

impl MessageReader {
    /// Appends received bytes.
    pub fn push(&mut self, bytes: &[u8]) {
        self.buffer.extend_from_slice(bytes);
    }

    /// Takes the next complete message.
    pub fn next_message(&mut self) -> Result<Option<Message>, ProtocolError> {
        let mut header = &self.buffer[..];
        if header.len() < HEADER {
            return Ok(None);
        }
        let (length, stream) = (header.get_u32(), header.get_u32());
        let (number, flags) = (header.get_u8(), header.get_u8());
        let length = usize::try_from(length).unwrap_or(usize::MAX);
        if length > DATA_MAX {
            return Err(ProtocolError::LongMessage { length });
        }
        let known = MessageKind::ALL.iter().find(|(known, _)| *known == number);
        let (_, kind) = *known.ok_or(ProtocolError::Kind { number })?;
        if header.len() < length {
            return Ok(None);
        }
        self.buffer.advance(HEADER);
        let data = self.buffer.split_to(length).freeze();
        Ok(Some(Message { stream, kind, flags, data }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request() -> Message {
        let data = Bytes::from_static(b"abc");
        Message { stream: 7, kind: MessageKind::Request, flags: 0, data }
    }

    #[test]
    fn messages_are_encoded_as_in_the_protocol() {
        let bytes = [0, 0, 0, 3, 0, 0, 0, 7, 1, 0, b'a', b'b', b'c'];
        assert_eq!(request().encode(), bytes);
        let mut reader = MessageReader::default();
        for byte in &bytes[..12] {
            reader.push(&[*byte]);
            assert_eq!(reader.next_message(), Ok(None));
        }
        reader.push(&bytes[12..]);
        assert_eq!(reader.next_message(), Ok(Some(request())));
        assert_eq!(reader.next_message(), Ok(None));
    }

    #[test]
    fn malformed_headers_are_errors_at_once() {
        let header = |length: u32, number| {
            let mut reader = MessageReader::default();
            reader.push(&length.to_be_bytes());
            reader.push(&[0, 0, 0, 1, number, 0]);
            reader.next_message()
        };
        assert_eq!(header(9, 4), Err(ProtocolError::Kind { number: 4 }));
        let length = DATA_MAX + 1;
        let long = u32::try_from(length).unwrap();
        assert_eq!(header(long, 1), Err(ProtocolError::LongMessage { length }));
    }
}
