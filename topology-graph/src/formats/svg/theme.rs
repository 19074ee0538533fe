//! Light and dark colours.

use std::fmt::Write;

use crate::PathKind;
use crate::text::words;

/// The colours of a picture.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Theme {
    /// The viewer's preference (`prefers-color-scheme`); light if there is none.
    #[default]
    Auto,
    /// Dark on light.
    Light,
    /// Light on dark.
    Dark,
}

/// A class with its light and dark declarations.
type Rule = (&'static str, &'static str, &'static str);

const RULES: [Rule; 17] = [
    ("page", "fill:#ffffff", "fill:#0d1117"),
    ("panel", "fill:#f6f8fa;stroke:#d1d9e0", "fill:#151b23;stroke:#3d444d"),
    ("fabric", "fill:#fbefff;stroke:#a475f9", "fill:#231b36;stroke:#8957e5"),
    ("bridge", "fill:#ffffff;stroke:#afb8c1", "fill:#0d1117;stroke:#656c76"),
    ("switch", "fill:#e2e8ee;stroke:#6e7781", "fill:#2a313c;stroke:#9198a1"),
    ("gpu", "fill:#dafbe1;stroke:#4ac26b", "fill:#12261e;stroke:#2ea043"),
    ("nic", "fill:#ddf4ff;stroke:#54aeff", "fill:#111d2e;stroke:#388bfd"),
    ("nvme", "fill:#fff8e5;stroke:#d4a72c", "fill:#272115;stroke:#9e6a03"),
    (
        "wire",
        "fill:none;stroke:#818b98;stroke-width:1.5",
        "fill:none;stroke:#7d8590;stroke-width:1.5",
    ),
    ("strong", "fill:#1f2328", "fill:#f0f6fc"),
    ("soft", "fill:#424a53", "fill:#b7bdc8"),
    ("on-badge", "fill:#ffffff", "fill:#ffffff"),
    ("pix", "fill:#1a7f37", "fill:#1a7f37"),
    ("pxb", "fill:#4f7a10", "fill:#4f7a10"),
    ("phb", "fill:#8a6100", "fill:#8a6100"),
    ("node", "fill:#b5490a", "fill:#b5490a"),
    ("far", "fill:#bf2630", "fill:#bf2630"),
];

/// One colour per GPU and the NICs paired with it; repeats after the last.
const PAIR_COLOURS: [&str; 8] =
    ["#e5484d", "#0090ff", "#f5a400", "#46a758", "#8e4ec6", "#12a5a5", "#d6409f", "#a18072"];

/// The classes of these colours.
const PAIR_CLASSES: [&str; 8] = ["p0", "p1", "p2", "p3", "p4", "p5", "p6", "p7"];

/// The class of the badge for a path between a GPU and another device.
pub(super) fn badge_class(path: PathKind) -> &'static str {
    match path {
        PathKind::NvLink(_) | PathKind::Xgmi => "mesh",
        PathKind::Same | PathKind::Pix => "pix",
        PathKind::Pxb => "pxb",
        PathKind::Phb => "phb",
        PathKind::Node => "node",
        PathKind::Sys => "far",
        PathKind::Unknown => "unknown",
    }
}

/// The class of a GPU and the NICs paired with it.
pub(super) fn pair_class(group: usize) -> &'static str {
    PAIR_CLASSES[group % PAIR_CLASSES.len()]
}

/// The style sheet.
pub(super) fn style_sheet(theme: Theme) -> String {
    let mut sheet = String::new();
    rules(&mut sheet, theme == Theme::Dark);
    sheet.push_str(".mesh{fill:#6e40c9}.unknown{fill:#59636e}");
    for (class, colour) in PAIR_CLASSES.into_iter().zip(PAIR_COLOURS) {
        // Writing to a String cannot fail, here and below.
        let _ = write!(sheet, ".{class}{{fill:{colour}}}");
    }
    if theme == Theme::Auto {
        sheet.push_str("@media(prefers-color-scheme:dark){");
        rules(&mut sheet, true);
        sheet.push('}');
    }
    sheet
}

fn rules(sheet: &mut String, dark: bool) {
    for (class, light_style, dark_style) in RULES {
        let style = if dark { dark_style } else { light_style };
        let _ = write!(sheet, ".{class}{{{style}}}");
    }
}

words! {
    Theme, ParseThemeError("theme"):
    Auto = "auto", Light = "light", Dark = "dark"
}
