//! Finds changes to claims that would make them fit. The allocator tries each change separately.

use super::inputs::{AttemptInputs, full_name};
use crate::claim::{AllocationMode, Ask, Claim, RequestKind, Toleration};
use crate::name::ClaimName;

/// The most characters of an expression that are shown.
const EXPRESSION: usize = 100;

/// A change to claims that would make them fit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Relaxation {
    /// Its size, for sorting: smaller changes come first, in the order in which a person would
    /// consider them.
    pub size: (u8, i64),
    /// The claim that is changed.
    pub claim: ClaimName,
    /// The change, in words for people.
    pub text: String,
}

/// The changes that would make the claims fit, smallest first. For each request, only the largest
/// count that fits is reported.
pub(super) fn relaxations(inputs: &AttemptInputs<'_>, claims: &[Claim]) -> Vec<Relaxation> {
    let mut found = Vec::new();
    for (number, claim) in claims.iter().enumerate() {
        for (index, constraint) in claim.constraints.iter().enumerate() {
            let Some(attribute) = constraint.kind.attribute() else { continue };
            if inputs.fits(&without_constraint(claims, &claim.name, index)) {
                let name = &claim.name;
                let text = format!("claim {name}: without constraint #{index} on `{attribute}`");
                found.push(Relaxation { size: (3, 0), claim: name.clone(), text });
            }
        }
        for (request_number, request) in claim.requests.iter().enumerate() {
            for (ask_number, ask) in request.asks().iter().enumerate() {
                let of = format!("claim {}, request {}", claim.name, full_name(request, ask));
                let at = (number, request_number, ask_number);
                let of_ask = of_ask(inputs, claims, at, ask).into_iter();
                found.extend(of_ask.map(|(size, what)| Relaxation {
                    size,
                    claim: claim.name.clone(),
                    text: format!("{of}: {what}"),
                }));
            }
        }
    }
    found.sort_by_key(|relaxation| relaxation.size);
    found
}

/// The claims without one constraint.
pub(super) fn without_constraint(claims: &[Claim], claim: &ClaimName, index: usize) -> Vec<Claim> {
    let mut claims = claims.to_vec();
    for changed in claims.iter_mut().filter(|changed| changed.name == *claim) {
        if index < changed.constraints.len() {
            changed.constraints.remove(index);
        }
    }
    claims
}

fn ask_mut(claims: &mut [Claim], at: (usize, usize, usize)) -> Option<&mut Ask> {
    match &mut claims.get_mut(at.0)?.requests.get_mut(at.1)?.kind {
        RequestKind::Exactly(ask) => Some(ask),
        RequestKind::FirstAvailable(asks) => asks.get_mut(at.2),
        RequestKind::Unknown => None,
    }
}

/// The changes of one request or subrequest that would suffice, with their sizes.
fn of_ask(
    inputs: &AttemptInputs<'_>,
    claims: &[Claim],
    at: (usize, usize, usize),
    ask: &Ask,
) -> Vec<((u8, i64), String)> {
    let fits = |change: &dyn Fn(&mut Ask)| {
        let mut claims = claims.to_vec();
        ask_mut(&mut claims, at).into_iter().for_each(change);
        inputs.fits(&claims)
    };
    let everything = Toleration {
        key: "".into(),
        operator: "Exists".into(),
        value: "".into(),
        effect: "".into(),
        seconds: None,
    };
    let mut found = Vec::new();
    if fits(&|ask| ask.tolerations.push(everything.clone())) {
        found.push(((0, 0), "tolerate the taints of devices".to_owned()));
    }
    if ask.capacity.is_some() && fits(&|ask| ask.capacity = None) {
        found.push(((2, 0), "without capacity requests".to_owned()));
    }
    for (index, selector) in ask.selectors.iter().enumerate() {
        let Some(selector) = selector else { continue };
        if fits(&|ask| drop(ask.selectors.remove(index))) {
            let expression = short(selector.expression());
            found.push(((2, 1), format!("without the selector `{expression}`")));
        }
    }
    if let AllocationMode::ExactCount(count) = ask.mode {
        let mut fewer = (1..count.min(32)).rev();
        let count = fewer.find(|count| fits(&|ask| ask.mode = AllocationMode::ExactCount(*count)));
        found.extend(count.map(|count| ((4, -count), format!("with count {count}"))));
    }
    found
}

/// An expression on one line, cut if it is long.
pub(crate) fn short(expression: &str) -> String {
    let line = expression.split_whitespace().collect::<Vec<_>>().join(" ");
    match line.char_indices().nth(EXPRESSION) {
        Some((end, _)) => format!("{}…", &line[..end]),
        None => line,
    }
}
