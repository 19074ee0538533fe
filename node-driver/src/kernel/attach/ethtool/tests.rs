//! Requested features compared with those of an interface.

use super::*;

fn abilities() -> Abilities {
    let feature = |wanted, active, changeable| Feature { wanted, active, changeable };
    let features = [
        ("rx-gro", feature(true, true, true)),
        ("tx-checksum-ipv4", feature(false, false, false)),
        ("tx-checksum-ip-generic", feature(true, true, true)),
        ("tx-tcp-segmentation", feature(true, false, true)),
        ("tx-tcp6-segmentation", feature(true, true, true)),
        ("rx-lro", feature(false, false, false)),
        ("highdma", feature(true, true, false)),
    ];
    Abilities {
        features: features.map(|(name, feature)| (name.to_owned(), feature)).into(),
        private_flags: [("legacy-rx".to_owned(), false)].into(),
    }
}

fn asked(features: &[(&str, bool)], flags: &[(&str, bool)]) -> EthtoolConfig {
    let map = |list: &[(&str, bool)]| list.iter().map(|(name, on)| ((*name).into(), *on)).collect();
    EthtoolConfig { features: map(features), private_flags: map(flags) }
}

fn resolve(features: &[(&str, bool)], flags: &[(&str, bool)]) -> Result<EthtoolConfig, String> {
    abilities().resolve("rail0", &asked(features, flags)).map_err(|error| error.to_string())
}

#[test]
fn groups_are_what_of_them_can_be_changed() {
    let resolved = resolve(&[("tx", false), ("tso", true), ("rx-gro", false)], &[]).unwrap();
    let names: Vec<_> = resolved.features.iter().map(|(name, on)| format!("{name} {on}")).collect();
    assert_eq!(
        names,
        [
            "rx-gro false",
            "tx-checksum-ip-generic false",
            "tx-tcp-segmentation true",
            "tx-tcp6-segmentation true"
        ]
    );
    let former = abilities().former(&resolved);
    assert!(former.features.values().all(|wanted| *wanted), "as a person wants it: {former:?}");
}

#[test]
fn what_is_fixed_may_be_asked_for_as_it_is() {
    assert_eq!(resolve(&[("highdma", true), ("lro", false)], &[]), Ok(EthtoolConfig::default()));
}

#[test]
fn refusals_say_what_the_interface_has() {
    let refusals = [
        resolve(&[("warp", true)], &[]),
        resolve(&[("lro", true)], &[]),
        resolve(&[("highdma", false)], &[]),
        resolve(&[], &[("turbo", true)]),
    ];
    let lines: Vec<_> = refusals.into_iter().map(|it| it.expect_err("refused")).collect();
    insta::assert_snapshot!(lines.join("\n"));
}

#[test]
fn only_what_is_otherwise_is_set() {
    let settings = asked(&[("rx-gro", true), ("tx-tcp6-segmentation", false)], &[]);
    let missing = abilities().missing(&settings);
    assert_eq!(missing, asked(&[("tx-tcp6-segmentation", false)], &[]));
    let of_another = asked(&[("gone", true), ("rx-lro", true)], &[("gone", true)]);
    assert_eq!(abilities().missing(&of_another), EthtoolConfig::default());
}

#[test]
fn a_feature_that_stays_otherwise_is_told() {
    let kept = abilities().check("rail0", &asked(&[("tx-tcp-segmentation", true)], &[]));
    let text = kept.expect_err("it is off").to_string();
    assert!(text.contains("`tx-tcp-segmentation` on") && text.contains("`rail0`"), "{text}");
    assert_eq!(abilities().check("rail0", &asked(&[("rx-gro", true)], &[])), Ok(()));
}
