//! A month of three replicas that want one lease: each stops for hours at any moment, and answers of the
//! API server come late.

use super::*;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::{Method, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::{Json, Router};
use kube::core::{ObjectMeta, Status};
use std::sync::{Arc, Mutex};

const DURATION: Duration = Duration::from_hours(1);
const MONTH: Duration = Duration::from_hours(30 * 24);
const REPLICAS: usize = 3;

/// The lease, as an API server has it.
#[derive(Clone)]
struct Stored(Arc<Mutex<LeaseObject>>);

async fn answer(State(Stored(stored)): State<Stored>, method: Method, body: Bytes) -> Response {
    let mut stored = stored.lock().unwrap();
    if method == Method::PUT {
        let Json(mut new) = Json::<LeaseObject>::from_bytes(&body).unwrap();
        let version = stored.metadata.resource_version.clone();
        if new.metadata.resource_version != version {
            let refusal = Status::failure("written before", "Conflict").with_code(409);
            return (StatusCode::CONFLICT, Json(refusal)).into_response();
        }
        let next = version.unwrap().parse::<u64>().unwrap() + 1;
        new.metadata.resource_version = Some(next.to_string());
        *stored = new;
    }
    Json(stored.clone()).into_response()
}

/// Repeatable chance.
struct Dice(u64);

impl Dice {
    fn below(&mut self, sides: u64) -> u64 {
        // Knuth's multiplier for 64 bits; the upper bits are the good ones.
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (self.0 >> 33) % sides
    }
}

/// A replica between two requests.
struct Replica {
    lease: Lease,
    seen: Option<ObservedLease>,
    /// The lease that it holds, with the times between which it leads.
    held: Option<(LeaseObject, Instant, Instant)>,
    /// When it makes its next request.
    next: Instant,
}

impl Replica {
    fn leads(&self, now: Instant) -> bool {
        self.held.as_ref().is_some_and(|(_, from, until)| *from <= now && now < *until)
    }

    /// Makes its next request. Its answer comes after `late`, and it stops for `stops` then.
    async fn go(&mut self, now: Instant, late: Duration, stops: Duration) {
        let before = self.held.take();
        if before.as_ref().is_some_and(|(_, _, until)| *until <= now) {
            self.seen = None;
        }
        let held = before.filter(|(_, _, until)| now < *until);
        let taken = match &held {
            Some((lease, ..)) => self.lease.renew(lease).await.unwrap(),
            None => self.lease.try_acquire(&mut self.seen, now).await.unwrap(),
        };
        if held.is_some() && taken.is_none() {
            self.seen = None;
        }
        let from = held.map_or(now + late, |(_, from, _)| from);
        self.held = taken.map(|lease| (lease, from, self.lease.leads_until(now)));
        self.next = now + late + self.lease.period() + stops;
    }
}

#[tokio::test]
async fn in_a_month_the_lease_never_has_two_holders_and_is_never_free_for_long() {
    let [name, namespace, version] = ["l", "n", "1"].map(|text| Some(text.to_owned()));
    let metadata =
        ObjectMeta { name, namespace, resource_version: version, ..ObjectMeta::default() };
    let lease = LeaseObject { metadata, spec: None };
    let stored = Stored(Arc::new(Mutex::new(lease)));
    let router = Router::new().fallback(answer).with_state(stored.clone());
    let client = Client::new(router, "n");
    let (begin, mut dice) = (Instant::now(), Dice(7));
    let mut replicas: Vec<Replica> = (0..REPLICAS)
        .map(|number| {
            let identity = format!("replica-{number}");
            let lease = Lease { identity, ..Lease::new(client.clone(), "n", "l", DURATION) };
            Replica { lease, seen: None, held: None, next: begin }
        })
        .collect();
    let (mut now, mut led, mut free, mut longest) = (begin, 0_u32, begin, Duration::ZERO);
    while now < begin + MONTH {
        let at = replicas.iter().map(|replica| replica.next).min().unwrap();
        now = at.max(now);
        let late = DURATION * u32::try_from(dice.below(100)).unwrap() / 40;
        let late = if dice.below(20) == 0 { late } else { Duration::ZERO };
        let hours = if dice.below(60) == 0 { dice.below(6) } else { 0 };
        let due = replicas.iter().position(|replica| replica.next <= now).unwrap();
        replicas[due].go(now, late, Duration::from_hours(hours)).await;
        let leading = replicas.iter().filter(|replica| replica.leads(now)).count();
        assert!(leading <= 1, "{leading} lead after {:?}", now - begin);
        // Of those that lead later, too: an answer may be on its way.
        for (index, one) in replicas.iter().enumerate() {
            for other in &replicas[index + 1..] {
                if let (Some((_, from, until)), Some((_, begins, ends))) = (&one.held, &other.held)
                {
                    let overlaps = (*from).max(*begins).max(now) < (*until).min(*ends);
                    assert!(!overlaps, "two lead after {:?}", now - begin);
                }
            }
        }
        if leading > 0 {
            (led, free) = (led + 1, now);
        }
        longest = longest.max(now - free);
    }
    let stored = stored.0.lock().unwrap();
    let transitions = stored.spec.as_ref().and_then(|spec| spec.lease_transitions).unwrap();
    println!("{led} looks with a leader, {transitions} transitions, free for {longest:?} at most");
    assert!(transitions > 10, "{transitions}");
    assert!(longest < Duration::from_hours(24), "{longest:?} without a leader");
}
