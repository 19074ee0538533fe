//! The clock of the API server. Objects have its times, so decisions on how old they are use it: the
//! clock of a node may be wrong, and another replica may have decided before.

use http::{Request, header};
use k8s_openapi::jiff::{SignedDuration, Timestamp, fmt::rfc2822};
use kube::Client;
use kube::client::Body;
use std::time::Instant;

/// The difference of clocks that is worth a warning.
pub(crate) const SKEW: SignedDuration = SignedDuration::from_mins(5);

/// The time of the header `Date` of an answer of the API server; `None` if a proxy removes the header.
pub async fn time_of(client: &Client) -> kube::Result<Option<Timestamp>> {
    let request = Request::get("/version").body(Body::empty()).map_err(kube::Error::HttpError)?;
    let answer = client.send(request).await?;
    let date = answer.headers().get(header::DATE).and_then(|date| date.to_str().ok());
    Ok(date.and_then(parsed))
}

/// Parses a date of HTTP (`IMF-fixdate` of RFC 9110).
fn parsed(date: &str) -> Option<Timestamp> {
    rfc2822::DateTimeParser::new().parse_timestamp(date).ok()
}

/// The time that the API server had at an instant.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HeardTime {
    pub(crate) at: Instant,
    pub(crate) time: Timestamp,
}

impl HeardTime {
    /// The time at the API server. Between two answers, the clock that nobody sets goes on.
    pub(crate) fn now(&self, now: Instant) -> Timestamp {
        let since = SignedDuration::try_from(now.saturating_duration_since(self.at));
        since.ok().and_then(|since| self.time.checked_add(since).ok()).unwrap_or(self.time)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn dates_of_http_are_parsed() {
        let time = parsed("Thu, 26 Nov 2026 20:00:01 GMT");
        assert_eq!(time, "2026-11-26T20:00:01Z".parse().ok());
        assert_eq!(parsed("yesterday"), None);
    }

    #[test]
    fn a_time_that_was_heard_goes_on() {
        let time: Timestamp = "2026-11-26T20:00:01Z".parse().unwrap();
        let heard = HeardTime { at: Instant::now(), time };
        assert_eq!(heard.now(heard.at), time);
        let later = heard.now(heard.at + Duration::from_secs(61));
        assert_eq!(later, "2026-11-26T20:01:02Z".parse().unwrap());
    }
}
