//! Reads a soft score: the probability of an answer's first token, or the expectation of numbers.

use guerdon_core::outcome::Cell;

use crate::quote::quoted;

/// Largest error of a soft score, as a share of its range, because of tokens that the server did
/// not list.
const NEARLY_NOTHING: f64 = 0.01;

/// The log of a probability that was rounded up is hardly above 0.
const ROUNDED: f64 = 0.01;

/// The probability of a token, among these if there are others; or their expectation.
#[derive(Clone, Debug)]
pub struct LogProb {
    pub token: String,
    pub others: Vec<String>,
    /// The number of each token, the first one's included, if their expectation is the score.
    pub numbers: Vec<f64>,
}

impl LogProb {
    /// The score in the log-probabilities of an answer's first token, as `(token, log-probability)`
    /// of the most likely ones.
    pub fn read(&self, most_likely: &[(String, f64)]) -> Result<Cell, String> {
        let Self { token, others, numbers } = self;
        let wanted = |seen: &str| [token].into_iter().chain(others).any(|wanted| bare(seen) == bare(wanted));
        if let Some((token, logprob)) =
            most_likely.iter().find(|(seen, logprob)| *logprob > ROUNDED || (logprob.is_nan() && wanted(seen)))
        {
            return Err(format!("{logprob} for the token {}, which is not a log-probability", quoted(token)));
        }
        let listed = |wanted: &str| -> f64 {
            let same = most_likely.iter().filter(|(token, _)| bare(token) == bare(wanted));
            same.map(|(_, logprob)| logprob.exp()).sum::<f64>() + 0.0 // the sum of nothing is -0.0
        };
        let unlisted = unlisted(most_likely);
        let most = |listed: f64| if listed > 0.0 { listed } else { unlisted };
        let (share, rivals): (_, Vec<f64>) = (listed(token), others.iter().map(|other| listed(other)).collect());
        let part = |share: f64, rivals: f64| if others.is_empty() { share } else { share / (share + rivals) };
        let (least_rivals, most_rivals) = (rivals.iter().sum(), rivals.iter().copied().map(most).sum());
        let (low, score, high, span) = if numbers.is_empty() {
            let score = part(share, least_rivals).min(1.0);
            (part(share, most_rivals), score, part(most(share), least_rivals), 1.0)
        } else {
            let shares: Vec<f64> = [share].into_iter().chain(rivals).collect();
            expected(numbers, &shares, unlisted)
        };
        if high - low <= NEARLY_NOTHING * span {
            return Ok(Cell::Value(score));
        }
        let missing = [token].into_iter().chain(others).filter(|wanted| listed(wanted) <= 0.0);
        let missing: Vec<String> = missing.map(|wanted| format!("{wanted:?}")).collect();
        let seen: Vec<String> = most_likely.iter().take(5).map(|(token, _)| quoted(token)).collect();
        let range = if high.is_finite() { format!("{low:.2} to {high:.2}") } else { "anything".to_owned() };
        Err(format!(
            "no probability of {} among the most likely first tokens, which are {}, …: the score may be {range} (parse.logprob(top=) asks for \
             more of them)",
            missing.join(" and "),
            seen.join(", ")
        ))
    }
}

/// Returns the expectation of numbers between its lowest and highest value, for which missing
/// tokens are as likely as they can be, and the range of the numbers.
fn expected(numbers: &[f64], shares: &[f64], unlisted: f64) -> (f64, f64, f64, f64) {
    let mean = |counts: &dyn Fn(f64) -> bool| {
        let weighed = numbers.iter().zip(shares).map(|(number, share)| {
            let weight = if *share <= 0.0 && counts(*number) { unlisted } else { *share };
            (number * weight, weight)
        });
        let (sum, weights) = weighed.fold((0.0, 0.0), |all, one| (all.0 + one.0, all.1 + one.1));
        sum / weights
    };
    let score = mean(&|_| false);
    let most = numbers.iter().copied().fold(f64::MIN, f64::max);
    let least = numbers.iter().copied().fold(f64::MAX, f64::min);
    (mean(&|number| number < score), score, mean(&|number| number > score), most - least)
}

/// The most that the probability of a token can be that the server did not list: a missing token is
/// not an impossible one. (Servers add the chosen token to the most likely ones.)
fn unlisted(most_likely: &[(String, f64)]) -> f64 {
    // Some servers say -9999 for "unknown, but small".
    let mut listed: Vec<f64> = most_likely.iter().map(|(_, logprob)| logprob.exp()).filter(|p| *p > 0.0).collect();
    listed.sort_by(f64::total_cmp);
    let left = (1.0 - listed.iter().sum::<f64>()).max(0.0);
    listed.get(1).map_or(left, |least_but_one| left.min(*least_but_one))
}

