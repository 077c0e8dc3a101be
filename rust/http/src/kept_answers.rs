//! Answers of judges, kept for `result.extra`: one value a field, or a list where a call asked more
//! than once.

use guerdon_core::report::{Extra, Report};

use crate::dialect::JudgeAnswer;

/// The answers of one attempt of a call, in the order in which they came.
#[derive(Default)]
pub struct KeptAnswers(Vec<JudgeAnswer>);

impl KeptAnswers {
    pub fn push(&mut self, answer: JudgeAnswer) {
        self.0.push(answer);
    }

    /// Adds them to the report of their call, for its first sample: a judge is asked about one.
    pub fn report(mut self, report: &mut Report) {
        type Field = (&'static str, fn(&mut JudgeAnswer) -> Extra);
        #[expect(clippy::cast_precision_loss, reason = "tokens of an answer")]
        let fields: [Field; 8] = [
            ("answer", |answer| answer.text.take().or_else(|| answer.refusal.take()).into()),
            ("reasoning", |answer| answer.reasoning.take().into()),
            ("finish_reason", |answer| answer.finish_reason.take().into()),
            ("request_id", |answer| answer.request_id.take().into()),
            ("model", |answer| answer.model.take().into()),
            ("prompt_tokens", |answer| answer.usage.map(|usage| usage.prompt as f64).into()),
            ("completion_tokens", |answer| answer.usage.map(|usage| usage.completion as f64).into()),
            ("reasoning_tokens", |answer| answer.usage.map(|usage| usage.reasoning as f64).into()),
        ];
        if self.0.is_empty() {
            return;
        }
        for (name, of) in fields {
            let mut values: Vec<Extra> = self.0.iter_mut().map(of).collect();
            let value = if values.len() == 1 { values.remove(0) } else { Extra::List(values) };
            report.add(0, name, value);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kept(answers: Vec<JudgeAnswer>) -> Vec<(String, Extra)> {
        let mut report = Report::default();
        KeptAnswers(answers).report(&mut report);
        report.extra.into_iter().map(|(_, (name, value))| (name.into_owned(), value)).collect()
    }

    #[test]
    fn one_answer_is_plain_values_and_several_are_lists() {
        let answer = |text: &str| JudgeAnswer { text: Some(text.to_owned()), ..JudgeAnswer::default() };
        assert_eq!(kept(Vec::new()), []);
        let one = kept(vec![answer("7")]);
        assert_eq!(one[..2], [("answer".to_owned(), "7".into()), ("reasoning".to_owned(), Extra::None)]);
        let refused = JudgeAnswer { refusal: Some("no".to_owned()), ..JudgeAnswer::default() };
        assert_eq!(kept(vec![answer("7"), refused])[0].1, Extra::from(vec!["7", "no"]));
    }
}
