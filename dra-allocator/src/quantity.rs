//! Quantities: `1`, `250m`, `80Gi`, `1e3`.
//!
//! Parses, rounds, compares and prints as `k8s.io/apimachinery/pkg/api/resource` does. An amount is
//! an exact integer in units of 10⁻⁹. Kubernetes supports amounts above 10²⁴; this crate rejects
//! them.

use std::cmp::Ordering;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::str::FromStr;

const NANOS: i128 = 1_000_000_000;

/// The largest amount, 10²⁴. The sum of a hundred thousand such amounts still fits.
const MAX_NANOS: i128 = NANOS * 1_000_000_000_000_000_000_000_000;

/// The notation of a quantity.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Format {
    /// Decimal exponent: `12e6`.
    DecimalExponent,
    /// Power of 1024: `12Mi`.
    BinarySi,
    /// Power of 1000: `12M`.
    DecimalSi,
}

/// A quantity with its notation.
#[derive(Clone, Copy, Debug)]
pub struct Quantity {
    nanos: i128,
    format: Format,
    form: Form,
}

/// How Kubernetes stores the amount. It matters only for [`Quantity::is_same_form`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Form {
    /// A 64-bit integer times a power of ten; `text` is true if the original text was kept.
    Small { value: i64, scale: i32, text: bool },
    /// An arbitrary-precision number.
    Large,
}

/// A text is not a supported quantity.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum QuantityError {
    /// The text is not a quantity.
    #[error("invalid quantity `{0}`")]
    Malformed(String),
    /// The amount is larger than this crate supports.
    #[error("quantity `{0}` exceeds the supported maximum of 10²⁴")]
    TooLarge(String),
}

impl Quantity {
    /// Creates a quantity from an integer.
    pub fn new(value: i64, format: Format) -> Self {
        let form = Form::Small { value, scale: 0, text: false };
        Self { nanos: i128::from(value) * NANOS, format, form }
    }

    /// Creates a quantity from thousandths.
    pub fn from_milli(value: i64, format: Format) -> Self {
        let form = Form::Small { value, scale: -3, text: false };
        Self { nanos: i128::from(value) * (NANOS / 1000), format, form }
    }

    /// The amount in units of 10⁻⁹.
    pub(crate) fn nanos(&self) -> i128 {
        self.nanos
    }

    /// A sum or difference, in the notation of this quantity.
    pub(crate) fn with_nanos(&self, nanos: i128) -> Self {
        Self { nanos, format: self.format, form: Form::Large }
    }

    /// The notation.
    pub fn format(&self) -> Format {
        self.format
    }

    /// Returns true if the amount is below zero.
    pub fn is_negative(&self) -> bool {
        self.nanos < 0
    }

    /// The amount as an integer, rounded away from zero; 0 if it does not fit in 64 bits
    /// (`Quantity.Value`).
    pub fn value(&self) -> i64 {
        self.scaled(NANOS)
    }

    /// The amount in thousandths, rounded away from zero; 0 if it does not fit in 64 bits.
    pub fn milli_value(&self) -> i64 {
        self.scaled(NANOS / 1000)
    }

    /// An overflow yields 0 for a small form; a large form loses its high bits.
    #[allow(clippy::cast_possible_truncation, reason = "Go truncates here")]
    fn scaled(&self, unit: i128) -> i64 {
        let value = div_away(self.nanos, unit);
        match self.form {
            Form::Small { .. } => i64::try_from(value).unwrap_or(0),
            Form::Large => value as i64,
        }
    }

    /// The amount in thousandths; `None` if that is not exact.
    pub fn exact_milli(&self) -> Option<i64> {
        let unit = NANOS / 1000;
        (self.nanos % unit == 0).then(|| i64::try_from(self.nanos / unit).ok()).flatten()
    }

