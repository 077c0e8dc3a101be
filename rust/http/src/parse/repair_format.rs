//! Says which answer would have been readable, for a judge that is asked again.

use super::parser::{AnswerText, Method, ScoreParser};
use super::rubric::Layout;

impl ScoreParser {
    /// Returns the message to the judge after an answer that could not be read; `None` where no
    /// other wording would help.
    #[must_use]
    pub fn repair_message(&self, answer: AnswerText<'_>) -> Option<String> {
        let (why, wanted) = (self.found(answer).err()?, self.wanted()?);
        Some(format!("Your answer could not be read: {why}. Answer again, and give nothing but {wanted}."))
    }

    fn wanted(&self) -> Option<String> {
        let number = match self.range {
            Some(range) => format!("a number from {} to {}", range.low, range.high),
            None => "a number".to_owned(),
        };
        Some(match &self.method {
            Method::Number => format!("one line: Score: <{number}>"),
            Method::Labelled(label) => format!("one line: {label}: <{number}>"),
            Method::Tag(name) => format!("<{name}>…</{name}>, once, with the score in it, which is {number}"),
            Method::Pattern(pattern) => {
                let words: Vec<String> = pattern.words().map(|word| format!("{word:?}")).collect();
                let words = if words.is_empty() { String::new() } else { format!(" with one of {}", words.join(", ")) };
                format!("one text that matches the regular expression {}{words}", pattern.as_str())
            }
            Method::Json(path) => format!("one JSON object with {number} in its field {path}"),
            Method::YesNo => "the one word yes or no".to_owned(),
            Method::Choice(choice) => {
                let labels: Vec<&str> = choice.labels().collect();
                format!("one of these labels: {}", labels.join(", "))
            }
            Method::Rubric(rubric) => {
                let names: Vec<String> = rubric.criteria.iter().map(|one| one.name.clone()).collect();
                match rubric.layout {
                    Layout::Json => format!("one JSON object with {number} for each of {}", names.join(", ")),
                    Layout::Tags => {
                        let tags: Vec<String> = names.iter().map(|name| format!("<{name}>…</{name}>")).collect();
                        format!("{}, once each, with {number} in it", tags.join(", "))
                    }
                }
            }
            Method::LogProb(_) | Method::Function => return None,
        })
    }
}
