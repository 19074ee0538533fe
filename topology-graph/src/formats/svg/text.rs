//! Upper bounds for the width of text, without a font.
//!
//! The viewer supplies the font. The widths are those of DejaVu Sans, which is wider than Arial,
//! Helvetica, Roboto, Segoe UI and Noto Sans.

/// The weights and sizes of texts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Style {
    /// Titles of NUMA nodes.
    Title,
    /// Names of devices.
    Name,
    /// Everything else.
    Plain,
    /// Labels on a coloured background.
    Badge,
}

/// The widths of characters from space to tilde, in thousandths of the font size.
const REGULAR: [u16; 95] = [
    318, 401, 460, 838, 636, 950, 780, 275, 390, 390, 500, 838, 318, 361, 318, 337, 636, 636, 636,
    636, 636, 636, 636, 636, 636, 636, 337, 337, 838, 838, 838, 531, 1000, 684, 686, 698, 770, 632,
    575, 775, 752, 295, 295, 656, 557, 863, 748, 787, 603, 787, 695, 635, 611, 732, 684, 989, 685,
    611, 685, 390, 337, 390, 838, 500, 500, 613, 635, 550, 635, 615, 352, 635, 634, 278, 278, 579,
    278, 974, 634, 612, 635, 635, 411, 521, 392, 634, 592, 818, 592, 592, 525, 636, 337, 636, 838,
];
const BOLD: [u16; 95] = [
    348, 456, 521, 838, 696, 1002, 872, 306, 457, 457, 523, 838, 380, 415, 380, 365, 696, 696, 696,
    696, 696, 696, 696, 696, 696, 696, 400, 400, 838, 838, 838, 580, 1000, 774, 762, 734, 830, 683,
    683, 821, 837, 372, 372, 775, 637, 995, 837, 850, 733, 850, 770, 720, 682, 812, 774, 1103, 771,
    724, 725, 457, 365, 457, 838, 500, 500, 675, 716, 593, 716, 678, 435, 716, 712, 343, 343, 665,
    343, 1042, 712, 687, 716, 716, 493, 595, 478, 712, 652, 924, 645, 652, 582, 712, 365, 712, 838,
];
/// The width of any other character: as wide as the font is high.
const OTHER: u16 = 1_000;

impl Style {
    /// The font size in pixels.
    pub(super) fn size(self) -> u32 {
        match self {
            Self::Title => 14,
            Self::Name => 12,
            Self::Plain => 11,
            Self::Badge => 10,
        }
    }

    /// The maximum width of a text in pixels.
    pub(super) fn width(self, text: &str) -> u32 {
        let widths = if self == Self::Plain { &REGULAR } else { &BOLD };
        let thousandths = text
            .chars()
            .map(|letter| {
                let index = u32::from(letter).checked_sub(u32::from(' '));
                let index = index.and_then(|index| usize::try_from(index).ok());
                u64::from(index.and_then(|index| widths.get(index)).copied().unwrap_or(OTHER))
            })
            .sum::<u64>()
            * u64::from(self.size());
        u32::try_from(thousandths.div_ceil(1_000)).unwrap_or(u32::MAX)
    }

    /// The text, cut with `…` if it does not fit.
    pub(super) fn fit(self, text: &str, room: u32) -> String {
        if self.width(text) <= room {
            return text.to_owned();
        }
        let mut fit = String::new();
        for letter in text.chars() {
            fit.push(letter);
            if self.width(&fit).saturating_add(self.width("…")) > room {
                fit.pop();
                break;
            }
        }
        fit.truncate(fit.trim_end().len());
        fit + "…"
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_that_does_not_fit_ends_with_an_ellipsis() {
        let text = "NVIDIA H100 80GB HBM3";
        let room = Style::Plain.width(text);
        assert_eq!(Style::Plain.fit(text, room), text);
        for less in 1..room {
            let fit = Style::Plain.fit(text, room - less);
            assert!(fit.ends_with('…') && fit.len() < text.len() + '…'.len_utf8(), "{fit}");
            let is_short = fit == "…" || Style::Plain.width(&fit) <= room - less;
            assert!(is_short, "{fit} in {} pixels", room - less);
        }
    }
}