    /// The amount as a 64-bit integer; `None` if it is not one (`Quantity.AsInt64`).
    pub fn as_i64(&self) -> Option<i64> {
        match self.form {
            Form::Small { value, scale, .. } if scale >= 0 => {
                10_i64.checked_pow(u32::try_from(scale).ok()?)?.checked_mul(value)
            }
            _ => None,
        }
    }

    /// The amount as a floating-point number.
    #[allow(clippy::cast_precision_loss, reason = "the method of Kubernetes is approximate too")]
    pub fn as_f64(&self) -> f64 {
        self.nanos as f64 / 1e9
    }

    /// Returns true if two quantities are the same Go struct: same digits, exponent, format and
    /// kept text. Kubernetes compares a request with a policy's default this way (`violatesPolicy`
    /// in `consumable_capacity.go`).
    pub fn is_same_form(&self, other: &Self) -> bool {
        self.form != Form::Large && self.form == other.form && self.format == other.format
    }
}

/// A quantity as written. Two are equal only if neither printing nor policies can distinguish them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Written(pub(crate) Quantity);

impl Written {
    fn parts(self) -> (i128, Format, Form) {
        (self.0.nanos, self.0.format, self.0.form)
    }
}

impl PartialEq for Written {
    fn eq(&self, other: &Self) -> bool {
        self.parts() == other.parts()
    }
}

impl Eq for Written {}

impl Hash for Written {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.parts().hash(state);
    }
}

/// Compares amounts; the notation does not matter.
impl PartialEq for Quantity {
    fn eq(&self, other: &Self) -> bool {
        self.nanos == other.nanos
    }
}

impl Eq for Quantity {}

impl PartialOrd for Quantity {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Quantity {
    fn cmp(&self, other: &Self) -> Ordering {
        self.nanos.cmp(&other.nanos)
    }
}

/// Divides and rounds away from zero.
fn div_away(nanos: i128, unit: i128) -> i128 {
    let whole = nanos / unit;
    if nanos % unit == 0 { whole } else { whole + nanos.signum() }
}

impl FromStr for Quantity {
    type Err = QuantityError;

    fn from_str(text: &str) -> Result<Self, QuantityError> {
        let malformed = || QuantityError::Malformed(text.to_owned());
        let parts = Parts::split(text).ok_or_else(malformed)?;
        let (multiplier, format) = suffix(parts.suffix).ok_or_else(malformed)?;
        let form = parts.small_form(multiplier, format);
        let large = form == Form::Large;
        let limit = i128::from(i64::MAX) * NANOS;
        let binary = format == Format::BinarySi;
        let nanos = parts
            .nanos(multiplier)
            .map(|nanos| if binary && large { nanos.clamp(-limit, limit) } else { nanos })
            .filter(|nanos| nanos.abs() <= MAX_NANOS)
            .ok_or_else(|| QuantityError::TooLarge(text.to_owned()))?;
        let fraction = nanos != 0 && nanos.abs() < NANOS;
        let format = if binary && large && fraction { Format::DecimalSi } else { format };
        Ok(Self { nanos, format, form })
    }
}

/// The factor of a suffix.
#[derive(Clone, Copy)]
enum Multiplier {
    Ten(i32),
    Two(u32),
}

fn suffix(text: &str) -> Option<(Multiplier, Format)> {
    Some(match text {
        "n" => decimal(-9),
        "u" => decimal(-6),
        "m" => decimal(-3),
        "" => decimal(0),
        "k" => decimal(3),
        "M" => decimal(6),
        "G" => decimal(9),
        "T" => decimal(12),
        "P" => decimal(15),
        "E" => decimal(18),
        "Ki" => binary(10),
        "Mi" => binary(20),
        "Gi" => binary(30),
        "Ti" => binary(40),
        "Pi" => binary(50),
        "Ei" => binary(60),
        _ => {
            let digits = text.strip_prefix(['e', 'E'])?;
            (Multiplier::Ten(digits.parse().ok()?), Format::DecimalExponent)
        }
    })
}

fn decimal(exponent: i32) -> (Multiplier, Format) {
    (Multiplier::Ten(exponent), Format::DecimalSi)
}

fn binary(exponent: u32) -> (Multiplier, Format) {
    (Multiplier::Two(exponent), Format::BinarySi)
}

/// The parts of a quantity's text (`parseQuantityString`).
struct Parts<'a> {
    negative: bool,
    whole: &'a str,
    fraction: &'a str,
    suffix: &'a str,
}

