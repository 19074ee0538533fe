//! One session with a runtime, without its socket: takes bytes, returns calls, encodes
//! answers. The plugin registers first; then the runtime calls.

use crate::runtime::nri::ProtocolError;
use crate::runtime::nri::message::{Message, MessageKind, MessageReader};
use crate::runtime::nri::trunk::{PLUGIN, RUNTIME, TrunkReader, frames};
use crate::runtime::nri::wire::nri::RegisterPluginRequest;
use crate::runtime::nri::wire::ttrpc::{Request, Response, Status};
use bytes::Bytes;
use prost::Message as _;

/// The runtime's service, at which the plugin registers.
const RUNTIME_SERVICE: &str = "nri.pkg.api.v1alpha1.Runtime";
/// The plugin's service, which the runtime calls.
const PLUGIN_SERVICE: &str = "nri.pkg.api.v1alpha1.Plugin";
/// The plugin's index; the runtime calls plugins in the order of their indices.
const INDEX: &str = "10";
/// Stream of the plugin's only call.
const REGISTRATION: u32 = 1;
/// gRPC code `UNKNOWN`, which Go uses for errors without a code.
pub const UNKNOWN: i32 = 2;
/// gRPC code `UNIMPLEMENTED`.
const UNIMPLEMENTED: i32 = 12;

/// A message from the runtime.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Incoming {
    /// The runtime registered the plugin.
    Registered,
    /// The runtime refused the plugin.
    Refused(String),
    /// The runtime calls the plugin.
    Call(Call),
}

/// A call from the runtime.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Call {
    stream: u32,
    /// The method's name; empty if the service is unknown.
    pub method: String,
    /// The request.
    pub payload: Vec<u8>,
}

/// The answer to a call: the response, or an error text.
pub type Answer = Result<Vec<u8>, String>;

/// The state of both connections.
#[derive(Debug, Default)]
pub struct Session {
    trunk: TrunkReader,
    plugin: MessageReader,
    runtime: MessageReader,
}

impl Session {
    /// Encodes the plugin's registration.
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
        let message = Message { stream: REGISTRATION, kind: MessageKind::Request, flags: 0, data };
        frames(RUNTIME, &message.encode())
    }

    /// Parses received bytes.
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
                // Other connections are ignored, as in NRI's own multiplexer.
                _ => {}
            }
        }
        Ok(incoming)
    }

    /// Encodes the answer to a call.
    pub fn answer(call: &Call, answer: Answer) -> Vec<u8> {
        let response = match answer {
            _ if call.method.is_empty() => refusal(UNIMPLEMENTED, "no such service".to_owned()),
            Ok(payload) => Response { status: None, payload },
            Err(message) => refusal(UNKNOWN, message),
        };
        let data = Bytes::from(response.encode_to_vec());
        let message = Message { stream: call.stream, kind: MessageKind::Response, flags: 0, data };
        frames(PLUGIN, &message.encode())
    }
}

/// Parses a call of the runtime. Data messages belong to streaming calls, which NRI does
/// not have.
fn call(message: &Message) -> Result<Option<Call>, ProtocolError> {
    let stream = message.stream;
    match message.kind {
        MessageKind::Data => return Ok(None),
        MessageKind::Response => return Err(ProtocolError::Unasked { stream }),
        MessageKind::Request if stream.is_multiple_of(2) => {
            return Err(ProtocolError::Stream { stream });
        }
        MessageKind::Request => {}
    }
    let request = Request::decode(&message.data[..])?;
    let is_known = request.service == PLUGIN_SERVICE;
    let method = if is_known { request.method } else { String::new() };
    Ok(Some(Call { stream, method, payload: request.payload }))
}

/// Parses the response to the registration.
fn outcome(message: &Message) -> Result<Incoming, ProtocolError> {
    let stream = message.stream;
    if message.kind != MessageKind::Response || stream != REGISTRATION {
        return Err(ProtocolError::Unasked { stream });
    }
    let response = Response::decode(&message.data[..])?;
    let refusal = response.status.filter(|status| status.code != 0);
    Ok(refusal.map_or(Incoming::Registered, |status| Incoming::Refused(status.message)))
}

fn refusal(code: i32, message: String) -> Response {
    Response { status: Some(Status { code, message }), payload: Vec::new() }
}

#[cfg(test)]
mod tests;
