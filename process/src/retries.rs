//! Which answers of the API server a client waits for and asks again.

use http::{Request, Response, StatusCode};
use kube::client::Body;
use kube::client::retry::RetryPolicy;
use tower::BoxError;
use tower::retry::Policy;

/// The subresource by which pods are evicted.
const EVICTION: &str = "/eviction";

/// kube's policy, but for an eviction that a `PodDisruptionBudget` refuses. Its answer is that of an API server
/// with too many requests, and says to wait for ten seconds (`TooManyRequests` in
/// `pkg/registry/core/pod/storage/eviction.go`): with kube's fifteen tries the caller would hear of it after
/// two and a half minutes, in which it could do something else.
#[derive(Clone)]
pub(crate) struct Retries(RetryPolicy);

impl Default for Retries {
    fn default() -> Self {
        Self(RetryPolicy::server_retry())
    }
}

impl<T> Policy<Request<Body>, Response<T>, BoxError> for Retries {
    type Future = <RetryPolicy as Policy<Request<Body>, Response<T>, BoxError>>::Future;

    fn retry(
        &mut self,
        request: &mut Request<Body>,
        result: &mut Result<Response<T>, BoxError>,
    ) -> Option<Self::Future> {
        let is_refused = result
            .as_ref()
            .is_ok_and(|response| response.status() == StatusCode::TOO_MANY_REQUESTS);
        if is_refused && request.uri().path().ends_with(EVICTION) {
            return None;
        }
        self.0.retry(request, result)
    }

    fn clone_request(&mut self, request: &Request<Body>) -> Option<Request<Body>> {
        Policy::<_, Response<T>, _>::clone_request(&mut self.0, request)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_refused_eviction_is_an_answer() {
        for (path, status, is_asked_again) in [
            ("/api/v1/namespaces/n/pods/p/eviction", 429, false),
            ("/api/v1/namespaces/n/pods/p/eviction", 503, true),
            ("/api/v1/namespaces/n/pods", 429, true),
            ("/api/v1/namespaces/n/pods", 200, false),
        ] {
            let mut request = Request::post(path).body(Body::empty()).unwrap();
            let response = Response::builder().status(status).header("Retry-After", "10");
            let mut result = Ok(response.body(()).unwrap());
            let again = Retries::default().retry(&mut request, &mut result);
            assert_eq!(again.is_some(), is_asked_again, "{path} {status}");
        }
    }
}
