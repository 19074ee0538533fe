use super::*;

/// A call as containerd's ttrpc client sends it.
fn sent(stream: u32, service: &str, payload: &[u8]) -> Vec<u8> {
    let request = Request {
        service: service.to_owned(),
        method: "RunPodSandbox".to_owned(),
        payload: payload.to_vec(),
        timeout_nano: 2_000_000_000,
    };
    let data = Bytes::from(request.encode_to_vec());
    frames(PLUGIN, &Message { stream, kind: MessageKind::Request, flags: 0, data }.encode())
}

fn replied(connection: u32, stream: u32, response: &Response) -> Vec<u8> {
    let data = Bytes::from(response.encode_to_vec());
    frames(connection, &Message { stream, kind: MessageKind::Response, flags: 0, data }.encode())
}

/// Parses a plugin's bytes as the runtime would.
fn response(bytes: &[u8]) -> (u32, Response) {
    let mut trunk = TrunkReader::default();
    trunk.push(bytes);
    let mut messages = MessageReader::default();
    while let Some((connection, payload)) = trunk.next_frame().unwrap() {
        assert_eq!(connection, PLUGIN);
        messages.push(&payload);
    }
    let message = messages.next_message().unwrap().unwrap();
    (message.stream, Response::decode(&message.data[..]).unwrap())
}

#[test]
fn the_plugin_registers_by_name_and_index() {
    let bytes = Session::registration("dra.net");
    let mut trunk = TrunkReader::default();
    trunk.push(&bytes);
    let (connection, payload) = trunk.next_frame().unwrap().unwrap();
    assert_eq!(connection, RUNTIME);
    let mut messages = MessageReader::default();
    messages.push(&payload);
    let message = messages.next_message().unwrap().unwrap();
    assert_eq!((message.stream, message.kind), (1, MessageKind::Request));
    let request = Request::decode(&message.data[..]).unwrap();
    assert_eq!(request.service, "nri.pkg.api.v1alpha1.Runtime");
    assert_eq!(request.method, "RegisterPlugin");
    let plugin = RegisterPluginRequest::decode(&request.payload[..]).unwrap();
    assert_eq!((plugin.plugin_name.as_str(), plugin.plugin_idx.as_str()), ("dra.net", "10"));
}

#[test]
fn the_runtime_accepts_or_refuses_the_plugin() {
    let mut session = Session::default();
    let taken = replied(RUNTIME, 1, &Response::default());
    assert_eq!(session.receive(&taken).unwrap(), [Incoming::Registered]);
    let status = Status { code: 2, message: "invalid plugin name".to_owned() };
    let refused = replied(RUNTIME, 1, &Response { status: Some(status), payload: Vec::new() });
    let refusal = Incoming::Refused("invalid plugin name".to_owned());
    assert_eq!(session.receive(&refused).unwrap(), [refusal]);
}

#[test]
fn calls_are_answered_on_their_streams() {
    let mut session = Session::default();
    let mut bytes = sent(3, PLUGIN_SERVICE, b"pod");
    bytes.extend(sent(5, "nri.pkg.api.v2.Plugin", b""));
    // In two reads, split within a header.
    let mut incoming = session.receive(&bytes[..5]).unwrap();
    incoming.extend(session.receive(&bytes[5..]).unwrap());
    let [Incoming::Call(known), Incoming::Call(other)] = &incoming[..] else {
        panic!("{incoming:?}")
    };
    assert_eq!((known.method.as_str(), &known.payload[..]), ("RunPodSandbox", &b"pod"[..]));

    let (stream, done) = response(&Session::answer(known, Ok(b"done".to_vec())));
    assert_eq!((stream, done.status, &done.payload[..]), (3, None, &b"done"[..]));
    let long = "x".repeat(10_000);
    let (_, failed) = response(&Session::answer(known, Err(long.clone())));
    assert_eq!(failed.status, Some(Status { code: UNKNOWN, message: long }));
    let (stream, unknown) = response(&Session::answer(other, Ok(Vec::new())));
    assert_eq!((stream, unknown.status.unwrap().code), (5, UNIMPLEMENTED));
}

#[test]
fn protocol_violations_end_the_session() {
    let receive = |bytes: &[u8]| Session::default().receive(bytes).unwrap_err();
    assert_eq!(receive(&sent(2, PLUGIN_SERVICE, b"")), ProtocolError::Stream { stream: 2 });
    let unasked = replied(PLUGIN, 1, &Response::default());
    assert_eq!(receive(&unasked), ProtocolError::Unasked { stream: 1 });
    let other = replied(RUNTIME, 3, &Response::default());
    assert_eq!(receive(&other), ProtocolError::Unasked { stream: 3 });
    let data = Bytes::from_static(&[0xff]);
    let garbage = Message { stream: 1, kind: MessageKind::Request, flags: 0, data }.encode();
    assert!(matches!(receive(&frames(PLUGIN, &garbage)), ProtocolError::Payload(_)));
}
