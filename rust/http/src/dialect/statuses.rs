//! What a server of ours (`guerdon serve`) reports of samples without a reward: `status` and
//! `reasons` beside its rewards.
//!
//! - A reward that is there is the sample's, whatever its status says.
//! - Lists of another length, and words that are no status, say nothing: then null abstains.

use guerdon_core::outcome::{Cell, Status};
use serde_json::value::RawValue;

use crate::quote::truncated;
use crate::raw_json::{each, field, text};

/// The cells of an answer's samples that have no reward, by their status; none where it says no
/// such thing.
pub fn find(answer: &RawValue, samples: usize) -> Option<Vec<Option<Cell>>> {
    if !answer.get().starts_with('{') {
        return None;
    }
    let status = list(field(answer, "status")?, samples)?;
    let reasons = ["reasons", "reason"].iter().find_map(|name| list(field(answer, name)?, samples));
    let reason = |index: usize| reasons.as_ref().and_then(|reasons| text(Some(*reasons.get(index)?)));
    Some(status.into_iter().enumerate().map(|(index, status)| cell(status, || reason(index))).collect())
}

/// The values of a list of so many; a single value stands for one.
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
        "error" => Status::Error,
        "crashed" => Status::Crashed,
        "cancelled" => Status::Cancelled,
        "skipped" => Status::Skipped,
        _ => return None,
    };
    let reason = reason().map_or_else(|| "no reason given".to_owned(), |reason| truncated(&reason));
    Some(Cell::Reported(Box::new((status, reason))))
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
    fn what_is_no_list_of_statuses_says_nothing() {
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
