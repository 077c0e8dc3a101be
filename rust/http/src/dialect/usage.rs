//! The tokens that a request took, as its server counts them.

use crate::raw_json::{Raw, count, within};

/// Tokens of one request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Tokens of the request, cached ones included.
    pub prompt: u64,
    /// Those of the prompt that the server had in its cache.
    pub cached: u64,
    /// Those of the prompt that it put there.
    pub written: u64,
    /// Tokens of the answer, reasoning included.
    pub completion: u64,
    /// Those of the answer that are reasoning.
    pub reasoning: u64,
    /// The server's sum of them.
    pub total: u64,
}

/// Names in `usage` of OpenAI's APIs.
const OPENAI: [&str; 9] = [
    "prompt_tokens",
    "input_tokens",
    "completion_tokens",
    "output_tokens",
    "total_tokens",
    "prompt_tokens_details",
    "input_tokens_details",
    "completion_tokens_details",
    "output_tokens_details",
];

impl Usage {
    /// Reads the usage of OpenAI's APIs, by their old names, else by the new ones.
    pub fn openai(given: Raw<'_>) -> Option<Self> {
        let [prompt, input, completion, output, total, of_prompt, of_input, of_completion, of_output] =
            within(given, OPENAI);
        let prompt = count(prompt).or_else(|| count(input));
        let completion = count(completion).or_else(|| count(output));
        let total = count(total);
        prompt.or(completion).or(total)?;
        let prompt = prompt.unwrap_or(0);
        // Some servers count reasoning in the total alone.
        let reported = completion.unwrap_or(0);
        let completion = total.map_or(reported, |total| reported.max(total.saturating_sub(prompt)));
        let [cached] = within(of_prompt.or(of_input), ["cached_tokens"]).map(count);
        let [reasoning] = within(of_completion.or(of_output), ["reasoning_tokens"]).map(count);
        Some(Self {
            prompt,
            cached: cached.unwrap_or(0).min(prompt),
            written: 0,
            completion,
            reasoning: reasoning.unwrap_or(0).min(completion),
            total: total.unwrap_or(prompt.saturating_add(completion)),
        })
    }

    /// Reads the usage of Anthropic's messages, where cached tokens are not among the input's.
    pub fn anthropic(given: Raw<'_>) -> Option<Self> {
        let names = ["input_tokens", "output_tokens", "cache_read_input_tokens", "cache_creation_input_tokens"];
        let [input, output, cached, written] = within(given, names).map(count);
        input.or(output)?;
        let (cached, written) = (cached.unwrap_or(0), written.unwrap_or(0));
        let prompt = input.unwrap_or(0).saturating_add(cached).saturating_add(written);
        let completion = output.unwrap_or(0);
        Some(Self { prompt, cached, written, completion, reasoning: 0, total: prompt.saturating_add(completion) })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::value::RawValue;

    use super::*;

    fn raw(text: &str) -> Box<RawValue> {
        RawValue::from_string(text.to_owned()).unwrap()
    }

    #[test]
    fn each_api_counts_in_its_own_words() {
        let chat = r#"{"prompt_tokens": 40, "completion_tokens": 10, "total_tokens": 50,
            "prompt_tokens_details": {"cached_tokens": 32}, "completion_tokens_details": {"reasoning_tokens": 6}}"#;
        let responses = r#"{"input_tokens": 40, "output_tokens": 10, "total_tokens": 50,
            "input_tokens_details": {"cached_tokens": 32}, "output_tokens_details": {"reasoning_tokens": 6}}"#;
        let same = Usage { prompt: 40, cached: 32, completion: 10, reasoning: 6, total: 50, written: 0 };
        assert_eq!(Usage::openai(Some(&raw(chat))), Some(same));
        assert_eq!(Usage::openai(Some(&raw(responses))), Some(same));
        let messages = r#"{"input_tokens": 3, "cache_creation_input_tokens": 5, "cache_read_input_tokens": 32, "output_tokens": 10}"#;
        assert_eq!(Usage::anthropic(Some(&raw(messages))), Some(Usage { reasoning: 0, written: 5, ..same }));
    }

    #[test]
    fn reasoning_outside_the_completion_is_counted_by_the_total() {
        let given = r#"{"prompt_tokens": 32, "completion_tokens": 9, "total_tokens": 1041,
            "completion_tokens_details": {"reasoning_tokens": 1000}}"#;
        let found = Usage::openai(Some(&raw(given))).unwrap();
        assert_eq!((found.completion, found.reasoning), (1009, 1000));
    }

    #[test]
    fn missing_or_odd_usage_counts_nothing() {
        assert_eq!(Usage::openai(None), None);
        assert_eq!(Usage::openai(Some(&raw("7"))), None);
        assert_eq!(Usage::openai(Some(&raw("{}"))), None);
        let odd = r#"{"prompt_tokens": "many", "total_tokens": 7.0, "prompt_tokens_details": null}"#;
        let all = Usage { completion: 7, total: 7, ..Usage::default() };
        assert_eq!(Usage::openai(Some(&raw(odd))), Some(all), "what is no prompt is output");
        assert_eq!(Usage::anthropic(Some(&raw(r#"{"input_tokens": -1}"#))), None);
        let more = r#"{"prompt_tokens": 3, "completion_tokens": 2, "prompt_tokens_details": {"cached_tokens": 9},
            "completion_tokens_details": [9]}"#;
        let part = Usage { prompt: 3, cached: 3, completion: 2, total: 5, ..Usage::default() };
        assert_eq!(Usage::openai(Some(&raw(more))), Some(part), "no part is more than the whole");
        assert_eq!(Usage::openai(Some(&raw("[1, 2, 3]"))), None);
        assert_eq!(Usage::openai(Some(&raw(r#"{"total_tokens": 1e30, "prompt_tokens": 1e999}"#))), None);
    }
}
