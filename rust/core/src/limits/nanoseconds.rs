//! Times in nanoseconds as integers, and as reals where rates are computed.

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "times are positive, and saturate")]
pub(super) fn nanoseconds(ns: f64) -> u64 {
    ns as u64
}

#[expect(clippy::cast_precision_loss, reason = "a month in nanoseconds is exact to the microsecond")]
pub(super) const fn real(ns: u64) -> f64 {
    ns as f64
}
