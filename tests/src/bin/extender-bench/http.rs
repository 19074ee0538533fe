//! A persistent connection like kube-scheduler's, timed from the first byte of the request to the
//! last byte of the response. A client library would add its own time.

use std::{
    io::{Read, Write},
    net::{SocketAddr, TcpStream},
    time::{Duration, Instant},
};

use anyhow::Context;

/// Bytes that are read at a time.
const PART: usize = 1 << 16;

/// An open connection.
#[derive(Debug)]
pub(crate) struct Connection {
    stream: TcpStream,
    answer: Vec<u8>,
    /// Made once: it would be timed as well.
    part: Vec<u8>,
}

impl Connection {
    /// Opens a connection.
    pub(crate) fn open(address: SocketAddr) -> anyhow::Result<Self> {
        let stream = TcpStream::connect(address)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(Duration::from_secs(30)))?;
        Ok(Self { stream, answer: Vec::new(), part: vec![0; PART] })
    }

    /// Requests priorities; [`Self::body`] then returns the response's body.
    pub(crate) fn ask(&mut self, body: &str) -> anyhow::Result<Duration> {
        let head = format!(
            "POST /prioritize HTTP/1.1\r\nhost: extender\r\ncontent-type: application/json\r\n\
             content-length: {}\r\n\r\n",
            body.len()
        );
        let request = head + body;
        let begin = Instant::now();
        self.stream.write_all(request.as_bytes())?;
        self.read_answer()?;
        Ok(begin.elapsed())
    }

    /// The body of the last response.
    pub(crate) fn body(&self) -> &[u8] {
        &self.answer
    }

    fn read_answer(&mut self) -> anyhow::Result<()> {
        let mut bytes = Vec::with_capacity(PART);
        let (head, length) = loop {
            self.more(&mut bytes)?;
            if let Some(end) = bytes.windows(4).position(|four| four == b"\r\n\r\n") {
                let head = std::str::from_utf8(&bytes[..end])?;
                anyhow::ensure!(head.starts_with("HTTP/1.1 200"), "answered {head}");
                break (end + 4, content_length(head).context("no content-length")?);
            }
        };
        while bytes.len() < head + length {
            self.more(&mut bytes)?;
        }
        self.answer = bytes.split_off(head);
        Ok(())
    }

    fn more(&mut self, bytes: &mut Vec<u8>) -> anyhow::Result<()> {
        let count = self.stream.read(&mut self.part)?;
        anyhow::ensure!(count > 0, "the connection ended");
        bytes.extend_from_slice(&self.part[..count]);
        Ok(())
    }
}

fn content_length(head: &str) -> Option<usize> {
    let mut fields = head.lines().filter_map(|line| line.split_once(':'));
    let found = fields.find(|(name, _)| name.eq_ignore_ascii_case("content-length"));
    found?.1.trim().parse().ok()
}