/// A token without the mark of a space before it.
fn bare(token: &str) -> &str {
    token.trim_matches(|letter: char| letter.is_whitespace() || matches!(letter, '\u{120}' | '\u{2581}' | '\u{10A}'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn probabilities_of_the_first_token() {
        let read_logprobs = |others: &[&str], seen: &[(&str, f64)]| {
            let others = others.iter().map(|other| (*other).to_owned()).collect();
            let seen: Vec<(String, f64)> = seen.iter().map(|(token, p)| ((*token).to_owned(), p.ln())).collect();
            LogProb { token: "Yes".to_owned(), others, numbers: Vec::new() }.read(&seen).ok()
        };
        let close = |cell: Option<Cell>, expected: f64| matches!(cell, Some(Cell::Value(value)) if (value - expected).abs() < 1e-9);
        assert!(close(read_logprobs(&[], &[("Yes", 0.5), (" Yes", 0.2), ("No", 0.3)]), 0.7));
        assert!(close(read_logprobs(&["No"], &[("Yes", 0.6), ("No", 0.2), ("Hm", 0.1)]), 0.75));
        assert!(close(read_logprobs(&[], &[("Yes", 1.000_001)]), 1.0));
        assert!(read_logprobs(&["No"], &[("Yes", f64::INFINITY), ("No", f64::INFINITY)]).is_none());
    }

    #[test]
    fn the_expectation_of_digits_is_their_mean() {
        let read = |seen: &[(&str, f64)]| {
            let others = ["2", "3", "4", "5"].map(str::to_owned).to_vec();
            let seen: Vec<(String, f64)> = seen.iter().map(|(token, p)| ((*token).to_owned(), p.ln())).collect();
            LogProb { token: "1".to_owned(), others, numbers: vec![1.0, 2.0, 3.0, 4.0, 5.0] }.read(&seen)
        };
        let is = |cell: Result<Cell, String>, expected: f64| matches!(cell, Ok(Cell::Value(value)) if (value - expected).abs() < 1e-9);
        assert!(is(read(&[("4", 0.5), (" 5", 0.2), ("5", 0.1), ("3", 0.2), ("Hm", 0.0)]), 4.1));
        assert!(is(read(&[("1", 0.999), ("Hm", 0.000_1), ("So", 0.000_1)]), 1.0), "the others are next to nothing");
        assert!(read(&[("4", 0.6), ("5", 0.2)]).unwrap_err().contains("of \"1\" and \"2\" and \"3\" among"));
        assert!(read(&[("4", 0.6), ("5", 0.2)]).unwrap_err().contains("may be 3.29 to 4.25"));
        assert!(read(&[("Hm", 1.0)]).unwrap_err().contains("may be anything"));
    }

    #[test]
    fn unlisted_tokens_are_not_impossible() {
        let read_logprobs = |others: &[&str], seen: &[(&str, f64)]| {
            let others = others.iter().map(|other| (*other).to_owned()).collect();
            let seen: Vec<(String, f64)> = seen.iter().map(|(token, p)| ((*token).to_owned(), p.ln())).collect();
            LogProb { token: "Yes".to_owned(), others, numbers: Vec::new() }.read(&seen)
        };
        let is = |cell: Result<Cell, String>, expected: f64| matches!(cell, Ok(Cell::Value(value)) if (value - expected).abs() < 1e-9);
        let fails = |cell: Result<Cell, String>, why: &str| cell.is_err_and(|reason| reason.contains(why));
        // Alone: 0 where nothing is left for it, or all others that are as likely are listed.
        assert!(is(read_logprobs(&[], &[("No", 0.99), ("Hm", 0.005)]), 0.0));
        assert!(is(read_logprobs(&[], &[("No", 0.5), ("Hm", 0.008), ("So", 0.007)]), 0.0));
        assert!(fails(read_logprobs(&[], &[("No", 0.5), ("Hm", 0.3)]), "may be 0.00 to 0.20 "));
        assert!(
            fails(read_logprobs(&[], &[("No", 0.5), ("Hm", 0.001)]), "may be 0.00 to 0.50 "),
            "the last may be the one chosen"
        );
        // With rivals: neither is listed, one of them, one of several.
        assert!(fails(read_logprobs(&["No"], &[("Hm", 0.99), ("So", 0.001)]), "of \"Yes\" and \"No\" among"));
        assert!(fails(read_logprobs(&["No"], &[("Hm", 1.0)]), "may be anything"));
        assert!(is(read_logprobs(&["No"], &[("No", 0.9), ("Hm", 0.1)]), 0.0));
        assert!(is(read_logprobs(&["No"], &[("Yes", 0.9), ("Hm", 0.005), ("So", 0.001)]), 1.0));
        assert!(fails(read_logprobs(&["No"], &[("No", 0.6)]), "may be 0.00 to 0.40 "));
        assert!(fails(read_logprobs(&["No"], &[("Yes", 0.6)]), "may be 0.60 to 1.00 "));
        assert!(is(
            read_logprobs(&["No", "Maybe"], &[("Yes", 0.6), ("No", 0.39), ("Hm", 0.005), ("So", 0.001)]),
            0.6 / 0.99
        ));
        assert!(fails(read_logprobs(&["No", "Maybe"], &[("Yes", 0.6), ("No", 0.2)]), "of \"Maybe\" among"));
        assert!(fails(read_logprobs(&[], &[]), "may be 0.00 to 1.00 "));
        assert!(fails(read_logprobs(&[], &[("No", 0.6), ("Yes", 0.0)]), "may be 0.00 to 0.40 "), "-9999 is unknown");
        assert!(fails(read_logprobs(&[], &[(&"x".repeat(10_000), 0.6)]), "xxx\"…, …: the score"));
    }
}
