//! One session with a runtime, without its socket: bytes in, calls out, answers as
//! bytes. The plugin registers first; then the runtime calls.

use crate::runtime::nri::ProtocolError;
use crate::runtime::nri::message::{Kind, Message, MessageReader};
use crate::runtime::nri::trunk::{PLUGIN, RUNTIME, TrunkReader, frames};
use crate::runtime::nri::wire::nri::RegisterPluginRequest;
use crate::runtime::nri::wire::ttrpc::{Request, Response, Status};
use bytes::Bytes;
use prost::Message as _;

/// Where the plugin registers.
const RUNTIME_SERVICE: &str = "nri.pkg.api.v1alpha1.Runtime";
/// What the runtime calls.
const PLUGIN_SERVICE: &str = "nri.pkg.api.v1alpha1.Plugin";
/// When among the plugins this one is called: they are sorted by this.
const INDEX: &str = "10";
/// The one call that the plugin makes.
const REGISTRATION: u32 = 1;
/// `UNKNOWN` of gRPC's codes, as Go gives it to an error without one.
pub const UNKNOWN: i32 = 2;
/// `UNIMPLEMENTED` of gRPC's codes.
const UNIMPLEMENTED: i32 = 12;

/// What the runtime said.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Incoming {
    /// It has taken the plugin.
    Registered,
    /// It has not.
    Refused(String),
    /// It asks.
    Call(Call),
}

/// What the runtime asks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Call {
    stream: u32,
    /// Name of the method; empty where the service is not known.
    pub method: String,
    /// The request.
    pub payload: Vec<u8>,
}

/// Outcome of a call: the response, or what a person reads.
pub type Answer = Result<Vec<u8>, String>;

/// What was read of both connections.
#[derive(Debug, Default)]
pub struct Session {
    trunk: TrunkReader,
    plugin: MessageReader,
    runtime: MessageReader,
}

impl Session {
    /// What the plugin says first.
    pub fn registration(driver: &str) -> Vec<u8> {
        let plugin =
            RegisterPluginRequest { plugin_name: driver.to_owned(), plugin_idx: INDEX.to_owned() };
        let request = Request {
            service: RUNTIME_SERVICE.to_owned(),
            method: "RegisterPlugin".to_owned(),
            payload: plugin.encode_to_vec(),
            timeout_nano: 0,
        };
        let data = Bytes::from(request.encode_to_vec());
        let message = Message { stream: REGISTRATION, kind: Kind::Request, flags: 0, data };
        frames(RUNTIME, &message.encode())
    }

    /// Takes what was read.
    pub fn receive(&mut self, bytes: &[u8]) -> Result<Vec<Incoming>, ProtocolError> {
        self.trunk.push(bytes);
        let mut incoming = Vec::new();
        while let Some((connection, payload)) = self.trunk.next_frame()? {
            match connection {
                PLUGIN => {
                    self.plugin.push(&payload);
                    while let Some(message) = self.plugin.next_message()? {
                        incoming.extend(call(&message)?.map(Incoming::Call));
                    }
                }
                RUNTIME => {
                    self.runtime.push(&payload);
                    while let Some(message) = self.runtime.next_message()? {
                        incoming.push(outcome(&message)?);
                    }
                }
                // Nobody listens there, as in NRI's own multiplexer.
                _ => {}
            }
        }
        Ok(incoming)
    }

    /// The answer to a call.
    pub fn answer(call: &Call, answer: Answer) -> Vec<u8> {
        let error = |code, message| Response {
            status: Some(Status { code, message }),
            payload: Vec::new(),
        };
        let response = match answer {
            _ if call.method.is_empty() => error(UNIMPLEMENTED, "no such service".to_owned()),
            Ok(payload) => Response { status: None, payload },
            Err(message) => error(UNKNOWN, message),
        };
        let data = Bytes::from(response.encode_to_vec());
        let message = Message { stream: call.stream, kind: Kind::Response, flags: 0, data };
        frames(PLUGIN, &message.encode())
    }
}

/// A call of the runtime's. Data belong to streams, of which NRI has none.
fn call(message: &Message) -> Result<Option<Call>, ProtocolError> {
    let stream = message.stream;
    match message.kind {
        Kind::Data => return Ok(None),
        Kind::Response => return Err(ProtocolError::Unasked { stream }),
        Kind::Request if stream.is_multiple_of(2) => return Err(ProtocolError::Stream { stream }),
        Kind::Request => {}
    }
    let request = Request::decode(&message.data[..])?;
    let is_known = request.service == PLUGIN_SERVICE;
    let method = if is_known { request.method } else { String::new() };
    Ok(Some(Call { stream, method, payload: request.payload }))
}

/// What became of the registration.
fn outcome(message: &Message) -> Result<Incoming, ProtocolError> {
    let stream = message.stream;
    if message.kind != Kind::Response || stream != REGISTRATION {
        return Err(ProtocolError::Unasked { stream });
    }
    let response = Response::decode(&message.data[..])?;
    let refusal = response.status.filter(|status| status.code != 0);
    Ok(refusal.map_or(Incoming::Registered, |status| Incoming::Refused(status.message)))
}

#[cfg(test)]
mod tests;
