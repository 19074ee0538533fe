//! The guest's root shell: bash behind a TCP port.

use std::time::Duration;

use anyhow::Context;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    time::timeout,
};

/// The longest run of a script.
const MAX: Duration = Duration::from_mins(5);

/// The text before the exit code on the last line.
const MARK: &str = "\nGUEST-EXIT ";

/// Runs a script in a subshell that stops at the first failure.
pub(super) async fn run(port: u16, script: &str) -> anyhow::Result<String> {
    let output = timeout(MAX, exchange(port, script))
        .await
        .with_context(|| format!("no end after {MAX:?}:\n{script}"))??;
    let (text, code) = output
        .rsplit_once(MARK)
        .with_context(|| format!("it broke off:\n{script}\nwrote:\n{output}"))?;
    anyhow::ensure!(code.trim() == "0", "exit code {}:\n{script}\nwrote:\n{text}", code.trim());
    Ok(text.to_owned())
}

/// The mark ends a script, since background programs may keep its output open.
async fn exchange(port: u16, script: &str) -> anyhow::Result<String> {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).await?;
    let wrapped =
        format!("(\nset -euo pipefail\n{script}\n) 2>&1\nprintf '\\nGUEST-EXIT %d\\n' $?\nexit\n");
    stream.write_all(wrapped.as_bytes()).await?;
    let mut output = Vec::new();
    loop {
        let count = stream.read_buf(&mut output).await?;
        let text = String::from_utf8_lossy(&output);
        let ended = text.rsplit_once(MARK).is_some_and(|(_, code)| code.ends_with('\n'));
        if ended || count == 0 {
            return Ok(text.into_owned());
        }
    }
}
