//! What the API server refuses of a new pod because of a `LimitRange`, in its own words
//! (`plugin/pkg/admission/limitranger`).

use super::pods::limits;
use super::{parsed, printed};
use cluster_model::pod_containers::main_first;
use cluster_model::room::{Amounts, requests};
use dra_allocator::Quantity as Parsed;
use dra_allocator::quantity::Format;
use k8s_openapi::api::core::v1::{Container, LimitRange, LimitRangeItem, Pod};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use std::collections::BTreeMap;

/// What a container or a pod asks for.
struct Asked {
    requests: Amounts,
    limits: Amounts,
    /// How the amounts of each resource are written.
    formats: BTreeMap<String, Format>,
}

/// Why the API server refuses a new pod because of this `LimitRange`.
pub(super) fn refusal(range: &LimitRange, pod: &Pod) -> Option<String> {
    let spec = pod.spec.as_ref()?;
    let namespace = pod.metadata.namespace.as_deref().unwrap_or("default");
    if range.metadata.namespace.as_deref() != Some(namespace) {
        return None;
    }
    let mut items = range.spec.iter().flat_map(|spec| &spec.limits);
    let why = items.find_map(|item| match item.type_.as_str() {
        "Container" => main_first(spec).find_map(|it| violated(item, &of_container(it))),
        "Pod" => violated(item, &of_pod(pod)),
        _ => None,
    })?;
    let name = range.metadata.name.as_deref().unwrap_or_default();
    Some(format!("LimitRange `{name}` refuses it: {why}"))
}

fn of_pod(pod: &Pod) -> Asked {
    let containers = pod.spec.iter().flat_map(main_first);
    let formats = containers.flat_map(|container| of_container(container).formats);
    // A sum is written as its first amount is.
    let mut first = BTreeMap::new();
    for (name, format) in formats {
        first.entry(name).or_insert(format);
    }
    Asked { requests: requests(pod), limits: limits(pod), formats: first }
}

fn of_container(container: &Container) -> Asked {
    let resources = container.resources.as_ref();
    let [requests, limits] = [
        resources.and_then(|it| it.requests.as_ref()),
        resources.and_then(|it| it.limits.as_ref()),
    ];
    let all = limits.into_iter().flatten().chain(requests.into_iter().flatten());
    let formats = all.filter_map(|(name, it)| Some((name.clone(), parsed(it)?.format())));
    Asked {
        requests: Amounts::new(requests),
        limits: Amounts::new(limits),
        formats: formats.collect(),
    }
}

/// The first of its bounds that does not hold.
fn violated(item: &LimitRangeItem, asked: &Asked) -> Option<String> {
    let of = &item.type_;
    let least = item.min.iter().flatten().filter_map(|(name, bound)| {
        let why = asked.below(name, bound)?;
        Some(format!("minimum {name} usage per {of} is {}{why}", printed(bound)))
    });
    let most = item.max.iter().flatten().filter_map(|(name, bound)| {
        let why = asked.above(name, bound)?;
        Some(format!("maximum {name} usage per {of} is {}{why}", printed(bound)))
    });
    let ratio = item.max_limit_request_ratio.iter().flatten().filter_map(|(name, bound)| {
        let why = asked.beyond_ratio(name, bound)?;
        Some(format!("{name} max limit to request ratio per {of} is {}, but {why}", printed(bound)))
    });
    least.chain(most).chain(ratio).next()
}

impl Asked {
    /// An amount as Kubernetes prints it.
    fn text(&self, name: &str, milli: i64) -> String {
        let format = self.formats.get(name).copied().unwrap_or(Format::DecimalSi);
        Parsed::from_milli(milli, format).to_string()
    }

    /// The request and the limit; 0 if there is none.
    fn of(&self, name: &str) -> (i64, i64) {
        (self.requests.get(name), self.limits.get(name))
    }

    fn below(&self, name: &str, least: &Quantity) -> Option<String> {
        let least = milli(least)?;
        match self.of(name) {
            (0, _) => Some(". No request is specified".to_owned()),
            (request, _) if request < least => {
                Some(format!(", but request is {}", self.text(name, request)))
            }
            (_, limit) if limit != 0 && limit < least => {
                Some(format!(", but limit is {}", self.text(name, limit)))
            }
            _ => None,
        }
    }

    fn above(&self, name: &str, most: &Quantity) -> Option<String> {
        let most = milli(most)?;
        match self.of(name) {
            (_, 0) => Some(". No limit is specified".to_owned()),
            (_, limit) if limit > most => {
                Some(format!(", but limit is {}", self.text(name, limit)))
            }
            (request, _) if request > most => {
                Some(format!(", but request is {}", self.text(name, request)))
            }
            _ => None,
        }
    }

    fn beyond_ratio(&self, name: &str, most: &Quantity) -> Option<String> {
        let most = milli(most)?;
        match self.of(name) {
            (0, _) => Some("no request is specified or request is 0".to_owned()),
            (_, 0) => Some("no limit is specified or limit is 0".to_owned()),
            (request, limit) => {
                let millionths = i128::from(limit) * 1_000_000 / i128::from(request);
                let is_beyond = i128::from(limit) * 1000 > i128::from(most) * i128::from(request);
                let [whole, rest] = [millionths / 1_000_000, millionths % 1_000_000];
                is_beyond.then(|| format!("provided ratio is {whole}.{rest:06}"))
            }
        }
    }
}

fn milli(quantity: &Quantity) -> Option<i64> {
    parsed(quantity).map(|it| it.milli_value())
}
