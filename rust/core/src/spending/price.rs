//! Prices of tokens.

use serde::Deserialize;

use crate::report::Usage;

const MILLION: f64 = 1e6;

/// The price of a million tokens, in whatever currency.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Price {
    pub input: f64,
    /// Price of the prompt's tokens that the server had in its cache.
    pub cached: f64,
    /// Price of the prompt's tokens that the server wrote to its cache.
    #[serde(rename = "cache_write")]
    pub written: f64,
    pub output: f64,
}

impl Price {
    /// Returns the cost of tokens, of which `written` were written to the server's cache.
    #[must_use]
    #[expect(clippy::cast_precision_loss, reason = "tokens of a request")]
    pub fn of(&self, tokens: &Usage, written: u64) -> f64 {
        let cached = tokens.cached_tokens.min(tokens.prompt_tokens);
        let written = written.min(tokens.prompt_tokens - cached);
        let plain = tokens.prompt_tokens - cached - written;
        let input = plain as f64 * self.input + cached as f64 * self.cached + written as f64 * self.written;
        (input + tokens.completion_tokens as f64 * self.output) / MILLION
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cached_tokens_are_among_those_of_the_prompt() {
        let price = Price { input: 2.0, cached: 0.5, written: 2.5, output: 8.0 };
        let tokens = |prompt_tokens, cached_tokens, completion_tokens| Usage {
            prompt_tokens,
            cached_tokens,
            completion_tokens,
            ..Usage::default()
        };
        assert!((price.of(&tokens(1_000_000, 400_000, 10_000), 0) - (1.2 + 0.2 + 0.08)).abs() < 1e-12);
        assert!((price.of(&tokens(10, 1000, 0), 7) - 5e-6).abs() < 1e-12, "no more than there are");
        assert!((price.of(&tokens(1_000_000, 400_000, 0), 200_000) - (0.8 + 0.2 + 0.5)).abs() < 1e-12);
    }
}
