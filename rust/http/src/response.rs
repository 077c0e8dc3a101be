//! Reads the scores of a request's samples out of the body of its response.
//!
//! - There is one score a sample, in order, or all of it is an error: a score never
//!   goes to another sample.
//! - `null` abstains, unless the server says what happened (`reported_failures`). Anything else
//!   that is not a number is an error that shows it: of its sample alone, where there are others.

use guerdon_core::outcome::{Cell, Status};
use guerdon_core::report::Report;
use serde_json::value::RawValue;

use crate::dialect::sandbox::SandboxRun;
use crate::dialect::{Api, JudgeAnswer, Usage, reported_failures, rewards, score};
use crate::json_path::JsonPath;
use crate::meter::MeteredRequest;
use crate::parse::{self, AnswerText, Method, ScoreParser};
use crate::quote::quoted;
use crate::raw_json::field;
use crate::repair;

/// Reader of a response.
#[derive(Clone, Debug)]
pub enum ResponseParser {
    /// A judge's answer.
    Judge { api: Api, parser: ScoreParser },
    /// A reward model's number, at the path; without one the only one in the answer.
    Score { path: Option<JsonPath> },
    /// A reward service's numbers, at the path; without one in the usual fields.
    Rewards { path: Option<JsonPath> },
    /// Results of a program in a sandbox, which are not a score yet.
    Sandbox,
}

/// Scores of a response.
#[derive(Debug, Default)]
pub struct Scores {
    /// One a sample; of a rubric whose criteria were asked for, one a criterion.
    pub cells: Vec<Cell>,
    /// Reasons for such a rubric, if the judge gives any; else empty.
    pub reasons: Vec<Option<String>>,
    /// Run of a sandbox: what became of the program; it has no cells.
    pub run: Option<SandboxRun>,
    /// More values for `result.extra`.
    pub report: Report,
}

impl ResponseParser {
    /// The scores of `samples` samples; `Err` has the fault. The cost of the answer is counted in
    /// both cases.
    pub fn read(&self, body: &[u8], samples: usize, request: &mut MeteredRequest<'_>) -> Result<Scores, String> {
        let cells = match self {
            Self::Judge { api, parser } => {
                let answer = api.read(body)?;
                request.answered(answer.usage);
                return judged(parser, answer, body, samples, request);
            }
            Self::Score { path } => {
                let answer = json(body)?;
                request.answered(usage(answer));
                vec![cell(score::find(path.as_ref(), answer)?)?]
            }
            // Read by `request`, which says what a sandbox's own failure means for its endpoint.
            Self::Sandbox => return Err("the run of a program, which is no score".to_owned()),
            Self::Rewards { path } => {
                let answer = json(body)?;
                request.answered(usage(answer));
                let found =
                    rewards::find(path.as_ref(), answer, samples)?.into_iter().map(|found| found.and_then(cell));
                let mut cells: Vec<Cell> = if samples == 1 {
                    found.collect::<Result<_, _>>()?
                } else {
                    found.map(|found| found.unwrap_or_else(Cell::Invalid)).collect()
                };
                let may_have_failed = |cell: &Cell| matches!(cell, Cell::Abstained | Cell::Value(0.0));
                if cells.iter().any(may_have_failed)
                    && let Some(reported) = reported_failures::find(answer, samples)
                {
                    for (cell, reported) in cells.iter_mut().zip(reported) {
                        // A function that was not called has the number that `otherwise=` gives it.
                        let skipped =
                            matches!(&reported, Some(Cell::Reported(resolved)) if resolved.0 == Status::Skipped);
                        if may_have_failed(cell) && !(skipped && *cell != Cell::Abstained) {
                            *cell = reported.unwrap_or_else(|| cell.clone());
                        }
                    }
                }
                cells
            }
        };
        if cells.len() != samples {
            let shown = quoted(&String::from_utf8_lossy(body));
            return Err(format!("{} scores for {samples} samples in {shown}", cells.len()));
        }
        Ok(Scores { cells, ..Scores::default() })
    }
}

/// The scores of a judge's whole answer, which was read from `body`. The message to the judge after
/// an answer that can't be read, and the answer, are kept if they are needed.
pub fn judged(
    parser: &ScoreParser,
    answer: JudgeAnswer,
    body: &[u8],
    samples: usize,
    request: &mut MeteredRequest<'_>,
) -> Result<Scores, String> {
    let found = if parser.criteria() == Some(samples) {
        criteria(parser, &answer, body)
    } else {
        judgment(parser, &answer, body).map(|cell| Scores { cells: vec![cell], ..Scores::default() })
    };
    let found = found.map_err(|why| match &answer.finish_reason {
        Some(reason) if answer.cut => format!("{why} (its finish reason is {})", quoted(reason)),
        _ => why,
    });
    if found.is_err()
        && let Some(text) = &answer.text
        && let Some(advice) = parser.repair_message(readable(&answer, text))
    {
        request.unreadable(repair::messages(text, &advice));
    }
    if found.is_ok()
        && let Some(text) = parser.for_function(readable(&answer, answer.text.as_deref().unwrap_or_default()))
    {
        request.to_parse(&text);
    }
    request.keep(answer);
    let scores = found?;
    if scores.cells.len() == samples {
        return Ok(scores);
    }
    Err(format!("{} scores where {samples} were asked for", scores.cells.len()))
}

