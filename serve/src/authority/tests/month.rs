//! A month in which the authority and the certificate are renewed, while leaders take turns and are away
//! for hours, their clocks are wrong, Secrets are emptied, and everybody reads the Secret late.

use super::*;
use k8s_openapi::jiff::SignedDuration;

const STEP: Duration = Duration::from_mins(10);
const MONTH: usize = 30 * 24 * 6;
/// The most steps by which a reader of the Secret is late. A new authority signs after an hour; of two
/// leaders whose clocks are ten minutes wrong, one may count 40 minutes.
const LATE: usize = 3;

/// Repeatable chance.
struct Dice(u64);

impl Dice {
    fn below(&mut self, sides: usize) -> usize {
        // Knuth's multiplier for 64 bits; the upper bits are the good ones.
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        usize::try_from(self.0 >> 33).unwrap() % sides
    }
}

/// Who has read the Secret, and when.
#[derive(Clone, Default)]
struct Reader {
    has: CertificateBundle,
    late: usize,
}

impl Reader {
    /// Reads it, or is late. Returns true if anything is new.
    fn read(&mut self, secret: &CertificateBundle, dice: &mut Dice) -> bool {
        let is_new = self.has != *secret;
        if !is_new || (self.late < LATE && dice.below(3) > 0) {
            self.late += usize::from(is_new);
            return false;
        }
        *self = Self { has: secret.clone(), late: 0 };
        true
    }
}

/// A bundle as it is after two years, two weeks before its authority is due.
fn two_years_old() -> CertificateBundle {
    let made = start() - DAY * (365 * 2 - 14);
    let mut held = CertificateBundle::default().renewed(&names(), made).unwrap().unwrap();
    while let Some(due) = held.next_due().filter(|due| *due <= start()) {
        held = held.renewed(&names(), due).unwrap().expect("it is due");
    }
    held
}

/// Returns how often something was renewed, and how often a client refused a replica.
fn month(seed: u64, wrong_clocks: bool, is_emptied: bool) -> (u32, u32) {
    let mut dice = Dice(seed);
    let mut secret = two_years_old();
    let reader = Reader { has: secret.clone(), late: 0 };
    // The API server's configuration, and replicas that serve.
    let (mut trusting, mut serving) = (reader.clone(), [reader.clone(), reader]);
    let (mut away, mut refused, mut renewals) = (0, 0, 0);
    let mut emptied: Option<usize> = None;
    for step in 0..MONTH {
        let now = start() + STEP * u32::try_from(step).unwrap();
        if is_emptied && dice.below(1_000) == 0 {
            secret = CertificateBundle::default();
            emptied = Some(step);
        }
        away = if away == 0 && dice.below(150) == 0 { dice.below(5 * 6) } else { away };
        if away > 0 {
            away -= 1;
        } else {
            let ahead = [0, 10, -10][if wrong_clocks { dice.below(3) } else { 0 }];
            let clock = now + SignedDuration::from_mins(ahead);
            if let Some(renewed) = secret.renewed(&names(), clock).unwrap() {
                (secret, renewals) = (renewed, renewals + 1);
            }
        }
        if secret.certificate.is_empty() {
            // As `OwnCertificate`, which keeps what it has, and as the writer of the authority.
            continue;
        }
        let mut is_new = trusting.read(&secret, &mut dice);
        for replica in &mut serving {
            is_new |= replica.read(&secret, &mut dice);
        }
        if !is_new && !step.is_multiple_of(36) {
            continue;
        }
        let is_served = serving
            .iter()
            .all(|replica| is_trusted(&trusting.has.authorities, &replica.has.certificate, now));
        if !is_served {
            refused += 1;
            // All that was known is gone: until everybody has read the new one.
            let since = emptied.map(|emptied| step - emptied);
            assert!(since.is_some_and(|since| since <= 5 * 6 + LATE + 1), "step {step}: {since:?}");
        }
    }
    assert!(certificates(&secret.authorities).len() <= 2, "{}", secret.authorities);
    (renewals, refused)
}

#[test]
fn late_readers_trust_the_server_through_a_month_of_changing_leaders() {
    for (seed, wrong_clocks, is_emptied) in
        [(0, false, false), (1, true, false), (2, true, false), (3, true, true), (4, false, true)]
    {
        let (renewals, refused) = month(seed, wrong_clocks, is_emptied);
        println!("{renewals} renewals; {refused} looks at which a client refused");
        assert!(renewals >= 2, "an authority, and a certificate of it; or new ones");
        assert!(is_emptied || refused == 0);
    }
}
