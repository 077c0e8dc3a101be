//! Kernels by name, with their options.

use serde::de::Error;
use serde::{Deserialize, Deserializer};

use crate::kernels::bleu::{Bleu, Smooth};
use crate::kernels::edit_distance::EditDistance;
use crate::kernels::format::{TagCount, ThinkFormat};
use crate::kernels::ifeval::{Ifeval, IfevalScore, UndecidedRule};
use crate::kernels::kernel::{Kernel, OfColumns};
use crate::kernels::length::{CosineLength, SoftOverlong};
use crate::kernels::matching::{ExactMatch, NormalizedMatch, Part};
use crate::kernels::multiple_choice::MultipleChoice;
use crate::kernels::repetition::RepetitionPenalty;
use crate::kernels::rouge::{Measure, RougeL};
use crate::kernels::squad::{SquadEm, SquadF1};

/// Options that no kernel can work with, with the reason.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct SpecError(String);

#[derive(Deserialize)]
#[serde(tag = "kernel", rename_all = "snake_case", deny_unknown_fields)]
enum Spec {
    ExactMatch {
        tag: Option<String>,
    },
    NormalizedMatch {
        tag: Option<String>,
        ignore_case: bool,
        ignore_punctuation: bool,
        ignore_numbers: bool,
        ignore_space: bool,
    },
    SquadF1 {
        tag: Option<String>,
    },
    SquadEm {
        tag: Option<String>,
    },
    RougeL {
        measure: Measure,
    },
    Bleu {
        lowercase: bool,
        smooth: Smooth,
    },
    EditDistance {
        tag: Option<String>,
    },
    RepetitionPenalty {
        of_words: bool,
        ngram_size: usize,
        #[serde(deserialize_with = "exact")]
        max_penalty: f64,
    },
    ThinkFormat {},
    TagCount {
        tags: Vec<String>,
    },
    CosineLength {
        correct: Box<Spec>,
        #[serde(deserialize_with = "exact")]
        min_value_wrong: f64,
        #[serde(deserialize_with = "exact")]
        max_value_wrong: f64,
        #[serde(deserialize_with = "exact")]
        min_value_correct: f64,
        #[serde(deserialize_with = "exact")]
        max_value_correct: f64,
        max_len: u64,
        clamp: bool,
    },
    SoftOverlong {
        max_completion_len: u64,
        soft_punish_cache: u64,
    },
    MultipleChoice {
        last: char,
    },
    Ifeval {
        score: IfevalScore,
        loose: bool,
        undecided: UndecidedRule,
    },
}

/// Reads a number written as text, because serde_json's numbers may be off by one bit.
fn exact<'de, D: Deserializer<'de>>(deserializer: D) -> Result<f64, D::Error> {
    let text = String::deserialize(deserializer)?;
    text.parse().map_err(|_| D::Error::custom(format!("{text:?} is no number")))
}

/// Makes the kernel that a JSON object describes: its name as `kernel`, and all its options, with
/// fractions as texts. `columns` has the names of its inputs.
pub fn kernel(json: &str, columns: Vec<String>) -> Result<Box<dyn Kernel>, SpecError> {
    let spec: Spec = serde_json::from_str(json).map_err(|error| SpecError(error.to_string()))?;
    let kernel = made(spec)?;
    let wanted = kernel.inputs().len();
    if columns.len() != wanted {
        return Err(SpecError(format!("expected {wanted} columns, not {}", columns.len())));
    }
    Ok(Box::new(OfColumns { kernel, columns }))
}

#[expect(clippy::cast_precision_loss, reason = "lengths are far below 2^53")]
fn made(spec: Spec) -> Result<Box<dyn Kernel>, SpecError> {
    let refused = |is_wrong: bool, why: &str| if is_wrong { Err(SpecError(why.to_owned())) } else { Ok(()) };
    Ok(match spec {
        Spec::ExactMatch { tag } => Box::new(ExactMatch { part: Part(tag) }),
        Spec::NormalizedMatch { tag, ignore_case, ignore_punctuation, ignore_numbers, ignore_space } => {
            let part = Part(tag);
            Box::new(NormalizedMatch { part, ignore_case, ignore_punctuation, ignore_numbers, ignore_space })
        }
        Spec::SquadF1 { tag } => Box::new(SquadF1 { part: Part(tag) }),
        Spec::SquadEm { tag } => Box::new(SquadEm { part: Part(tag) }),
        Spec::RougeL { measure } => Box::new(RougeL { measure }),
        Spec::Bleu { lowercase, smooth } => Box::new(Bleu { lowercase, smooth }),
        Spec::EditDistance { tag } => Box::new(EditDistance { part: Part(tag) }),
        Spec::RepetitionPenalty { of_words, ngram_size, max_penalty } => {
            refused(ngram_size == 0, "ngram_size must be at least 1")?;
            Box::new(RepetitionPenalty { of_words, ngram_size, max_penalty })
        }
        Spec::ThinkFormat {} => Box::new(ThinkFormat),
        Spec::TagCount { tags } => {
            refused(tags.is_empty() || tags.iter().any(String::is_empty), "tags must be texts, one at least")?;
            Box::new(TagCount { tags })
        }
        Spec::CosineLength {
            correct,
            max_len,
            clamp,
            min_value_wrong,
            max_value_wrong,
            min_value_correct,
            max_value_correct,
        } => {
            refused(max_len == 0, "max_len must be at least 1")?;
            Box::new(CosineLength {
                correct: made(*correct)?,
                min_value_wrong,
                max_value_wrong,
                min_value_correct,
                max_value_correct,
                max_len: max_len as f64,
                clamp,
            })
        }
        Spec::SoftOverlong { max_completion_len, soft_punish_cache } => Box::new(SoftOverlong {
            max_completion_len: max_completion_len as f64,
            soft_punish_cache: soft_punish_cache as f64,
        }),
        Spec::MultipleChoice { last } => {
            refused(!last.is_ascii_uppercase(), "the last choice must be a letter from A to Z")?;
            Box::new(MultipleChoice { last })
        }
        Spec::Ifeval { score, loose, undecided } => Box::new(Ifeval { score, loose, undecided }),
    })
}

#[cfg(test)]
mod tests {
    //! Refused specifications.

    use super::*;
    use crate::kernels::input::Input;

    #[test]
    fn odd_options_are_refused() {
        let refused = [
            "{}",
            "{\"kernel\": \"nothing\"}",
            "{\"kernel\": \"think_format\", \"more\": 1}",
            "{\"kernel\": \"tag_count\", \"tags\": []}",
            "{\"kernel\": \"repetition_penalty\", \"of_words\": true, \"ngram_size\": 0, \"max_penalty\": \"-1\"}",
            "{\"kernel\": \"multiple_choice\", \"last\": \"d\"}",
        ];
        for json in refused {
            assert!(kernel(json, vec!["text".to_owned()]).is_err(), "{json}");
        }
        let think_format = "{\"kernel\": \"think_format\"}";
        assert!(kernel(think_format, vec!["text".to_owned()]).is_ok());
        assert!(kernel(think_format, Vec::new()).is_err());
    }

    #[test]
    fn faults_name_their_column() {
        let columns = ["completion", "gold"].map(str::to_owned).to_vec();
        let exact = kernel("{\"kernel\": \"exact_match\", \"tag\": null}", columns).unwrap();
        let inputs = [Input::Text("4".into()), Input::Json("[]".into())];
        let fault = exact.score(&inputs, &|| false).unwrap_err();
        assert_eq!(fault.to_string(), "column 'gold': the list of references is empty");
    }
}
