//! Answers of reward services: numbers at a path, else in the usual fields.

use serde_json::value::RawValue;

use crate::json_path::JsonPath;
use crate::quote::quoted;
use crate::raw_json::{each, field};

/// Fields in which reward services return their numbers.
const USUAL: [&str; 4] = ["rewards", "scores", "reward", "score"];
/// The same in an object of one sample.
const OF_A_SAMPLE: [&str; 2] = ["reward", "score"];

/// Place of each sample's score; `Err` for a sample that has none.
pub type ScoreValues<'a> = Vec<Result<&'a RawValue, String>>;

/// The values of `samples` samples, in order; `Err` says why it is not these.
pub fn find<'a>(path: Option<&JsonPath>, answer: &'a RawValue, samples: usize) -> Result<ScoreValues<'a>, String> {
    let (mut first, mut count) = (Vec::new(), 0_usize);
    let mut take = |value: &'a RawValue| {
        count += 1;
        if first.len() < samples.max(1) {
            first.push(value); // what is too much is only counted
        }
    };
    match path {
        Some(path) if path.walk(answer, &mut take) => {}
        Some(path) => return Err(format!("no field {path} in {}", quoted(answer.get()))),
        None if answer.get().starts_with('{') => {
            take(the_one(&USUAL, answer)?.ok_or_else(|| format!("none of {USUAL:?} in {}", quoted(answer.get())))?);
        }
        None => take(answer),
    }
    // A list means its values, unless the path has selected each of them.
    if let ([list], 1) = (&first[..], count)
        && list.get().starts_with('[')
    {
        let list = *list;
        (first, count) = (Vec::new(), 0);
        each(list, |value| {
            count += 1;
            if first.len() < samples {
                first.push(value);
            }
        });
    }
    if count != samples {
        return Err(format!("{count} scores for {samples} samples in {}", quoted(answer.get())));
    }
    Ok(first.into_iter().map(of_a_sample).collect())
}

/// A score, or an object that holds one.
fn of_a_sample(value: &RawValue) -> Result<&RawValue, String> {
    if !value.get().starts_with('{') {
        return Ok(value);
    }
    the_one(&OF_A_SAMPLE, value)?.ok_or_else(|| format!("no score in {}", quoted(value.get())))
}

/// The field that is there; `Err` where two are, which do not say the same.
fn the_one<'a>(names: &[&str], value: &'a RawValue) -> Result<Option<&'a RawValue>, String> {
    let mut found: Option<(&str, &RawValue)> = None;
    for name in names {
        let Some(here) = field(value, name) else { continue };
        match found {
            None => found = Some((name, here)),
            Some((_, other)) if other.get() == here.get() => {}
            Some((first, _)) => {
                let shown = quoted(value.get());
                return Err(format!("{first:?} and {name:?} in {shown}: name the one that counts, as score={name:?}"));
            }
        }
    }
    Ok(found.map(|(_, value)| value))
}