impl<'a> Parts<'a> {
    fn split(text: &'a str) -> Option<Self> {
        let negative = text.starts_with('-');
        let rest = text.strip_prefix(['-', '+']).unwrap_or(text);
        let (whole, rest) = split_digits(rest);
        let (fraction, suffix) = match rest.strip_prefix('.') {
            Some(after) => split_digits(after),
            None => ("", rest),
        };
        let any_digit = !whole.is_empty() || !fraction.is_empty();
        // Leading zeros do not count as digits.
        let trimmed = whole.trim_start_matches('0');
        let whole = if trimmed.is_empty() { "0" } else { trimmed };
        any_digit.then_some(Self { negative, whole, fraction, suffix })
    }

    fn digits(&self) -> Option<i128> {
        let text = format!("{}{}", self.whole, self.fraction);
        let number: i128 = text.parse().ok()?;
        Some(if self.negative { -number } else { number })
    }

    /// The amount, rounded away from zero to 10⁻⁹.
    fn nanos(&self, multiplier: Multiplier) -> Option<i128> {
        let digits = self.digits()?;
        let places = i32::try_from(self.fraction.len()).ok()?;
        let (digits, exponent) = match multiplier {
            Multiplier::Ten(exponent) => (digits, exponent.checked_sub(places)?),
            Multiplier::Two(exponent) => (digits.checked_mul(1 << exponent)?, -places),
        };
        if digits == 0 {
            return Some(0);
        }
        let shift = exponent.checked_add(9)?;
        if shift >= 0 {
            return 10_i128.checked_pow(shift.unsigned_abs())?.checked_mul(digits);
        }
        Some(match 10_i128.checked_pow(shift.unsigned_abs()) {
            Some(unit) => div_away(digits, unit),
            None => digits.signum(),
        })
    }

    /// How Kubernetes stores the number (the fast path of `ParseQuantity`).
    fn small_form(&self, multiplier: Multiplier, format: Format) -> Form {
        self.small(multiplier, format).unwrap_or(Form::Large)
    }

    fn small(&self, multiplier: Multiplier, format: Format) -> Option<Form> {
        let places = i32::try_from(self.fraction.len()).ok()?;
        let length = i32::try_from(self.whole.len()).ok()? + places;
        let (factor, exponent, precision) = match multiplier {
            Multiplier::Ten(exponent) => (1, exponent, 18 - length),
            #[allow(clippy::cast_possible_wrap, reason = "an exponent is at most 60")]
            Multiplier::Two(exponent) if self.fraction.is_empty() => {
                (1_i64 << exponent, 0, 15 - length - (exponent * 3 / 10) as i32 - 1)
            }
            Multiplier::Two(_) => return None,
        };
        let scale = exponent.checked_sub(places)?;
        if precision < 0 || scale < -9 {
            return None;
        }
        let digits = i64::try_from(self.digits()?).ok()?;
        let value = digits.checked_mul(factor)?;
        let text = if format == Format::BinarySi {
            digits.unsigned_abs() & 7 != 0
        } else {
            let shown = format!("{}{}", self.whole, self.fraction);
            scale % 3 == 0 && !shown.ends_with("000") && !shown.starts_with('0')
        };
        Some(Form::Small { value, scale, text: text || (value == 0 && places == 0 && scale == 0) })
    }
}

fn split_digits(text: &str) -> (&str, &str) {
    let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    text.split_at(end)
}

