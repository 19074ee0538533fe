use super::*;
use proptest::prelude::*;
use serde_json::json;

fn range(text: &str) -> IpPrefix {
    text.parse().unwrap()
}

fn config(text: &str) -> NetworkConfig {
    let gateway = json!({"destination": "10.0.0.0/8", "gateway": "10.9.0.1"});
    let config = json!({"interface": {"addressRange": text}, "routes": [gateway]});
    NetworkConfig::parse(&config).unwrap()
}

fn set(addresses: &[&str]) -> BTreeSet<IpAddr> {
    addresses.iter().map(|address| address.parse().unwrap()).collect()
}

#[test]
fn a_claim_keeps_its_address_unless_another_has_it_too() {
    let wanted = [(0, config("10.9.0.0/29"))];
    let own = set(&["10.9.0.5"]);
    let choose = |others: &[&str]| choose_all(&wanted, "u-2", &own, &set(others)).unwrap()[0].1;
    assert_eq!(choose(&["10.9.0.6"]), range("10.9.0.5/29"));
    assert_ne!(choose(&["10.9.0.5"]), range("10.9.0.5/29"));
}

#[test]
fn a_range_fills_to_the_last_address() {
    let wanted = [(0, config("10.9.0.0/29"))];
    let mut others = BTreeSet::new();
    // Six hosts, one of which is the gateway.
    for number in 0..5 {
        let uid = format!("u-{number}");
        let chosen = choose_all(&wanted, &uid, &BTreeSet::new(), &others).unwrap()[0].1;
        assert_ne!(chosen.address, "10.9.0.1".parse::<IpAddr>().unwrap());
        assert!(others.insert(chosen.address));
    }
    assert_eq!(choose_all(&wanted, "u-9", &BTreeSet::new(), &others), None);
}

/// A claim in progress: it reads, writes its choice, and reads again.
#[derive(Clone, Debug, Default)]
struct Walker {
    looks: u32,
    chosen: Option<IpAddr>,
    written: Option<IpAddr>,
    is_content: bool,
}

fn step(walkers: &mut [Walker], who: usize) {
    if walkers[who].is_content {
        return;
    }
    if let Some(chosen) = walkers[who].chosen.take() {
        walkers[who].written = Some(chosen);
        return;
    }
    let others = walkers.iter().enumerate().filter(|(other, _)| *other != who);
    let others = others.filter_map(|(_, it)| it.written).collect();
    let own: BTreeSet<IpAddr> = walkers[who].written.into_iter().collect();
    let wanted = [(0, config("10.9.0.0/28"))];
    let seed = format!("u-{who}/{}", walkers[who].looks);
    let chosen = choose_all(&wanted, &seed, &own, &others).unwrap()[0].1.address;
    walkers[who].looks += 1;
    walkers[who].is_content = own.contains(&chosen);
    walkers[who].chosen = Some(chosen);
}

proptest! {
    /// However their reads and writes interleave, content claims have distinct addresses, and
    /// in the end all claims are content.
    #[test]
    fn concurrent_claims_get_distinct_addresses(turns in prop::collection::vec(0..4_usize, 0..60)) {
        let mut walkers = vec![Walker::default(); 4];
        for who in turns.into_iter().chain((0..4).cycle().take(200)) {
            step(&mut walkers, who);
            let content: Vec<_> =
                walkers.iter().filter(|it| it.is_content).filter_map(|it| it.written).collect();
            let apart: BTreeSet<_> = content.iter().collect();
            prop_assert_eq!(apart.len(), content.len());
        }
        prop_assert!(walkers.iter().all(|it| it.is_content), "{:?}", walkers);
    }
}
