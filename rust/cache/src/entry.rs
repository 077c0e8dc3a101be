//! An outcome as bytes: a checksum of key and contents, the value, the records and the named
//! values. Bytes that fail the check are not an outcome.

use guerdon_core::outcome_cache::{KeptOutcome, OutcomeKey};
use guerdon_core::report::{Extra, NamedExtra};
use serde_json::Value;

const CHECKSUM: usize = 16;
const ABSTAINED: u8 = 0;
const SCORED: u8 = 1;

/// The bytes of an outcome.
pub(crate) fn encode(key: &OutcomeKey, outcome: &KeptOutcome) -> Vec<u8> {
    let mut bytes = vec![0; CHECKSUM];
    bytes.push(if outcome.value.is_some() { SCORED } else { ABSTAINED });
    bytes.extend(outcome.value.unwrap_or_default().to_bits().to_le_bytes());
    let record = outcome.record.as_deref();
    bytes.extend(record.map_or(0, |record| record.len() as u64 + 1).to_le_bytes());
    bytes.extend(record.unwrap_or_default());
    if !outcome.extra.is_empty() {
        let extra = outcome.extra.iter().map(|(name, value)| Value::Array(vec![name.as_ref().into(), json(value)]));
        bytes.extend(Value::Array(extra.collect()).to_string().as_bytes());
    }
    let sum = checksum(key, &bytes[CHECKSUM..]);
    bytes[..CHECKSUM].copy_from_slice(&sum);
    bytes
}

/// The outcome that these bytes hold; `None` if they are not the bytes kept under this key.
pub(crate) fn decode(key: &OutcomeKey, bytes: &[u8]) -> Option<KeptOutcome> {
    let (sum, rest) = bytes.split_at_checked(CHECKSUM)?;
    if sum != checksum(key, rest) {
        return None;
    }
    let (&status, rest) = rest.split_first()?;
    let (value, rest) = rest.split_first_chunk()?;
    let value = (status == SCORED).then_some(f64::from_bits(u64::from_le_bytes(*value)));
    let (length, rest) = rest.split_first_chunk()?;
    let (record, rest) = match usize::try_from(u64::from_le_bytes(*length)).ok()? {
        0 => (None, rest),
        length => rest.split_at_checked(length - 1).map(|(record, rest)| (Some(record.to_vec()), rest))?,
    };
    let extra = if rest.is_empty() { Vec::new() } else { named(serde_json::from_slice(rest).ok()?)? };
    Some(KeptOutcome { value, record, extra })
}

fn checksum(key: &OutcomeKey, rest: &[u8]) -> [u8; CHECKSUM] {
    let hash = blake3::keyed_hash(key, rest);
    let mut sum = [0; CHECKSUM];
    sum.copy_from_slice(&hash.as_bytes()[..CHECKSUM]);
    sum
}

/// Numbers are written as their bits, so that each is read back exactly.
fn json(value: &Extra) -> Value {
    match value {
        Extra::None => Value::Null,
        Extra::Number(number) => number.to_bits().into(),
        Extra::Text(text) => Value::String(text.clone()),
        Extra::List(values) => Value::Array(values.iter().map(json).collect()),
    }
}

fn extra(value: Value) -> Option<Extra> {
    Some(match value {
        Value::Null => Extra::None,
        Value::Number(bits) => Extra::Number(f64::from_bits(bits.as_u64()?)),
        Value::String(text) => Extra::Text(text),
        Value::Array(values) => Extra::List(values.into_iter().map(extra).collect::<Option<_>>()?),
        Value::Bool(_) | Value::Object(_) => return None,
    })
}

fn named(value: Value) -> Option<Vec<NamedExtra>> {
    let Value::Array(pairs) = value else { return None };
    let one = |pair: Value| {
        let Value::Array(pair) = pair else { return None };
        let [Value::String(name), value] = <[Value; 2]>::try_from(pair).ok()? else { return None };
        Some((name.into(), extra(value)?))
    };
    pairs.into_iter().map(one).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn values() -> impl Strategy<Value = Extra> {
        let leaf = prop_oneof![
            Just(Extra::None),
            any::<f64>().prop_filter("NaN is no equal of itself", |number| !number.is_nan()).prop_map(Extra::Number),
            ".{0,20}".prop_map(Extra::Text),
        ];
        leaf.prop_recursive(2, 8, 4, |inner| prop::collection::vec(inner, 0..4).prop_map(Extra::List))
    }

    fn outcomes() -> impl Strategy<Value = KeptOutcome> {
        let value = prop::option::of(any::<f64>().prop_filter("no NaN", |number| !number.is_nan()));
        let record = prop::option::of(prop::collection::vec(any::<u8>(), 0..50));
        let extra = prop::collection::vec((".{0,10}".prop_map(Into::into), values()), 0..4);
        (value, record, extra).prop_map(|(value, record, extra)| KeptOutcome { value, record, extra })
    }

    proptest! {
        #[test]
        fn written_values_are_read_back(key: [u8; 32], outcome in outcomes()) {
            prop_assert_eq!(decode(&key, &encode(&key, &outcome)), Some(outcome));
        }

        #[test]
        fn changed_entries_are_not_outcomes(key: [u8; 32], outcome in outcomes(), at: prop::sample::Index, bit in 0..8u8, cut: bool) {
            let mut bytes = encode(&key, &outcome);
            let at = at.index(bytes.len());
            if cut { bytes.truncate(at) } else { bytes[at] ^= 1 << bit }
            prop_assert_eq!(decode(&key, &bytes), None);
        }

        #[test]
        fn entry_of_another_call_is_not_an_outcome(key: [u8; 32], other: [u8; 32], outcome in outcomes()) {
            prop_assume!(key != other);
            prop_assert_eq!(decode(&other, &encode(&key, &outcome)), None);
        }
    }
}
