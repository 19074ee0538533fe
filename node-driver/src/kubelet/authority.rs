//! Makes a Go client's request acceptable to this server.
//!
//! The kubelet dials a registration socket by its bare path, and grpc-go then sends the
//! percent-encoded path as `:authority`. HTTP allows no percent sign there, and hyper
//! rejects the stream (`PROTOCOL_ERROR`). So this module replaces the value in the
//! client's stream. It decodes nothing: it walks the HPACK block (RFC 7541) field by
//! field and keeps their order, so both sides' dynamic tables stay equal.
//!
//! Only the registration socket needs this: the kubelet dials the plugin's own socket by
//! a URI.

use std::io;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, DuplexStream, duplex, split};
use tokio::net::UnixStream;

/// The value that replaces the path.
const AUTHORITY: &[u8] = b"localhost";
/// The client's preface (RFC 9113 §3.4).
const PREFACE_LEN: usize = 24;
/// Frame header: length, type, flags, stream.
const HEADER_LEN: usize = 9;
/// The largest frame size unless the server's settings allow more; they never do.
const FRAME_MAX: usize = 1 << 14;
/// Frame types.
const HEADERS: u8 = 1;
const CONTINUATION: u8 = 9;
/// Flags of HEADERS.
const END_HEADERS: u8 = 0x4;
const PADDED: u8 = 0x8;
const PRIORITY: u8 = 0x20;
/// Length of the priority fields.
const PRIORITY_LEN: usize = 5;
/// Index of `:authority` in the static table.
const AUTHORITY_INDEX: usize = 1;

/// Wraps the connection so that the server can read it.
pub(super) fn readable(client: UnixStream) -> DuplexStream {
    let (server, inner) = duplex(4 * FRAME_MAX);
    tokio::spawn(async move {
        let (mut from_client, mut to_client) = split(client);
        let (mut from_server, mut to_server) = split(inner);
        let inwards = async {
            // The connection ends with an error as without one.
            let _ = rewrite(&mut from_client, &mut to_server).await;
            let _ = to_server.shutdown().await;
        };
        let outwards = async {
            let _ = tokio::io::copy(&mut from_server, &mut to_client).await;
            let _ = to_client.shutdown().await;
        };
        tokio::join!(inwards, outwards);
    });
    server
}

async fn rewrite(
    from: &mut (impl AsyncRead + Unpin),
    to: &mut (impl AsyncWrite + Unpin),
) -> io::Result<()> {
    let mut preface = [0; PREFACE_LEN];
    from.read_exact(&mut preface).await?;
    to.write_all(&preface).await?;
    loop {
        let mut frame = Frame::read(from).await?;
        if frame.kind == HEADERS {
            frame.collect(from).await?;
            frame.payload = replace(&frame.payload).ok_or_else(malformed)?;
        }
        frame.write(to).await?;
    }
}

struct Frame {
    kind: u8,
    flags: u8,
    stream: [u8; 4],
    payload: Vec<u8>,
}

impl Frame {
    async fn read(from: &mut (impl AsyncRead + Unpin)) -> io::Result<Self> {
        let mut header = [0; HEADER_LEN];
        from.read_exact(&mut header).await?;
        let [l0, l1, l2, kind, flags, stream @ ..] = header;
        let length = usize::from(l0) << 16 | usize::from(l1) << 8 | usize::from(l2);
        if length > FRAME_MAX {
            return Err(malformed());
        }
        let mut payload = vec![0; length];
        from.read_exact(&mut payload).await?;
        Ok(Self { kind, flags, stream, payload })
    }

    async fn write(&self, to: &mut (impl AsyncWrite + Unpin)) -> io::Result<()> {
        let length = u32::try_from(self.payload.len()).map_err(|_| malformed())?;
        if self.payload.len() > FRAME_MAX {
            return Err(malformed());
        }
        let [_, l0, l1, l2] = length.to_be_bytes();
        let mut bytes = vec![l0, l1, l2, self.kind, self.flags];
        bytes.extend(self.stream);
        bytes.extend(&self.payload);
        to.write_all(&bytes).await
    }

