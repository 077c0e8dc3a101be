//! Steps of a composite call, and its result.

use std::collections::BTreeMap;

use crate::member_call::MemberCall;
use crate::outcome::Failure;
use crate::report::{Extra, NamedExtra, Report};

/// Next step of a call.
#[derive(Default)]
pub(super) struct NextStep {
    /// Member calls to make.
    pub call: Vec<MemberCall>,
    /// The members' scores, if it is the call of a reduce.
    pub scores: Vec<Option<f64>>,
    /// Open member calls whose results can't matter any more.
    pub give_up: Vec<MemberCall>,
    pub is_end: bool,
}

impl NextStep {
    pub(super) fn call(call: Vec<MemberCall>) -> Self {
        Self { call, ..Self::default() }
    }

    pub(super) fn wait() -> Self {
        Self::default()
    }

    pub(super) fn end() -> Self {
        Self { is_end: true, ..Self::default() }
    }
}

/// Score or scores, report and record of a call.
pub(super) type CompositeResult<T> = (Result<T, Failure>, Report, Option<Vec<u8>>);

/// The values of each name: as it is where there is but one, else all of them in a list.
pub(super) fn in_lists<'a>(extra: impl Iterator<Item = &'a NamedExtra>) -> Vec<NamedExtra> {
    let mut lists: BTreeMap<&str, Vec<Extra>> = BTreeMap::new();
    for (name, value) in extra {
        let list = lists.entry(name).or_default();
        match value {
            Extra::List(values) => list.extend(values.iter().cloned()),
            value => list.push(value.clone()),
        }
    }
    let one = |(name, mut values): (&str, Vec<Extra>)| {
        let value = if values.len() == 1 { values.remove(0) } else { Extra::List(values) };
        (name.to_owned().into(), value)
    };
    lists.into_iter().map(one).collect()
}

/// The items of a record, which is a JSON list; `None` without any.
pub(super) fn items(record: &[u8]) -> Option<String> {
    let text = std::str::from_utf8(record).ok()?.trim();
    let items = text.strip_prefix('[')?.strip_suffix(']')?;
    (!items.trim().is_empty()).then(|| items.to_owned())
}

/// The record of several calls, each given by its items: their values become lists.
pub(super) fn listed(records: &[String]) -> Option<Vec<u8>> {
    (!records.is_empty()).then(|| format!("[[\"votes\",[[{}]]]]", records.join("],[")).into_bytes())
}
