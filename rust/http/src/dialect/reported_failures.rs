//! A server's report of failed samples, beside their rewards: `status` and `reasons` as `guerdon
//! serve` has them, `error`, `mask_sample`.
//!
//! - A reward that is there is the sample's, unless it is a 0 beside a failure.
//! - Lists of another length, and words that are not statuses, are ignored: then null abstains.

use guerdon_core::outcome::{Cell, Status};
use serde_json::value::RawValue;

use crate::quote::truncated;
use crate::raw_json::{each, field, text};

/// Returns the report on each failed sample of an answer; none where it says no such thing.
pub fn find(answer: &RawValue, samples: usize) -> Option<Vec<Option<Cell>>> {
    if !answer.get().starts_with('{') {
        return None;
    }
    let named = |name: &str| list(field(answer, name)?, samples);
    let (status, error, masked) = (named("status"), named("error"), named("mask_sample"));
    if status.is_none() && error.is_none() && masked.is_none() {
        return None;
    }
    let reasons = named("reasons").or_else(|| named("reason"));
    let of = |index: usize| {
        let error = at(error.as_ref(), index).filter(|error| !matches!(*error, "null" | "false" | "\"\""));
        let given = || reasons.as_ref().and_then(|reasons| text(Some(*reasons.get(index)?)));
        let reason = || given().or_else(|| error.map(str::to_owned));
        let reported = status.as_ref().and_then(|status| cell(status.get(index)?, reason));
        let failed = error.is_some() || at(masked.as_ref(), index) == Some("true");
        reported.or_else(|| failed.then(|| failure(Status::Error, reason())))
    };
    Some((0..samples).map(of).collect())
}

fn at<'a>(values: Option<&Vec<&'a RawValue>>, index: usize) -> Option<&'a str> {
    values?.get(index).map(|value| value.get())
}

/// Returns the values of a list of `samples` entries; a single value counts as a list of one.
fn list(value: &RawValue, samples: usize) -> Option<Vec<&RawValue>> {
    if !value.get().starts_with('[') {
        return (samples == 1).then(|| vec![value]);
    }
    let mut values = Vec::new();
    let whole = each(value, |one| {
        if values.len() <= samples {
            values.push(one);
        }
    });
    (whole && values.len() == samples).then_some(values)
}

fn cell(status: &RawValue, reason: impl FnOnce() -> Option<String>) -> Option<Cell> {
    let status = match text(Some(status))?.as_str() {
        "timeout" => Status::Timeout,
        "error" | "failed" | "failure" => Status::Error,
        "crashed" => Status::Crashed,
        "cancelled" => Status::Cancelled,
        "skipped" => Status::Skipped,
        _ => return None,
    };
    Some(failure(status, reason()))
}

fn failure(status: Status, reason: Option<String>) -> Cell {
    let reason = reason.map_or_else(|| "no reason given".to_owned(), |reason| truncated(&reason));
    Cell::Reported(Box::new((status, reason)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(answer: &str, samples: usize) -> Option<Vec<Option<(Status, String)>>> {
        let answer: &RawValue = serde_json::from_str(answer).unwrap();
        let status = |cell| match cell {
            Cell::Reported(reported) => *reported,
            other => panic!("{other:?}"),
        };
        find(answer, samples).map(|cells| cells.into_iter().map(|cell| cell.map(status)).collect())
    }

    #[test]
    fn statuses_are_read_with_their_reasons() {
        let answer = r#"{"rewards": [1, null, null, null, null, null],
            "status": ["ok", "abstained", "timeout", "crashed", "skipped", "cancelled"],
            "reasons": [null, null, "after 2 s", "signal 9", null, "closed"]}"#;
        let none = || "no reason given".to_owned();
        assert_eq!(
            found(answer, 6).unwrap(),
            [
                None,
                None,
                Some((Status::Timeout, "after 2 s".to_owned())),
                Some((Status::Crashed, "signal 9".to_owned())),
                Some((Status::Skipped, none())),
                Some((Status::Cancelled, "closed".to_owned())),
            ]
        );
        let one = found(r#"{"reward": null, "status": "error", "reason": "x\ud800y"}"#, 1).unwrap();
        assert_eq!(one, [Some((Status::Error, "x\u{fffd}\u{fffd}\u{fffd}y".to_owned()))]);
    }

    #[test]
    fn other_values_than_statuses_are_ignored() {
        assert_eq!(found(r#"{"rewards": [null]}"#, 1), None);
        assert_eq!(found(r#"{"rewards": [null, 1], "status": ["timeout"]}"#, 2), None);
        assert_eq!(found(r#"{"rewards": [null, 1], "status": "timeout"}"#, 2), None, "of which one?");
        assert_eq!(found(r#"{"reward": null, "status": 200}"#, 1), Some(vec![None]));
        assert_eq!(found(r#"{"reward": null, "status": "fine"}"#, 1), Some(vec![None]));
        assert_eq!(found("[null]", 1), None);
        let short = found(r#"{"rewards": [null], "status": ["error"], "reasons": []}"#, 1).unwrap();
        assert_eq!(short, [Some((Status::Error, "no reason given".to_owned()))]);
    }
}
