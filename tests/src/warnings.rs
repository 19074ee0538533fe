//! The warnings that kubectl shows: `Warning` headers of kube-apiserver, which clients that return
//! objects drop.

use anyhow::Context;
use http::{Request, header::WARNING};
use kube::client::Body;
use serde_json::json;

use crate::ControlPlane;

/// Creates an object in a dry run; returns the warnings in the response. `group` is `api/v1` or
/// `apis/GROUP/VERSION`.
pub async fn of_create(
    plane: &ControlPlane,
    namespace: &str,
    group: &str,
    resource: &str,
    body: Vec<u8>,
) -> anyhow::Result<Vec<String>> {
    let path = format!("/{group}/namespaces/{namespace}/{resource}?dryRun=All");
    let request = Request::post(path).header("content-type", "application/json");
    of_answer(plane, request.body(Body::from(body))?).await
}

/// Annotates a pod in a dry run, as `kubectl annotate` does; returns the warnings in the response.
pub async fn of_annotating(
    plane: &ControlPlane,
    (namespace, pod): (&str, &str),
    (key, value): (&str, &str),
) -> anyhow::Result<Vec<String>> {
    let path = format!("/api/v1/namespaces/{namespace}/pods/{pod}?dryRun=All");
    let body = json!({ "metadata": { "annotations": { key: value } } }).to_string();
    let request = Request::patch(path).header("content-type", "application/merge-patch+json");
    of_answer(plane, request.body(Body::from(body.into_bytes()))?).await
}

async fn of_answer(plane: &ControlPlane, request: Request<Body>) -> anyhow::Result<Vec<String>> {
    let answer = plane.client().send(request).await?;
    anyhow::ensure!(answer.status().is_success(), "{}", answer.status());
    let headers = answer.headers().get_all(WARNING).iter();
    headers.map(|header| text(header.to_str()?)).collect()
}

/// Parses the text of `299 - "text"`.
fn text(header: &str) -> anyhow::Result<String> {
    let quoted = header.split_once('"').and_then(|(_, rest)| rest.rsplit_once('"'));
    let (text, _) = quoted.with_context(|| format!("`{header}` is not a warning"))?;
    Ok(text.replace("\\\"", "\"").replace("\\\\", "\\"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_text_of_a_warning_is_unquoted() {
        assert_eq!(text(r#"299 - "say \"a\" \\ b""#).unwrap(), r#"say "a" \ b"#);
        assert!(text("299 - none").is_err());
    }
}
