//! What a person asks: why a pod's nodes have their points, and what is on a node.
//!
//! Open on loopback, else to whoever has the operations token.

use crate::answer::{Reason, Scored};
use crate::prioritize::Ranker;
use axum::Json;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{Html, IntoResponse, Response};
use cluster_model::node_devices::{Role, address, published};
use cluster_model::view::{ClusterView, ObjectKey};
use serde::{Deserialize, Serialize};
use std::fmt::Write as _;
use std::path::PathBuf;

/// Who may ask.
#[derive(Clone, Debug)]
pub(crate) enum Access {
    /// Whoever reaches the socket, which is on loopback.
    Loopback,
    /// Whoever has the token in the file.
    Token(PathBuf),
    /// Nobody.
    Closed,
}

/// Why somebody may not.
type Refusal = (StatusCode, &'static str);

/// The query of `/debug/explain`.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct ExplainQuery {
    /// `namespace/name`.
    pod: String,
}

/// The points of one node for a pod.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Row {
    /// The node, or the pod where the question is for a node.
    of: String,
    score: i64,
    /// `predicted`, `likely` or `unknown`.
    basis: &'static str,
    alternative: Option<u32>,
    path: Option<String>,
    degraded: Option<u32>,
    /// In millionths of a device.
    loss: Option<u64>,
    left: Option<u32>,
    devices: Vec<String>,
    reason: Option<String>,
}

#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Device {
    id: String,
    address: Option<String>,
    kind: &'static str,
    holder: Option<String>,
}

#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct NodePage {
    node: String,
    fabric: Option<String>,
    devices: Vec<Device>,
    /// The points that it had for the pods of late.
    pods: Vec<Row>,
}

impl Access {
    /// Lets the request pass, or says why not.
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

/// In a time that tells nothing of where they differ; an empty token opens nothing.
fn is_same(given: &[u8], token: &[u8]) -> bool {
    let differs = given.iter().zip(token).fold(0, |all, (a, b)| all | (a ^ b));
    !token.is_empty() && given.len() == token.len() && differs == 0
}

/// The table of a pod's last answer.
pub(crate) fn explain(query: &ExplainQuery, ranker: &Ranker, headers: &HeaderMap) -> Response {
    let Some((namespace, name)) = query.pod.split_once('/') else {
        return (StatusCode::BAD_REQUEST, "ask with ?pod=NAMESPACE/NAME\n").into_response();
    };
    let key = ObjectKey { namespace: namespace.to_owned(), name: name.to_owned() };
    let Some(answer) = ranker.last_answer(&key) else {
        let text = format!("the scheduler has not asked about pod `{key}` of late\n");
        return (StatusCode::NOT_FOUND, text).into_response();
    };
    let mut rows: Vec<Row> =
        answer.nodes.iter().map(|scored| row(scored.node.clone(), scored)).collect();
    rows.sort_by(|a, b| b.score.cmp(&a.score).then_with(|| a.of.cmp(&b.of)));
    if wants_html(headers) {
        return Html(page(&format!("Pod {key}"), &table("node", &rows))).into_response();
    }
    Json(rows).into_response()
}

/// Devices of a node, who has them, and its points of late.
pub(crate) fn node(
    name: &str,
    ranker: &Ranker,
    view: &ClusterView,
    headers: &HeaderMap,
) -> Response {
    let devices: Vec<Device> = published(view, name)
        .map(|(role, device)| Device {
            id: device.id().to_string(),
            address: address(device).map(|address| address.to_string()),
            kind: match role {
                Role::Gpu => "gpu",
                Role::Nic => "nic",
            },
            holder: view.inventory().holder(device.id()).map(ToString::to_string),
        })
        .collect();
    if devices.is_empty() {
        let text = format!("node `{name}` has published no GPU and no NIC\n");
        return (StatusCode::NOT_FOUND, text).into_response();
    }
    let pods = ranker.last_answers_on(name);
    let pods = pods.iter().map(|(pod, scored)| row(pod.to_string(), scored)).collect();
    let fabric = view.fabric(name).map(str::to_owned);
    let page_of = NodePage { node: name.to_owned(), fabric, devices, pods };
    if wants_html(headers) {
        let mut body = String::from("<table><tr><th>device<th>address<th>kind<th>holder");
        for Device { id, address, kind, holder } in &page_of.devices {
            let cells = [Some(id), address.as_ref(), Some(&(*kind).to_owned()), holder.as_ref()]
                .map(|cell| escape(cell.map_or("", String::as_str)));
            let _infallible = write!(body, "<tr><td>{}", cells.join("<td>"));
        }
        body.push_str("</table>");
        body.push_str(&table("pod", &page_of.pods));
        return Html(page(&format!("Node {name}"), &body)).into_response();
    }
    Json(page_of).into_response()
}

fn row(of: String, scored: &Scored) -> Row {
    let (basis, known, reason) = match &scored.reason {
        Reason::Predicted(outcome, forecast) => ("predicted", Some((outcome, forecast)), None),
        Reason::Likely(outcome, forecast) => ("likely", Some((outcome, forecast)), None),
        Reason::Unknown(reason) => ("unknown", None, Some(reason.to_string())),
    };
    let outcome = known.map(|(outcome, _)| outcome);
    Row {
        of,
        score: scored.score,
        basis,
        alternative: outcome.map(|outcome| outcome.gets.alternative),
        path: outcome.and_then(|outcome| outcome.gets.path).map(|path| path.to_string()),
        degraded: outcome.map(|outcome| outcome.gets.degraded),
        loss: outcome.map(|outcome| outcome.cost.loss),
        left: outcome.map(|outcome| outcome.cost.left),
        devices: known.into_iter().flat_map(|(_, f)| &f.taken).map(ToString::to_string).collect(),
        reason,
    }
}

fn wants_html(headers: &HeaderMap) -> bool {
    let accept = headers.get(header::ACCEPT).and_then(|value| value.to_str().ok());
    accept.is_some_and(|accept| accept.contains("text/html"))
}

fn table(of: &str, rows: &[Row]) -> String {
    let mut text = format!(
        "<table><tr><th>{of}<th>score<th>basis<th>alternative<th>path<th>degraded<th>loss<th>left\
         <th>devices"
    );
    let number = |value: Option<u64>| value.map_or_else(String::new, |value| value.to_string());
    for row in rows {
        let Row { of, score, basis, alternative, path, degraded, loss, left, devices, reason } =
            row;
        let cells = [
            of.clone(),
            score.to_string(),
            (*basis).to_owned(),
            number(alternative.map(u64::from)),
            path.clone().unwrap_or_default(),
            number(degraded.map(u64::from)),
            number(*loss),
            number(left.map(u64::from)),
            reason.clone().unwrap_or_else(|| devices.join(" ")),
        ];
        let cells: Vec<_> = cells.iter().map(|cell| escape(cell)).collect();
        let _infallible = write!(text, "<tr><td>{}", cells.join("<td>"));
    }
    text + "</table>"
}

fn page(title: &str, body: &str) -> String {
    let title = escape(title);
    format!(
        "<!doctype html><meta charset=utf-8><title>{title}</title>\
         <style>td,th{{padding:0 1em 0 0;text-align:left}}</style><h1>{title}</h1>{body}"
    )
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
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

    #[test]
    fn pages_hold_text_as_text() {
        assert_eq!(escape("<a href=\"&\">"), "&lt;a href=&quot;&amp;&quot;&gt;");
    }
}