/// A score for each criterion, with the reason where the judge says.
fn criteria(parser: &ScoreParser, answer: &JudgeAnswer, body: &[u8]) -> Result<Scores, String> {
    let found = parser.read_judgments(readable(answer, answer.text(body)?))?;
    let (cells, reasons) = found.into_iter().map(|one| (one.score, one.reason)).unzip();
    Ok(Scores { cells, reasons, ..Scores::default() })
}

/// The score of a judge's answer, which was read from `body`.
fn judgment(parser: &ScoreParser, answer: &JudgeAnswer, body: &[u8]) -> Result<Cell, String> {
    if let (Method::LogProb(logprob), Some(first_token)) = (&parser.method, &answer.first_token) {
        return logprob.read(first_token);
    }
    parser.read_answer(readable(answer, answer.text(body)?))
}

fn readable<'a>(answer: &'a JudgeAnswer, text: &'a str) -> AnswerText<'a> {
    AnswerText { text, reasoning: answer.reasoning.as_deref(), cut: answer.cut }
}

fn json(body: &[u8]) -> Result<&RawValue, String> {
    serde_json::from_slice(body)
        .map_err(|error| format!("invalid JSON ({error}): {}", quoted(&String::from_utf8_lossy(body))))
}

/// Returns the score at this place.
fn cell(value: &RawValue) -> Result<Cell, String> {
    let text = value.get();
    if text.starts_with(['[', '{']) {
        return Err(format!("{}, which is not a number", quoted(text)));
    }
    parse::score(&serde_json::from_str(text).map_err(|error| error.to_string())?)
}

fn usage(answer: &RawValue) -> Option<Usage> {
    Usage::openai(field(answer, "usage"))
}

#[cfg(test)]
mod tests {
    use guerdon_core::clock::Clock;

    use super::*;
    use crate::meter::{Meter, Tariff};
    use crate::parse::LogProb;

    /// Returns the scores of a response, and the tokens that it took.
    fn read(parser: &ResponseParser, body: &[u8], samples: usize) -> (Result<Scores, String>, Option<f64>) {
        let tariff = Tariff::default();
        let meter = Meter::new(&tariff, Clock::start());
        (parser.read(body, samples, &mut meter.uncapped()), meter.tokens())
    }

    fn values(answer: &ResponseParser, body: &str, samples: usize) -> Result<Vec<f64>, String> {
        let number = |cell| match cell {
            Cell::Value(value) => value,
            _ => -1.0,
        };
        read(answer, body.as_bytes(), samples).0.map(|scores| scores.cells.into_iter().map(number).collect())
    }