    /// Reduces the frame to its header block: removes padding and priority, appends
    /// continuations.
    async fn collect(&mut self, from: &mut (impl AsyncRead + Unpin)) -> io::Result<()> {
        if self.flags & PADDED != 0 {
            let padding = usize::from(*self.payload.first().ok_or_else(malformed)?);
            let end = self.payload.len().checked_sub(padding).filter(|end| *end > 0);
            self.payload.truncate(end.ok_or_else(malformed)?);
            self.payload.remove(0);
        }
        if self.flags & PRIORITY != 0 {
            if self.payload.len() < PRIORITY_LEN {
                return Err(malformed());
            }
            self.payload.drain(..PRIORITY_LEN);
        }
        while self.flags & END_HEADERS == 0 {
            let next = Self::read(from).await?;
            if next.kind != CONTINUATION || self.payload.len() > FRAME_MAX {
                return Err(malformed());
            }
            self.payload.extend(next.payload);
            self.flags |= next.flags & END_HEADERS;
        }
        self.flags &= !(PADDED | PRIORITY);
        Ok(())
    }
}

/// The header block with `:authority` replaced; `None` if it is malformed.
fn replace(block: &[u8]) -> Option<Vec<u8>> {
    let mut out = Vec::with_capacity(block.len());
    let mut rest = block;
    while let Some(first) = rest.first() {
        let start = rest;
        // RFC 7541 §6: an index, a literal in three kinds, or a table size.
        let (bits, is_literal) = match first {
            0x80.. => (7, false),
            0x40..0x80 => (6, true),
            0x20..0x40 => (5, false),
            ..0x20 => (4, true),
        };
        let name = integer(&mut rest, bits)?;
        if is_literal {
            if name == 0 {
                string(&mut rest)?;
            }
            let head = &start[..start.len() - rest.len()];
            let value = string(&mut rest)?;
            out.extend(head);
            if name == AUTHORITY_INDEX {
                out.push(u8::try_from(AUTHORITY.len()).ok()?);
                out.extend(AUTHORITY);
            } else {
                out.extend(value);
            }
        } else {
            out.extend(&start[..start.len() - rest.len()]);
        }
    }
    Some(out)
}

/// An integer with an N-bit prefix (§5.1).
fn integer(rest: &mut &[u8], bits: u32) -> Option<usize> {
    let (first, mut tail) = rest.split_first()?;
    let max = (1_usize << bits) - 1;
    let mut value = usize::from(*first) & max;
    let mut shift = 0;
    while value >= max || shift > 0 {
        let (byte, after) = tail.split_first()?;
        tail = after;
        value = value.checked_add((usize::from(*byte) & 0x7f).checked_shl(shift)?)?;
        shift += 7;
        if byte & 0x80 == 0 {
            break;
        }
        if shift > 21 {
            return None;
        }
    }
    *rest = tail;
    Some(value)
}

/// A string in its encoded form, with or without Huffman coding (§5.2).
fn string<'a>(rest: &mut &'a [u8]) -> Option<&'a [u8]> {
    let start = *rest;
    let length = integer(rest, 7)?;
    *rest = rest.get(length..)?;
    Some(&start[..start.len() - rest.len()])
}

fn malformed() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "malformed HTTP/2 frame")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_authority_changes() {
        // RFC 7541 C.3.1: :method GET, :scheme http, :path /, :authority www.example.com.
        let mut block = vec![0x82, 0x86, 0x84, 0x41, 0x0f];
        block.extend(b"www.example.com");
        // A literal with a new name, not indexed; a table size; an index above 127.
        let tail = [0x00, 0x01, b'a', 0x01, b'%', 0x3f, 0xe1, 0x1f, 0xff, 0x03];
        block.extend(tail);
        let mut expected = vec![0x82, 0x86, 0x84, 0x41, 0x09];
        expected.extend(b"localhost");
        expected.extend(tail);
        assert_eq!(replace(&block), Some(expected));
    }

    #[test]
    fn a_huffman_coded_authority_is_replaced() {
        // C.4.1, the same Huffman-coded.
        let coded = [0xf1, 0xe3, 0xc2, 0xe5, 0xf2, 0x3a, 0x6b, 0xa0, 0xab, 0x90, 0xf4, 0xff];
        let mut block = vec![0x82, 0x41, 0x8c];
        block.extend(coded);
        block.push(0x84);
        let expected = [&[0x82, 0x41, 0x09][..], b"localhost", &[0x84]].concat();
        assert_eq!(replace(&block), Some(expected));
    }

    proptest::proptest! {
        #[test]
        fn no_bytes_panic(bytes: Vec<u8>) {
            if let Some(once) = replace(&bytes) {
                proptest::prop_assert_eq!(replace(&once), Some(once.clone()));
            }
        }
    }
}
