//! Time that an endpoint takes to answer: an average that follows it, and quantiles of the last
//! answers. Arithmetic only.

/// Answers that quantiles are taken of.
const WINDOW: usize = 64;
/// Answers before there is an average, or a quantile.
const LEAST: usize = 8;
/// The weight of one answer in the average.
const STEP: f64 = 1.0 / 16.0;

/// See the module.
#[derive(Clone, Debug, Default)]
pub struct Latency {
    average_ns: f64,
    answers: usize,
    /// The last answers, as a ring.
    window: Vec<u64>,
    next: usize,
}

impl Latency {
    pub fn answered(&mut self, took_ns: u64) {
        self.answers += 1;
        // The first ones count alike.
        let step = STEP.max(1.0 / real(self.answers));
        self.average_ns += (real_ns(took_ns) - self.average_ns) * step;
        if self.window.len() < WINDOW {
            self.window.push(took_ns);
        } else {
            self.window[self.next] = took_ns;
        }
        self.next = (self.next + 1) % WINDOW;
    }

    /// Notes a missing answer that no caller waits for any more.
    pub fn unanswered(&mut self, waited_ns: u64) {
        if self.average_ns().is_none_or(|average| real_ns(waited_ns) > average) {
            self.answered(waited_ns);
        }
    }

    /// `None` until a few answers have come.
    pub fn average_ns(&self) -> Option<f64> {
        (self.answers >= LEAST).then_some(self.average_ns)
    }

    /// The quantile of the last answers, `None` without any.
    pub fn quantile_ns(&self, quantile: f64) -> Option<u64> {
        let mut sorted = self.window.clone();
        sorted.sort_unstable();
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "an index of a short list")]
        let place = (real(sorted.len()) * quantile) as usize;
        sorted.get(place.min(sorted.len().saturating_sub(1))).copied()
    }
}

#[expect(clippy::cast_precision_loss, reason = "a count, or a time")]
pub const fn real(number: usize) -> f64 {
    number as f64
}

#[expect(clippy::cast_precision_loss, reason = "a time in nanoseconds, as an estimate")]
pub const fn real_ns(number: u64) -> f64 {
    number as f64
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a time, which `as` keeps in bounds")]
pub const fn nanoseconds(number: f64) -> u64 {
    number as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_follows_the_endpoint() {
        let mut latency = Latency::default();
        assert_eq!((latency.average_ns(), latency.quantile_ns(0.5)), (None, None));
        (0..100).for_each(|_| latency.answered(1000));
        assert_eq!((latency.average_ns(), latency.quantile_ns(0.95)), (Some(1000.0), Some(1000)));
        (0..64).for_each(|_| latency.answered(10_000));
        assert!(latency.average_ns().unwrap() > 9000.0);
        assert_eq!(latency.quantile_ns(0.0), Some(10_000));
        latency.unanswered(10);
        assert!(latency.average_ns().unwrap() > 9000.0, "it might have come later");
    }

    #[test]
    fn quantiles_are_those_of_the_last_answers() {
        let mut latency = Latency::default();
        (0..1000).for_each(|_| latency.answered(5));
        (1..=64).for_each(|took| latency.answered(took));
        assert_eq!((latency.quantile_ns(0.5), latency.quantile_ns(1.0)), (Some(33), Some(64)));
    }
}
