//! Who may read the page: whoever has the token, by an address of this machine. Other web pages in the
//! same browser have neither.

use super::Site;
use crate::ui::page;
use anyhow::Context as _;
use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use std::fmt::Write as _;
use std::fs::File;
use std::io::Read as _;
use std::sync::Arc;
use subtle::ConstantTimeEq as _;

/// The length of a token before it is written in hexadecimal.
const BYTES: usize = 24;

/// The names of this machine in a Host header. A name of another site that leads to 127.0.0.1 is not one
/// (DNS rebinding).
const HOSTS: [&str; 3] = ["127.0.0.1", "localhost", "[::1]"];

/// A secret that is new for each run.
pub(super) struct Token(String);

impl Token {
    pub(super) fn new() -> anyhow::Result<Self> {
        let mut bytes = [0; BYTES];
        let source = File::open("/dev/urandom").and_then(|mut file| file.read_exact(&mut bytes));
        source.context("failed to read random bytes from /dev/urandom")?;
        let text = bytes.iter().fold(String::new(), |mut text, byte| {
            // Writing to a String cannot fail.
            let _ = write!(text, "{byte:02x}");
            text
        });
        Ok(Self(text))
    }

    pub(super) fn text(&self) -> &str {
        &self.0
    }

    /// Returns true if a query has the token. The time does not tell how much of it is right.
    fn is_in(&self, query: &str) -> bool {
        let given = query.split('&').find_map(|part| part.strip_prefix("token="));
        given.unwrap_or_default().as_bytes().ct_eq(self.0.as_bytes()).into()
    }
}

/// Returns true if a request names this machine.
fn is_of_this_machine(headers: &HeaderMap) -> bool {
    let host = headers.get(header::HOST).and_then(|host| host.to_str().ok()).unwrap_or_default();
    let name = host.rsplit_once(':').filter(|(_, port)| port.bytes().all(|it| it.is_ascii_digit()));
    HOSTS.contains(&name.map_or(host, |(name, _)| name))
}

/// Refuses requests of others, and adds what browsers are to do with answers.
pub(super) async fn check(State(site): State<Arc<Site>>, request: Request, next: Next) -> Response {
    if !is_of_this_machine(request.headers()) {
        let text = "this page is for its own machine: open it as http://127.0.0.1:PORT";
        return (StatusCode::FORBIDDEN, text).into_response();
    }
    if !site.token.is_in(request.uri().query().unwrap_or_default()) {
        let text = "the address lacks its token: open the one that `kubectl dranet ui` printed";
        return (StatusCode::FORBIDDEN, text).into_response();
    }
    let mut answer = next.run(request).await;
    let Ok(headers) = protection() else {
        return StatusCode::INTERNAL_SERVER_ERROR.into_response();
    };
    answer.headers_mut().extend(headers);
    answer
}

fn protection() -> anyhow::Result<[(HeaderName, HeaderValue); 6]> {
    let policy = format!("{}; frame-ancestors 'none'", page::policy()?);
    Ok([
        (header::CONTENT_SECURITY_POLICY, HeaderValue::from_str(&policy)?),
        (header::CACHE_CONTROL, HeaderValue::from_static("no-store")),
        (header::REFERRER_POLICY, HeaderValue::from_static("no-referrer")),
        (header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff")),
        (
            HeaderName::from_static("cross-origin-opener-policy"),
            HeaderValue::from_static("same-origin"),
        ),
        (
            HeaderName::from_static("cross-origin-resource-policy"),
            HeaderValue::from_static("same-origin"),
        ),
    ])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_whole_token_opens_the_page() {
        let token = Token("ab12".to_owned());
        for (query, is_right) in [
            ("token=ab12", true),
            ("pod=a%2Fb&token=ab12", true),
            ("", false),
            ("token=", false),
            ("token=ab1", false),
            ("token=ab123", false),
            ("token=ab13", false),
            ("xtoken=ab12", false),
        ] {
            assert_eq!(token.is_in(query), is_right, "{query}");
        }
        assert_ne!(Token::new().unwrap().text(), Token::new().unwrap().text());
    }

    #[test]
    fn a_name_of_another_site_is_refused() {
        for (host, is_own) in [
            ("127.0.0.1:8080", true),
            ("localhost:8080", true),
            ("localhost", true),
            ("[::1]:8080", true),
            ("evil.example:8080", false),
            ("127.0.0.1.evil.example:8080", false),
            ("evil.example:127.0.0.1", false),
            ("", false),
        ] {
            let mut headers = HeaderMap::new();
            headers.insert(header::HOST, host.parse().unwrap());
            assert_eq!(is_of_this_machine(&headers), is_own, "{host}");
        }
        assert!(!is_of_this_machine(&HeaderMap::new()));
    }
}
