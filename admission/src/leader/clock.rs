//! The time at the API server. Certificates are for its clock: one that a leader with a wrong clock
//! makes would be refused.

use super::{LeaderError, reading};
use axum::http::{Request, header};
use k8s_openapi::jiff::{SignedDuration, Timestamp, fmt::rfc2822};
use kube::Client;
use kube::client::Body;

/// The difference of clocks that is worth a warning.
const SKEW: SignedDuration = SignedDuration::from_mins(5);

/// The time in the header `Date` of an answer of the API server; our own time if a proxy removes
/// the header.
pub(super) async fn now_at_the_api_server(client: &Client) -> Result<Timestamp, LeaderError> {
    let request = Request::get("/version").body(Body::empty()).map_err(kube::Error::HttpError);
    let answer = match request {
        Ok(request) => client.send(request).await,
        Err(error) => Err(error),
    };
    let answer = answer.map_err(reading("the time of the API server from", "/version"))?;
    let date = answer.headers().get(header::DATE).and_then(|date| date.to_str().ok());
    let now = Timestamp::now();
    let Some(theirs) = date.and_then(parsed) else { return Ok(now) };
    let ahead = now.duration_since(theirs);
    if ahead.abs() > SKEW {
        let seconds = ahead.as_secs();
        tracing::warn!(seconds, "The clock here is ahead of the API server's; its time is used");
    }
    Ok(theirs)
}

/// Parses a date of HTTP (`IMF-fixdate` of RFC 9110).
fn parsed(date: &str) -> Option<Timestamp> {
    rfc2822::DateTimeParser::new().parse_timestamp(date).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_of_http_are_parsed() {
        let time = parsed("Thu, 26 Nov 2026 20:00:01 GMT");
        assert_eq!(time, "2026-11-26T20:00:01Z".parse().ok());
        assert_eq!(parsed("yesterday"), None);
    }
}
