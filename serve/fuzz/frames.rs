//! Frames of HTTP/2 (RFC 9113) from bytes: mostly valid ones, in any order, so that inputs get further
//! than the first error.

/// The most frames of a connection.
const FRAMES_MAX: usize = 200;
/// Initial windows of streams.
const WINDOWS: [u32; 6] = [0, 1, 100, 65_535, 0x7fff_ffff, 0x8000_0000];

/// The preface, settings and frames.
pub(crate) fn of(bytes: &[u8]) -> Vec<u8> {
    let mut input = Input(bytes);
    let window = WINDOWS[usize::from(input.byte()) % WINDOWS.len()];
    let mut sent = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec();
    sent.extend(frame(4, 0, 0, &setting(4, window)));
    for _ in 0..FRAMES_MAX {
        if input.0.is_empty() {
            break;
        }
        sent.extend(next(&mut input));
    }
    sent
}

/// The bytes that are left.
struct Input<'b>(&'b [u8]);

impl<'b> Input<'b> {
    fn byte(&mut self) -> u8 {
        let Some((first, rest)) = self.0.split_first() else { return 0 };
        self.0 = rest;
        *first
    }

    fn number(&mut self) -> u32 {
        u32::from_be_bytes([self.byte(), self.byte(), self.byte(), self.byte()])
    }

    fn text(&mut self, longest: usize) -> &'b [u8] {
        let length = usize::from(self.byte()).min(longest).min(self.0.len());
        let (text, rest) = self.0.split_at(length);
        self.0 = rest;
        text
    }
}

fn next(input: &mut Input<'_>) -> Vec<u8> {
    let (kind, stream) = (input.byte() % 16, stream(input.byte()));
    match kind {
        0..=3 => frame(1, 0x5, stream, &request(kind, input.byte())),
        4 => frame(0, input.byte() & 0x9, stream, input.text(200)),
        5 => frame(0, 1, stream, &vec![b'a'; usize::from(input.byte()) * 256]),
        6 => frame(3, 0, stream, &input.number().to_be_bytes()),
        7 => frame(4, input.byte() & 1, 0, &setting(u16::from(input.byte() % 8), input.number())),
        8 => frame(8, 0, stream, &input.number().to_be_bytes()),
        9 => frame(8, 0, 0, &input.number().to_be_bytes()),
        10 => frame(6, input.byte() & 1, 0, &[0; 8]),
        11 => frame(1, input.byte(), stream, input.text(100)),
        12 => frame(9, input.byte(), stream, input.text(100)),
        13 => frame(7, 0, 0, &[0; 8]),
        14 => frame(input.byte(), input.byte(), input.number(), input.text(255)),
        _ => input.text(100).to_vec(),
    }
}

/// Streams of clients are odd; some are not.
fn stream(byte: u8) -> u32 {
    match byte {
        0..=0xef => u32::from(byte % 64) * 2 + 1,
        other => u32::from(other & 0xf),
    }
}

/// `GET /large`, `GET /small`, `POST /body` or another path, without an indexed table.
fn request(kind: u8, byte: u8) -> Vec<u8> {
    let (method, path): (u8, &[u8]) = match kind {
        0 => (0x82, b"/large"),
        1 => (0x82, b"/small"),
        2 => (0x83, b"/body"),
        _ => (0x82, b"/none"),
    };
    let mut head = vec![method, 0x87, 0x04, u8::try_from(path.len()).unwrap_or(0)];
    head.extend(path);
    head.extend([0x01, 1, b'a', byte]);
    // An indexed header of the static table, mostly without a value.
    if !(0x8f..=0xbd).contains(&byte) {
        head.pop();
    }
    head
}

fn setting(name: u16, value: u32) -> Vec<u8> {
    [&name.to_be_bytes()[..], &value.to_be_bytes()].concat()
}

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap_or(0).to_be_bytes();
    let mut frame = length[1..].to_vec();
    frame.extend([kind, flags]);
    frame.extend(stream.to_be_bytes());
    frame.extend(payload);
    frame
}
