//! IFEval's instructions: which of them a text follows.
//!
//! - An instruction is decided if its checker is deterministic and its arguments are present. It is
//!   undecided if it needs a language detector, a trained sentence splitter or a random choice.
//!   That depends only on the instruction, never on the text: no text can choose to have no score.
//! - A text of white space follows no instruction, as in IFEval.

mod arguments;
mod checks;
mod keyword;
mod layout;
mod markup;

use serde::Deserialize;
use serde_json::{Map, Value};

use crate::kernels::fault::{Fault, Score, Stop};
use crate::kernels::input::{Input, InputForm};
use crate::kernels::kernel::Kernel;
use crate::kernels::python_text::strip;
use arguments::{ARGUMENTS, Arguments, IDS};
use checks::follows;

/// Score of a text.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "snake_case")]
pub enum IfevalScore {
    /// Score 1 if it follows all instructions.
    All,
    /// Score the share of instructions that it follows.
    Share,
}

/// Rule for instructions that can't be decided.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "snake_case")]
pub enum UndecidedRule {
    /// A sample with an undecided instruction has no score.
    Abstain,
    /// Undecided instructions don't count; a sample without others has no score.
    LeaveOut,
}

/// See the module.
pub struct Ifeval {
    pub score: IfevalScore,
    pub loose: bool,
    pub undecided: UndecidedRule,
}

/// The forms of a text, one of which must follow: with and without its first line, last line and
/// asterisks.
fn forms(text: &str) -> Vec<String> {
    let lines: Vec<&str> = text.split('\n').collect();
    let joined = |lines: &[&str]| strip(&lines.join("\n")).to_owned();
    let (last, both) = (lines.len() - 1, 1..(lines.len() - 1).max(1));
    let whole = [text.to_owned(), joined(&lines[1..]), joined(&lines[..last]), joined(&lines[both])];
    let plain: Vec<String> = whole.iter().map(|one| one.replace('*', "")).collect();
    whole.into_iter().chain(plain).collect()
}

/// Returns whether a text, in one of its forms, follows an instruction; `None` if undecided.
fn decided(forms: &[String], id: &str, arguments: &Arguments<'_>, stop: &dyn Stop) -> Result<Option<bool>, Fault> {
    for form in forms {
        stop.check()?;
        match follows(form, id, arguments, stop)? {
            Some(true) if !strip(form).is_empty() => return Ok(Some(true)),
            Some(_) => {}
            None => return Ok(None),
        }
    }
    Ok(Some(false))
}

impl Ifeval {
    fn of(
        &self,
        text: &str,
        ids: &[String],
        arguments: &[Map<String, Value>],
        stop: &dyn Stop,
    ) -> Result<Score, Fault> {
        let forms = if self.loose { forms(text) } else { vec![text.to_owned()] };
        let (mut followed, mut decided_ones, mut open) = (0_u32, 0_u32, 0_u32);
        for (id, arguments) in ids.iter().zip(arguments) {
            match decided(&forms, id, &Arguments(arguments), stop)? {
                Some(is_followed) => {
                    followed += u32::from(is_followed);
                    decided_ones += 1;
                }
                None => open += 1,
            }
        }
        let is_known = decided_ones > 0 && (open == 0 || self.undecided == UndecidedRule::LeaveOut);
        let value = match self.score {
            IfevalScore::All => f64::from(u8::from(followed == decided_ones)),
            IfevalScore::Share => f64::from(followed) / f64::from(decided_ones.max(1)),
        };
        Ok(is_known.then_some(value))
    }
}

impl Kernel for Ifeval {
    fn inputs(&self) -> Vec<InputForm> {
        vec![InputForm::Text, InputForm::Json, InputForm::Json]
    }

    fn score(&self, inputs: &[Input<'_>], stop: &dyn Stop) -> Result<Score, Fault> {
        let ids = serde_json::from_str::<Option<Vec<String>>>(Input::json(inputs, IDS)?);
        let ids = ids.map_err(|_| Fault::input(IDS, "no list of instructions of IFEval"))?;
        let arguments =
            serde_json::from_str::<Option<Vec<Option<Map<String, Value>>>>>(Input::json(inputs, ARGUMENTS)?);
        let arguments = arguments.map_err(|_| Fault::input(ARGUMENTS, "no list of objects"))?;
        let (Some(ids), Some(arguments)) = (ids, arguments) else { return Ok(None) };
        if ids.len() != arguments.len() {
            return Err(Fault::input(
                ARGUMENTS,
                format!("arguments of {} instructions, not {}", arguments.len(), ids.len()),
            ));
        }
        let arguments: Vec<_> = arguments.into_iter().map(Option::unwrap_or_default).collect();
        self.of(Input::text(inputs)?, &ids, &arguments, stop)
    }
}

#[cfg(test)]
mod tests;