    #[test]
    fn the_usual_shapes_of_reward_services() {
        let usual = ResponseParser::Rewards { path: None };
        assert_eq!(values(&usual, r#"{"rewards": [1, null, 0.5]}"#, 3), Ok(vec![1.0, -1.0, 0.5]));
        assert_eq!(values(&usual, r#"{"score": 0.25, "comment": "x"}"#, 1), Ok(vec![0.25]));
        assert_eq!(values(&usual, "[1, 2]", 2), Ok(vec![1.0, 2.0]));
        assert_eq!(values(&usual, "0.5", 1), Ok(vec![0.5]));
        assert_eq!(values(&usual, r#"[{"score": 1}, {"reward": true}]"#, 2), Ok(vec![1.0, 1.0]));
        let error = values(&usual, r#"{"rewards": [1, 2]}"#, 3).unwrap_err();
        assert!(error.contains("2 scores for 3 samples"), "{error}");
        assert_eq!(values(&usual, r#"{"score": 1, "reward": 1}"#, 1), Ok(vec![1.0]));
        let error = values(&usual, r#"{"score": 0.9, "reward": 0.1}"#, 1).unwrap_err();
        assert!(error.starts_with(r#""reward" and "score" in "#), "{error}");
        assert!(values(&usual, r#"{"score": 1, "score": 0}"#, 1).is_err());
        let error = values(&usual, r#"{"rewards": ["high"]}"#, 1).unwrap_err();
        assert!(error.contains("\"high\", which is not a number"), "{error}");
        let scores = read(&usual, br#"{"rewards": [1, "high", null]}"#, 3).0.unwrap();
        let [Cell::Value(1.0), Cell::Invalid(why), Cell::Abstained] = &scores.cells[..] else { panic!("{scores:?}") };
        assert!(why.contains("\"high\", which is not a number"), "{why}");
        let reported = br#"{"rewards": [1, null, null], "status": ["timeout", "timeout", "abstained"], "reasons": [null, "slow", null]}"#;
        let scores = read(&usual, reported, 3).0.unwrap();
        let slow = Cell::Reported(Box::new((Status::Timeout, "slow".to_owned())));
        assert_eq!(scores.cells, [Cell::Value(1.0), slow, Cell::Abstained], "a number counts, whatever its status");
        for failed in [r#""mask_sample": true"#, r#""status": "failed""#, r#""error": "grader crashed""#] {
            let scores = read(&usual, format!(r#"{{"reward": 0.0, {failed}}}"#).as_bytes(), 1).0.unwrap();
            assert!(matches!(&scores.cells[..], [Cell::Reported(resolved)] if resolved.0 == Status::Error), "{failed}");
        }
        assert_eq!(values(&usual, r#"{"reward": 0.0, "error": null, "status": "skipped"}"#, 1), Ok(vec![0.0]));
        assert!(values(&usual, r#"{"value": 1}"#, 1).unwrap_err().contains("none of"));
        assert!(values(&usual, "{\"rewards\": [1", 1).unwrap_err().contains("invalid JSON"));
    }

    #[test]
    fn a_path_says_where_the_numbers_are() {
        let each = ResponseParser::Rewards { path: JsonPath::parse("data.*.probs.1") };
        let body = r#"{"data": [{"probs": [0.1, 0.9]}, {"probs": [0.8, 0.2]}]}"#;
        assert_eq!(values(&each, body, 2), Ok(vec![0.9, 0.2]));
        let list = ResponseParser::Rewards { path: JsonPath::parse("out.values") };
        assert_eq!(values(&list, r#"{"out": {"values": [3]}}"#, 1), Ok(vec![3.0]));
        assert!(values(&list, r#"{"out": {}}"#, 1).unwrap_err().contains("\"out.values\""));
    }

    #[test]
    fn judges_answer_in_words_or_log_probabilities() {
        let chat = ResponseParser::Judge { api: Api::Chat, parser: Method::Number.into() };
        let body = r#"{"choices": [{"message": {"content": "Score: 7"}}], "usage": {"total_tokens": 12}}"#;
        assert_eq!(values(&chat, body, 1), Ok(vec![7.0]));
        assert_eq!(read(&chat, body.as_bytes(), 1).1, Some(12.0));
        let text = ResponseParser::Judge { api: Api::Completions, parser: Method::Number.into() };
        assert_eq!(values(&text, r#"{"choices": [{"text": " 3"}]}"#, 1), Ok(vec![3.0]));
        let aborted = r#"{"choices": [{"message": {"content": "Score: 7"}, "finish_reason": "abort"}]}"#;
        assert!(values(&chat, aborted, 1).unwrap_err().ends_with("(its finish reason is \"abort\")"));
        let refused = r#"{"choices": [{"message": {"content": null, "refusal": "I can't"}}]}"#;
        assert!(values(&chat, refused, 1).unwrap_err().contains("refused: \"I can't\""));
        assert!(values(&chat, r#"{"error": "x"}"#, 1).unwrap_err().contains("no choices"));
        let parse =
            || Method::LogProb(LogProb { token: "Yes".to_owned(), others: Vec::new(), numbers: Vec::new() }).into();
        let soft = ResponseParser::Judge { api: Api::Chat, parser: parse() };
        let body = r#"{"choices": [{"message": {"content": "Yes"}, "logprobs": {"content": [{"top_logprobs":
            [{"token": "Yes", "logprob": 0.0}]}]}}]}"#;
        assert_eq!(values(&soft, body, 1), Ok(vec![1.0]));
        let soft = ResponseParser::Judge { api: Api::Completions, parser: parse() };
        let body = r#"{"choices": [{"text": "Yes", "logprobs": {"top_logprobs": [{"Yes": 0.0}]}}]}"#;
        assert_eq!(values(&soft, body, 1), Ok(vec![1.0]));
        for unknown in ["null", "\"-inf\"", "[]"] {
            let body = format!(
                r#"{{"choices": [{{"text": "", "logprobs": {{"top_logprobs": [{{"Yes": {unknown}, "No": -1}}]}}}}]}}"#
            );
            let others = vec!["No".to_owned()];
            let parser = Method::LogProb(LogProb { token: "Yes".to_owned(), others, numbers: Vec::new() }).into();
            let soft = ResponseParser::Judge { api: Api::Completions, parser };
            assert!(values(&soft, &body, 1).unwrap_err().contains("not a log-probability"), "never a guess, never 0");
        }
        let without = r#"{"choices": [{"text": "Yes", "logprobs": null}]}"#;
        assert!(values(&soft, without, 1).unwrap_err().contains("does the server support logprobs"));
    }
}
