mod month;

use super::*;
use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::ServerCertVerifier;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{RootCertStore, crypto::ring};
use std::sync::Arc;

const NAME: &str = "admission.dranet-system.svc";
const DAY: Duration = Duration::from_hours(24);

fn start() -> Timestamp {
    Timestamp::from_second(1_800_000_000).unwrap()
}

fn names() -> Vec<String> {
    vec![NAME.to_owned(), "192.0.2.1".to_owned()]
}

fn first() -> CertificateBundle {
    CertificateBundle::default().renewed(&names(), start()).unwrap().expect("nothing is held yet")
}

/// Returns true if a client that trusts `authorities` accepts the certificate at this time.
fn is_trusted(authorities: &str, certificate: &str, now: Timestamp) -> bool {
    let der = |text: &str| {
        let all = pem::parse_many(text).unwrap().into_iter();
        all.map(|pem| CertificateDer::from(pem.into_contents())).collect::<Vec<_>>()
    };
    let mut roots = RootCertStore::empty();
    for authority in der(authorities) {
        roots.add(authority).unwrap();
    }
    let provider = Arc::new(ring::default_provider());
    let verifier = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider);
    let seconds = Duration::from_secs(now.as_second().try_into().unwrap());
    let now = UnixTime::since_unix_epoch(seconds);
    let name = ServerName::try_from(NAME).unwrap();
    let chain = der(certificate);
    verifier.build().unwrap().verify_server_cert(&chain[0], &[], &name, &[], now).is_ok()
}

#[test]
fn due_depends_on_bundle_names_and_time() {
    let held = first();
    let later = |days: u32| start() + DAY * days;
    let other = vec!["other".to_owned()];
    let broken_key = CertificateBundle { key: held.authority_key.clone(), ..held.clone() };
    let no_authority = CertificateBundle { authorities: String::new(), ..held.clone() };
    let text = CertificateBundle { certificate: "no PEM".to_owned(), ..held.clone() };
    for (what, held, names, now, expected) in [
        ("nothing held", &CertificateBundle::default(), &names(), start(), Due::All),
        ("fresh", &held, &names(), start(), Due::Nothing),
        ("in its second third", &held, &names(), later(59), Due::Nothing),
        ("in its last third", &held, &names(), later(61), Due::Serving),
        ("run out", &held, &names(), later(100), Due::Serving),
        ("another name", &held, &other, start(), Due::Serving),
        ("the authority run out", &held, &names(), later(365 * 3), Due::All),
        ("not its key", &broken_key, &names(), start(), Due::All),
        ("no authority", &no_authority, &names(), start(), Due::All),
        ("edited", &text, &names(), start(), Due::All),
    ] {
        assert_eq!(held.due(names, now), expected, "{what}");
    }
}

#[test]
fn new_certificates_are_trusted_and_not_due() {
    let held = first();
    assert!(is_trusted(&held.authorities, &held.certificate, start()));
    assert_eq!(held.renewed(&names(), start()).unwrap(), None);
    let stranger = first();
    assert!(!is_trusted(&stranger.authorities, &held.certificate, start()));
}

/// Simulates more than three years in steps of six hours. At each change, clients that know the old
/// state and clients that know the new one must both trust the server.
#[test]
fn clients_trust_the_server_through_all_rotations() {
    let mut held = first();
    let (mut serving, mut authorities) = (0, 0);
    let second = Duration::from_secs(1);
    for step in 0..(4 * 365 * 5) {
        let now = start() + Duration::from_hours(6) * step;
        let Some(next) = held.renewed(&names(), now).unwrap() else { continue };
        for (trusted, served) in [(&held, &next), (&next, &held), (&next, &next)] {
            assert!(is_trusted(&trusted.authorities, &served.certificate, now), "step {step}");
        }
        serving += i32::from(next.certificate != held.certificate);
        authorities += i32::from(next.authorities != held.authorities);
        held = next;
        let due = held.next_due().unwrap();
        assert_eq!(held.due(&names(), due - second), Due::Nothing, "step {step}, {due}");
        assert_ne!(held.due(&names(), due), Due::Nothing, "step {step}, {due}");
    }
    assert_eq!(certificates(&held.authorities).len(), 2, "what has run out is dropped");
    assert!(serving >= 5 * 365 / 61 && authorities == 2, "{serving} {authorities}");
}

/// A leader whose clock is ahead renews; then a leader with the right clock leads.
#[test]
fn what_a_clock_that_was_ahead_has_made_is_replaced() {
    let held = first();
    for (days, expected) in [(85, Due::Serving), (59, Due::Nothing), (365 * 3, Due::All)] {
        let ahead = start() + DAY * days;
        let made = held.renewed(&names(), ahead).unwrap().unwrap_or_else(|| held.clone());
        assert_eq!(made.due(&names(), start()), expected, "{days} days");
        let mended = made.renewed(&names(), start()).unwrap().unwrap_or(made);
        assert!(is_trusted(&mended.authorities, &mended.certificate, start()), "{days} days");
        assert_eq!(mended.due(&names(), start()), Due::Nothing, "{days} days");
    }
    // An authority that does not sign yet.
    let two_thirds = start() + DAY * (365 * 2 + 1);
    let late = held.renewed(&names(), two_thirds).unwrap().unwrap();
    let made = late.renewed(&names(), two_thirds).unwrap().unwrap();
    let before = two_thirds - DAY;
    assert_ne!(made.authorities, late.authorities, "an authority was added");
    assert_eq!(made.due(&names(), before), Due::All, "the serving certificate is early too");
    let made = CertificateBundle {
        authorities: made.authorities,
        authority_key: made.authority_key,
        ..held
    };
    assert_eq!(made.due(&names(), start()), Due::Authority);
    let mended = made.renewed(&names(), start()).unwrap().unwrap();
    assert!(is_trusted(&mended.authorities, &mended.certificate, start()));
    assert_eq!(mended.due(&names(), start()), Due::Nothing);
}