/// The canonical text (`CanonicalizeBytes`).
impl fmt::Display for Quantity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.nanos == 0 {
            return f.write_str("0");
        }
        let whole = self.nanos % NANOS == 0;
        let small = self.nanos.abs() < 1024 * NANOS;
        match self.format {
            Format::BinarySi if whole && !small => self.write_binary(f),
            Format::DecimalExponent => self.write_decimal(f, true),
            Format::BinarySi | Format::DecimalSi => self.write_decimal(f, false),
        }
    }
}

impl Quantity {
    fn write_binary(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut value = self.nanos / NANOS;
        let mut power = 0;
        while value % 1024 == 0 && power < BINARY.len() - 1 {
            value /= 1024;
            power += 1;
        }
        write!(f, "{value}{}", BINARY[power])
    }

    fn write_decimal(&self, f: &mut fmt::Formatter<'_>, exponent_form: bool) -> fmt::Result {
        let mut value = self.nanos;
        let mut power = 0;
        // Kubernetes has no suffix beyond exa and prints none. This crate keeps the zeros instead.
        let last = if exponent_form { usize::MAX } else { DECIMAL.len() - 1 };
        while value % 1000 == 0 && power < last {
            value /= 1000;
            power += 1;
        }
        if !exponent_form {
            return write!(f, "{value}{}", DECIMAL[power]);
        }
        match i64::try_from(power).unwrap_or(i64::MAX) * 3 - 9 {
            0 => write!(f, "{value}"),
            exponent => write!(f, "{value}e{exponent}"),
        }
    }
}

const BINARY: [&str; 7] = ["", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"];
const DECIMAL: [&str; 10] = ["n", "u", "m", "", "k", "M", "G", "T", "P", "E"];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn canonical_text() {
        for (text, canonical) in [
            ("0", "0"),
            ("1", "1"),
            ("1024", "1024"),
            ("1024Mi", "1Gi"),
            ("80Gi", "80Gi"),
            ("0.5Gi", "512Mi"),
            ("1500m", "1500m"),
            ("1.5", "1500m"),
            ("1000m", "1"),
            ("1000000", "1M"),
            ("1e3", "1e3"),
            ("12e6", "12e6"),
            ("-3Ki", "-3Ki"),
            ("1n", "1n"),
            ("0.1n", "1n"),
            ("512", "512"),
            ("0.5Ki", "512"),
            ("18446744073709551616", "18446744073709551616"),
        ] {
            let quantity: Quantity = text.parse().unwrap();
            assert_eq!(quantity.to_string(), canonical, "{text}");
            assert_eq!(canonical.parse::<Quantity>().unwrap(), quantity, "{text}");
        }
    }

    #[test]
    fn malformed_text() {
        for text in ["", "Gi", "1GiB", "1 Gi", "1e", "--1", ".", "1.2.3", "1e999999999999"] {
            assert!(text.parse::<Quantity>().is_err(), "{text}");
        }
    }

    #[test]
    fn rounds_away_from_zero() {
        let quantity: Quantity = "1500m".parse().unwrap();
        assert_eq!((quantity.value(), quantity.milli_value()), (2, 1500));
        let quantity: Quantity = "-1500m".parse().unwrap();
        assert_eq!(quantity.value(), -2);
        let quantity: Quantity = "1u".parse().unwrap();
        assert_eq!((quantity.milli_value(), quantity.exact_milli()), (1, None));
    }

    #[test]
    fn is_same_form_compares_the_written_form() {
        let same = |a: &str, b: &str| {
            a.parse::<Quantity>().unwrap().is_same_form(&b.parse::<Quantity>().unwrap())
        };
        assert!(same("1Gi", "1Gi"));
        assert!(same("2", "2"));
        assert!(!same("1024Mi", "1Gi"));
        assert!(!same("1000m", "1"));
    }
}
