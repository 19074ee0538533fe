//! Debug pages: why a pod's nodes have their scores, and what is on a node.
//!
//! Open on loopback; elsewhere the operations token is required.

use crate::pages::PodPage;
use crate::prioritize::Ranker;
use axum::Json;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use cluster_model::view::ObjectKey;
use serde::Deserialize;
use std::path::PathBuf;
use subtle::ConstantTimeEq as _;

/// Who has access to the debug pages.
#[derive(Clone, Debug)]
pub(crate) enum Access {
    /// Everyone who reaches the socket, which is on loopback.
    Loopback,
    /// Requests with the token in this file.
    Token(PathBuf),
    /// Nobody.
    Closed,
}

/// Why access is refused.
type Refusal = (StatusCode, &'static str);

/// The query of `/debug/explain`.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct ExplainQuery {
    /// `namespace/name`.
    pod: String,
}

impl Access {
    /// Checks access; returns the reason if it is refused.
    pub(crate) async fn check(&self, headers: &HeaderMap) -> Result<(), Refusal> {
        match self {
            Self::Loopback => Ok(()),
            Self::Closed => Err((
                StatusCode::FORBIDDEN,
                "/debug is open on loopback, or with --operations-token-file\n",
            )),
            Self::Token(file) => {
                let Ok(token) = tokio::fs::read_to_string(file).await else {
                    return Err((StatusCode::FORBIDDEN, "the operations token cannot be read\n"));
                };
                let given = headers.get(header::AUTHORIZATION).map(HeaderValue::as_bytes);
                let given = given.and_then(|value| value.strip_prefix(b"Bearer "));
                if given.is_some_and(|given| is_same(given, token.trim().as_bytes())) {
                    return Ok(());
                }
                Err((StatusCode::UNAUTHORIZED, "send the operations token as Bearer\n"))
            }
        }
    }
}

/// Compares in constant time. An empty token never matches.
fn is_same(given: &[u8], token: &[u8]) -> bool {
    !token.is_empty() && given.ct_eq(token).into()
}

/// The table of a pod's latest answer.
pub(crate) fn explain(query: &ExplainQuery, ranker: &Ranker) -> Response {
    let Some((namespace, name)) = query.pod.split_once('/') else {
        return (StatusCode::BAD_REQUEST, "set ?pod=NAMESPACE/NAME\n").into_response();
    };
    let key = ObjectKey { namespace: namespace.to_owned(), name: name.to_owned() };
    if let Some(answer) = ranker.last_answer(&key) {
        return Json(PodPage::new(&answer)).into_response();
    }
    let text = format!(
        "no recent answer about pod `{key}`: the scheduler has not asked about it lately, or \
         only one node was left for it\n"
    );
    (StatusCode::NOT_FOUND, text).into_response()
}

/// The response for a node without a page.
pub(crate) fn no_node(name: &str) -> Response {
    let text = format!("node `{name}` has published no GPU and no NIC\n");
    (StatusCode::NOT_FOUND, text).into_response()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn debug_is_open_on_loopback_or_with_the_token() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("token");
        std::fs::write(&file, "secret\n").unwrap();
        let ask = async |access: Access, given: Option<&str>| {
            let mut headers = HeaderMap::new();
            if let Some(given) = given {
                headers.insert(header::AUTHORIZATION, given.parse().unwrap());
            }
            access.check(&headers).await.map_err(|(status, _)| status.as_u16())
        };
        let token = || Access::Token(file.clone());
        assert_eq!(ask(Access::Loopback, None).await, Ok(()));
        assert_eq!(ask(Access::Closed, Some("Bearer secret")).await, Err(403));
        assert_eq!(ask(token(), Some("Bearer secret")).await, Ok(()));
        for given in [None, Some("secret"), Some("Bearer secre"), Some("Bearer secretx")] {
            assert_eq!(ask(token(), given).await, Err(401), "{given:?}");
        }
        std::fs::write(&file, "").unwrap();
        assert_eq!(ask(token(), Some("Bearer ")).await, Err(401), "an empty token opens nothing");
        let gone = Access::Token(folder.path().join("none"));
        assert_eq!(ask(gone, Some("Bearer secret")).await, Err(403));
    }
}
