//! Numbers as math-verify's parsers read them.
//!
//! - The value is exact, or marked as rough. A number longer than the rules cover is not a
//!   `Number`.

/// SymPy's form of a number; SymPy compares the forms by different rules.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// An integer, or a LaTeX fraction with an integer value.
    Integer,
    /// A LaTeX fraction.
    Ratio,
    /// `a/b` outside of LaTeX, which stays a product in SymPy.
    Quotient,
    /// A decimal, which is a float in SymPy.
    Decimal,
}

/// A number: `numerator / denominator`, perhaps in percent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Number {
    pub form: Form,
    pub numerator: i128,
    pub denominator: i128,
    pub percent: bool,
    /// Digits were cut off: the true value is a little larger, and not equal to any exact number.
    pub rough: bool,
}

/// Most digits of integers, and of other numbers: floats are exact to 15 digits.
const INTEGER_DIGITS: usize = 18;
const DECIMAL_DIGITS: usize = 15;
/// Fractions with more digits may differ by less than SymPy's precision.
const FRACTION_DIGITS: usize = 6;

impl Number {
    /// Reads `-1,234.50`, digits and marks only; a `+` if `plus` is set.
    pub fn decimal(text: &str, plus: bool) -> Option<Self> {
        let (negative, rest) = match text.as_bytes().first()? {
            b'-' => (true, text.get(1..)?),
            // math-verify reads a sign before commas as a list.
            b'+' if plus && !text.contains(',') => (false, text.get(1..)?),
            _ => (false, text),
        };
        let (whole, fraction) = rest.split_once('.').map_or((rest, None), |(whole, rest)| (whole, Some(rest)));
        let fraction = match fraction {
            Some("") => return None,
            Some(digits) => digits,
            None => "",
        };
        let whole_digits = whole.bytes().filter(|byte| *byte != b',').count();
        let most = if fraction.is_empty() { INTEGER_DIGITS } else { DECIMAL_DIGITS };
        if whole_digits > most || !is_grouped(whole) || !fraction.bytes().all(|byte| byte.is_ascii_digit()) {
            return None;
        }
        let rough = whole_digits + fraction.len() > most;
        let fraction = fraction.get(..most - whole_digits).filter(|_| rough).unwrap_or(fraction);
        let mut value: i128 = 0;
        for byte in whole.bytes().chain(fraction.bytes()).filter(|byte| *byte != b',') {
            value = value * 10 + i128::from(byte - b'0');
        }
        let numerator = if negative { -value } else { value };
        let places = u32::try_from(fraction.len()).ok()?;
        let form = if most == INTEGER_DIGITS { Form::Integer } else { Form::Decimal };
        Some(Self { form, numerator, denominator: 10_i128.pow(places), percent: false, rough })
    }

    /// Makes a number of the texts of two integers.
    pub fn fraction(form: Form, above: &str, below: &str, plus: bool) -> Option<Self> {
        let part = |text: &str| {
            let short = text.len() <= FRACTION_DIGITS && !text.contains([',', '.']);
            short.then(|| Self::decimal(text, plus))?.map(|part| part.numerator)
        };
        let (numerator, denominator) = (part(above)?, part(below)?);
        if denominator == 0 {
            return None;
        }
        let whole = form == Form::Ratio && numerator % denominator == 0;
        Some(if whole {
            Self {
                form: Form::Integer,
                numerator: numerator / denominator,
                denominator: 1,
                percent: false,
                rough: false,
            }
        } else {
            let sign = denominator.signum();
            Self { form, numerator: numerator * sign, denominator: denominator * sign, percent: false, rough: false }
        })
    }

    #[must_use]
    pub fn negated(self) -> Self {
        Self { numerator: -self.numerator, ..self }
    }

    #[must_use]
    pub fn in_percent(self) -> Self {
        Self { percent: true, ..self }
    }
}

/// Returns whether there is a comma before each three digits, or no comma.
fn is_grouped(whole: &str) -> bool {
    if whole.is_empty() {
        return false;
    }
    if !whole.contains(',') {
        return whole.bytes().all(|byte| byte.is_ascii_digit());
    }
    let mut groups = whole.split(',');
    let first = groups.next().unwrap_or_default();
    let is_digits = |group: &str| group.bytes().all(|byte| byte.is_ascii_digit());
    (1..=3).contains(&first.len())
        && is_digits(first)
        && !first.starts_with('0')
        && groups.all(|group| group.len() == 3 && is_digits(group))
}
