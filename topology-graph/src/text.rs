//! The text forms of values.

/// Serializes as the `Display` text and deserializes by `FromStr`.
macro_rules! serde_as_text {
    ($($type:ty),+) => { $(
        impl serde::Serialize for $type {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }

        impl<'de> serde::Deserialize<'de> for $type {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let text = <String as serde::Deserialize>::deserialize(deserializer)?;
                text.parse().map_err(serde::de::Error::custom)
            }
        }
    )+ };
}

/// Gives each value of an enum a word: `ALL`, `Display`, `FromStr`, and an error for other texts.
macro_rules! words {
    ($type:ident, $error:ident($noun:literal): $($value:ident = $word:literal),+ $(,)?) => {
        #[doc = concat!("A text is no [`", stringify!($type), "`].")]
        #[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
        #[error(
            "invalid {noun} `{0}`; allowed values: {all}",
            noun = $noun,
            all = [$(concat!("`", $word, "`")),+].join(", ")
        )]
        pub struct $error(String);

        impl $type {
            /// All values, in order.
            pub const ALL: [Self; [$(Self::$value),+].len()] = [$(Self::$value),+];
        }

        impl std::fmt::Display for $type {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.pad(match self {
                    $(Self::$value => $word),+
                })
            }
        }

        impl std::str::FromStr for $type {
            type Err = $error;

            fn from_str(text: &str) -> Result<Self, Self::Err> {
                match text {
                    $($word => Ok(Self::$value),)+
                    _ => Err($error(text.to_owned())),
                }
            }
        }
    };
}

pub(crate) use {serde_as_text, words};
