//! Unicode classes by name: `\p{Greek}`, `\pL`.
//!
//! Follows `unicodeTable` in Go's `regexp/syntax/parse.go` (Go 1.26) and the names in its
//! `unicode/tables.go`. The members of a class are those of Unicode 16, while Go has Unicode 15:
//! characters added in Unicode 16 are in none of Go's classes.

use regex_syntax::hir::{Class, ClassUnicode, ClassUnicodeRange, HirKind};

/// Names as Go looks them up: an upper-case letter, then lower-case ones. Go 1.26 does not find
/// scripts with several words, since its own table keeps their underscores.
const SCRIPTS: &[&str] = &[
    "Adlam",
    "Ahom",
    "Arabic",
    "Armenian",
    "Avestan",
    "Balinese",
    "Bamum",
    "Batak",
    "Bengali",
    "Bhaiksuki",
    "Bopomofo",
    "Brahmi",
    "Braille",
    "Buginese",
    "Buhid",
    "Carian",
    "Chakma",
    "Cham",
    "Cherokee",
    "Chorasmian",
    "Common",
    "Coptic",
    "Cuneiform",
    "Cypriot",
    "Cyrillic",
    "Deseret",
    "Devanagari",
    "Dogra",
    "Duployan",
    "Elbasan",
    "Elymaic",
    "Ethiopic",
    "Georgian",
    "Glagolitic",
    "Gothic",
    "Grantha",
    "Greek",
    "Gujarati",
    "Gurmukhi",
    "Han",
    "Hangul",
    "Hanunoo",
    "Hatran",
    "Hebrew",
    "Hiragana",
    "Inherited",
    "Javanese",
    "Kaithi",
    "Kannada",
    "Katakana",
    "Kawi",
    "Kharoshthi",
    "Khmer",
    "Khojki",
    "Khudawadi",
    "Lao",
    "Latin",
    "Lepcha",
    "Limbu",
    "Lisu",
    "Lycian",
    "Lydian",
    "Mahajani",
    "Makasar",
    "Malayalam",
    "Mandaic",
    "Manichaean",
    "Marchen",
    "Medefaidrin",
    "Miao",
    "Modi",
    "Mongolian",
    "Mro",
    "Multani",
    "Myanmar",
    "Nabataean",
    "Nandinagari",
    "Newa",
    "Nko",
    "Nushu",
    "Ogham",
    "Oriya",
    "Osage",
    "Osmanya",
    "Palmyrene",
    "Phoenician",
    "Rejang",
    "Runic",
    "Samaritan",
    "Saurashtra",
    "Sharada",
    "Shavian",
    "Siddham",
    "Sinhala",
    "Sogdian",
    "Soyombo",
    "Sundanese",
    "Syriac",
    "Tagalog",
    "Tagbanwa",
    "Takri",
    "Tamil",
    "Tangsa",
    "Tangut",
    "Telugu",
    "Thaana",
    "Thai",
    "Tibetan",
    "Tifinagh",
    "Tirhuta",
    "Toto",
    "Ugaritic",
    "Vai",
    "Vithkuqi",
    "Wancho",
    "Yezidi",
    "Yi",
];

/// Categories with their long names.
const CATEGORIES: &[(&str, &[&str])] = &[
    ("C", &["Other"]),
    ("Cc", &["Control", "Cntrl"]),
    ("Cf", &["Format"]),
    ("Cn", &["Unassigned"]),
    ("Co", &["Privateuse"]),
    ("Cs", &["Surrogate"]),
    ("L", &["Letter"]),
    ("Lc", &["Casedletter"]),
    ("Ll", &["Lowercaseletter"]),
    ("Lm", &["Modifierletter"]),
    ("Lo", &["Otherletter"]),
    ("Lt", &["Titlecaseletter"]),
    ("Lu", &["Uppercaseletter"]),
    ("M", &["Mark", "Combiningmark"]),
    ("Mc", &["Spacingmark"]),
    ("Me", &["Enclosingmark"]),
    ("Mn", &["Nonspacingmark"]),
    ("N", &["Number"]),
    ("Nd", &["Decimalnumber", "Digit"]),
    ("Nl", &["Letternumber"]),
    ("No", &["Othernumber"]),
    ("P", &["Punctuation", "Punct"]),
    ("Pc", &["Connectorpunctuation"]),
    ("Pd", &["Dashpunctuation"]),
    ("Pe", &["Closepunctuation"]),
    ("Pf", &["Finalpunctuation"]),
    ("Pi", &["Initialpunctuation"]),
    ("Po", &["Otherpunctuation"]),
    ("Ps", &["Openpunctuation"]),
    ("S", &["Symbol"]),
    ("Sc", &["Currencysymbol"]),
    ("Sk", &["Modifiersymbol"]),
    ("Sm", &["Mathsymbol"]),
    ("So", &["Othersymbol"]),
    ("Z", &["Separator"]),
    ("Zl", &["Lineseparator"]),
    ("Zp", &["Paragraphseparator"]),
    ("Zs", &["Spaceseparator"]),
];

/// The class with this name; `None` if Go does not know it.
pub(super) fn class(name: &str) -> Option<ClassUnicode> {
    let name = canonical(name);
    match &*name {
        "Any" => Some(ClassUnicode::new([ClassUnicodeRange::new('\0', char::MAX)])),
        "Ascii" => Some(ClassUnicode::new([ClassUnicodeRange::new('\0', '\x7f')])),
        "Assigned" => property("gc=Assigned"),
        // No string contains surrogates.
        "Cs" | "Surrogate" => Some(ClassUnicode::empty()),
        _ if SCRIPTS.contains(&&*name) => property(&format!("sc={name}")),
        _ => {
            let (short, _) =
                CATEGORIES.iter().find(|(short, long)| *short == name || long.contains(&&*name))?;
            property(&format!("gc={short}"))
        }
    }
}

/// Normalizes a name (`canonicalName`): one upper-case letter, then lower-case ones, without
/// underscores, hyphens and spaces.
fn canonical(name: &str) -> String {
    let letters = name.chars().filter(|c| !matches!(c, '_' | '-' | ' '));
    let cased = letters.enumerate().map(|(number, c)| match number {
        0 => c.to_ascii_uppercase(),
        _ => c.to_ascii_lowercase(),
    });
    cased.collect()
}

fn property(query: &str) -> Option<ClassUnicode> {
    match regex_syntax::parse(&format!(r"\p{{{query}}}")).ok()?.into_kind() {
        HirKind::Class(Class::Unicode(class)) => Some(class),
        // A class of one character.
        HirKind::Literal(literal) => {
            let text = str::from_utf8(&literal.0).ok()?;
            Some(ClassUnicode::new(text.chars().map(|c| ClassUnicodeRange::new(c, c))))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_has_a_class() {
        let long = CATEGORIES.iter().flat_map(|(short, long)| long.iter().chain([short]));
        for name in SCRIPTS.iter().chain(long) {
            let class = class(name);
            assert!(class.is_some(), "{name}");
            assert_eq!(class == Some(ClassUnicode::empty()), matches!(*name, "Cs" | "Surrogate"));
        }
    }
}
