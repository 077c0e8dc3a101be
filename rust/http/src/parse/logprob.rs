//! Reads a soft score: the probability of an answer's first token.

use guerdon_core::outcome::Cell;

use crate::quote::quoted;

/// Largest error of a soft score because of tokens that the server did not list.
const NEARLY_NOTHING: f64 = 0.01;

/// The log of a probability that was rounded up is hardly above 0.
const ROUNDED: f64 = 0.01;

/// The probability of a token, among these if there are others.
#[derive(Clone, Debug)]
pub struct LogProb {
    pub token: String,
    pub others: Vec<String>,
}

impl LogProb {
    /// The score in the log-probabilities of an answer's first token, as `(token, log-probability)`
    /// of the most likely ones.
    pub fn read(&self, most_likely: &[(&str, f64)]) -> Result<Cell, String> {
        let Self { token, others } = self;
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
        let (low, high) = (part(share, most_rivals), part(most(share), least_rivals));
        if high - low <= NEARLY_NOTHING {
            return Ok(Cell::Value(part(share, least_rivals).min(1.0)));
        }
        let missing = [token].into_iter().chain(others).filter(|wanted| listed(wanted) <= 0.0);
        let missing: Vec<String> = missing.map(|wanted| format!("{wanted:?}")).collect();
        let seen: Vec<String> = most_likely.iter().take(5).map(|(token, _)| quoted(token)).collect();
        let range = if high > 0.0 { format!("{low:.2} to {high:.2}") } else { "anything".to_owned() };
        Err(format!(
            "no probability of {} among the most likely first tokens, which are {}, …: the score may be {range} (parse.logprob(top=) asks for \
             more of them)",
            missing.join(" and "),
            seen.join(", ")
        ))
    }
}

/// The most that the probability of a token can be that the server did not list: a missing token is
/// not an impossible one. (Servers add the chosen token to the most likely ones.)
fn unlisted(most_likely: &[(&str, f64)]) -> f64 {
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
            let seen: Vec<(&str, f64)> = seen.iter().map(|(token, p)| (*token, p.ln())).collect();
            LogProb { token: "Yes".to_owned(), others }.read(&seen).ok()
        };
        let close = |cell: Option<Cell>, expected: f64| matches!(cell, Some(Cell::Value(value)) if (value - expected).abs() < 1e-9);
        assert!(close(read_logprobs(&[], &[("Yes", 0.5), (" Yes", 0.2), ("No", 0.3)]), 0.7));
        assert!(close(read_logprobs(&["No"], &[("Yes", 0.6), ("No", 0.2), ("Hm", 0.1)]), 0.75));
        assert!(close(read_logprobs(&[], &[("Yes", 1.000_001)]), 1.0));
        assert!(read_logprobs(&["No"], &[("Yes", f64::INFINITY), ("No", f64::INFINITY)]).is_none());
    }

    #[test]
    fn unlisted_tokens_are_not_impossible() {
        let read_logprobs = |others: &[&str], seen: &[(&str, f64)]| {
            let others = others.iter().map(|other| (*other).to_owned()).collect();
            let seen: Vec<(&str, f64)> = seen.iter().map(|(token, p)| (*token, p.ln())).collect();
            LogProb { token: "Yes".to_owned(), others }.read(&seen)
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
