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
fn a_group_means_its_changeable_features() {
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
    assert!(
        former.features.values().all(|wanted| *wanted),
        "the requested state, not the active one: {former:?}"
    );
}

#[test]
fn a_fixed_feature_may_be_requested_as_it_is() {
    assert_eq!(resolve(&[("highdma", true), ("lro", false)], &[]), Ok(EthtoolConfig::default()));
}

#[test]
fn refusals_list_what_the_interface_supports() {
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
fn only_differing_settings_are_set() {
    let settings = asked(&[("rx-gro", true), ("tx-tcp6-segmentation", false)], &[]);
    let missing = abilities().missing(&settings);
    assert_eq!(missing, asked(&[("tx-tcp6-segmentation", false)], &[]));
    let of_another = asked(&[("gone", true), ("rx-lro", true)], &[("gone", true)]);
    assert_eq!(abilities().missing(&of_another), EthtoolConfig::default());
}

#[test]
fn a_feature_that_did_not_change_is_an_error() {
    let kept = abilities().check("rail0", &asked(&[("tx-tcp-segmentation", true)], &[]));
    let text = kept.expect_err("it is off").to_string();
    assert!(text.contains("`tx-tcp-segmentation` on") && text.contains("`rail0`"), "{text}");
    assert_eq!(abilities().check("rail0", &asked(&[("rx-gro", true)], &[])), Ok(()));
}
