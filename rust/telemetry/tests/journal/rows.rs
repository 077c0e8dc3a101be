//! What is written while engines run.

use std::any::Any;
use std::collections::BTreeSet;
use std::fs;
use std::sync::Arc;
use std::time::Duration;

use arrow_array::cast::AsArray;
use arrow_array::types::{Int32Type, Int64Type};
use guerdon_core::batch::BatchSpec;
use guerdon_core::function::Shape;
use guerdon_core::payload::{Payload, SharedPayload};
use guerdon_telemetry::journal::{Journal, JournalSources, Kind, TextColumn, TextSource};
use guerdon_testkit::{done, function, spec};
use proptest::prelude::*;

use crate::fixtures::{
    LONG, all_counted, config, empty_folder, engine, files, other_stream, parts, rows, runtime, sources, texts_of,
};

#[test]
fn each_cell_is_one_row() {
    let folder = empty_folder();
    runtime().block_on(async {
        let engine = engine(vec![function("each", Shape::Sample), function("whole", Shape::Group)]);
        let journal = Arc::new(Journal::start(config(&folder.0, &["each", "whole"], &[], 1 << 30), sources()).unwrap());
        engine.observe(vec![journal.clone()]);
        let batch = engine.submit(BatchSpec { step: Some(11), ..spec(5, 4) }).unwrap();
        assert!(done(&batch).await);
        assert!(journal.close(LONG));
        assert_eq!((journal.counts().rows, journal.counts().dropped), (40, 0));
    });
    assert!(files(&folder, "arrows").is_empty() && files(&folder, "tmp").is_empty());
    let [(part, kinds)] = &parts(&folder)[..] else { panic!("one part") };
    assert_eq!(kinds, "{}");
    let mut found = rows(part);
    found.sort_by(|one, other| (one.0, &one.1).cmp(&(other.0, &other.1)));
    assert_eq!(found.len(), 40);
    for (number, (sample, name, value, status)) in found.iter().enumerate() {
        assert_eq!((*sample as usize, name.as_str()), (number / 2, ["each", "whole"][number % 2]));
        let failed = if name == "each" { sample % 7 == 3 } else { (sample / 4 * 4) % 7 == 3 };
        let expected = (!failed).then(|| f64::from(*sample) / 2.0);
        assert_eq!((*value, status.as_str()), (expected, if failed { "error" } else { "ok" }), "{sample} {name}");
    }
    let steps = part.column_by_name("step").unwrap().as_primitive::<Int64Type>();
    assert!(steps.iter().all(|step| step == Some(11)));
    let ranks = part.column_by_name("rank").unwrap().as_primitive::<Int32Type>();
    assert!(ranks.iter().all(|rank| rank == Some(3)));
    let reasons = texts_of(part, "reason");
    assert_eq!(reasons.iter().flatten().count(), found.iter().filter(|row| row.3 == "error").count());
}

/// A batch whose samples have values, each a string or something else.
#[derive(Clone, Debug)]
struct ValueRows(Vec<Option<Result<String, u32>>>);

impl Payload for ValueRows {
    fn as_any(&self) -> &dyn Any {
        self
    }
}

/// Reads `ValueRows`.
struct Values;

impl TextSource for Values {
    fn read(&self, payload: &SharedPayload, samples: &[u32]) -> Option<Vec<TextColumn>> {
        let of = &payload.as_any().downcast_ref::<ValueRows>()?.0;
        let chosen: Vec<_> = samples.iter().map(|sample| of[*sample as usize].clone()).collect();
        if chosen.iter().flatten().all(Result::is_ok) {
            let values = chosen.into_iter().map(|value| value.and_then(Result::ok)).collect();
            return Some(vec![TextColumn { kind: Kind::Text, values }]);
        }
        let json = |value: Result<String, u32>| match value {
            Ok(text) => serde_json::Value::String(text).to_string(),
            Err(number) => number.to_string(),
        };
        Some(vec![TextColumn { kind: Kind::Json, values: chosen.into_iter().map(|value| value.map(json)).collect() }])
    }
}

fn valued() -> impl Strategy<Value = ValueRows> {
    let value = prop_oneof![
        6 => "[a-z\"\\\\ü😀]{0,6}".prop_map(|text| Some(Ok(text))),
        1 => any::<u32>().prop_map(|number| Some(Err(number))),
        1 => Just(None),
    ];
    let plain = prop_oneof![3 => "[a-z\"]{0,6}".prop_map(|text| Some(Ok(text))), 1 => Just(None)];
    let samples = 1..40_usize;
    samples.prop_flat_map(move |samples| {
        prop_oneof![prop::collection::vec(value.clone(), samples), prop::collection::vec(plain.clone(), samples)]
            .prop_map(ValueRows)
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(12))]

    /// Whatever comes in which order, and wherever parts end: each value is read back as it was,
    /// by the kind of its part.
    #[test]
    fn values_come_back_as_they_were(batches in prop::collection::vec(valued(), 1..6), rotate in 1_u64..20_000) {
        let folder = empty_folder();
        let mut expected = BTreeSet::new();
        runtime().block_on(async {
            let engine = engine(vec![function("each", Shape::Sample)]);
            let texts = ["column_value"];
            let sources = JournalSources { texts: Some(Arc::new(Values)), ..sources() };
            let journal = Journal::start(config(&folder.0, &["each"], &texts, rotate), sources).unwrap();
            let journal = Arc::new(journal);
            engine.observe(vec![journal.clone()]);
            for (number, values) in batches.iter().enumerate() {
                for (sample, value) in values.0.iter().enumerate() {
                    expected.insert((number as i64, sample as u32, format!("{value:?}")));
                }
                let payload = Box::new(values.clone());
                let spec = BatchSpec { step: Some(number as u64), ..BatchSpec::whole(values.0.len(), 1, payload) };
                let batch = engine.submit(spec).unwrap();
                assert!(done(&batch).await);
                if number % 2 == 0 {
                    tokio::time::sleep(Duration::from_millis(230)).await; // a message of its own
                }
            }
            assert!(journal.close(LONG));
            assert_eq!(journal.counts().dropped, 0);
        });
        let mut found = BTreeSet::new();
        let mut count = 0;
        for (part, kinds) in parts(&folder) {
            let steps = part.column_by_name("step").unwrap().as_primitive::<Int64Type>();
            let values = texts_of(&part, "column_value");
            for (row, (sample, _, _, _)) in rows(&part).into_iter().enumerate() {
                let value: Option<Result<String, u32>> = values[row].clone().map(|text| match kinds.as_str() {
                    r#"{"value":"text"}"# => Ok(text),
                    r#"{"value":"json"}"# => match serde_json::from_str(&text).unwrap() {
                        serde_json::Value::String(text) => Ok(text),
                        number => Err(u32::try_from(number.as_u64().unwrap()).unwrap()),
                    },
                    other => panic!("{other}"),
                });
                found.insert((steps.value(row), sample, format!("{value:?}")));
                count += 1;
            }
        }
        prop_assert_eq!(count, found.len());
        prop_assert_eq!(found, expected);
    }

}

/// Fault: the folder of a journal is removed while it is written.
/// Sees: one warning, also where another stream was no Parquet file before; rows go on into a new
/// part, and stats() counts those that are lost.
#[test]
fn a_folder_that_is_removed_is_made_again() {
    let folder = empty_folder();
    fs::write(folder.0.join("a-r0-1-00000.arrows"), other_stream(None)).unwrap();
    runtime().block_on(async {
        let engine = engine(vec![function("each", Shape::Sample)]);
        let (report, reported) = std::sync::mpsc::channel();
        let on_trouble = Box::new(move |reason: &str| report.send(reason.to_owned()).unwrap());
        let sources = JournalSources { on_trouble, ..sources() };
        let journal = Arc::new(Journal::start(config(&folder.0, &["each"], &[], 1 << 30), sources).unwrap());
        engine.observe(vec![journal.clone()]);
        let write = async |batches: u64| {
            let batch = engine.submit(spec(2, 4)).unwrap();
            assert!(done(&batch).await);
            all_counted(&journal, 8 * batches).await;
        };
        write(1).await;
        fs::remove_dir_all(&folder.0).unwrap();
        write(2).await;
        write(3).await;
        assert!(journal.close(LONG));
        assert_eq!((journal.counts().rows, journal.counts().dropped), (16, 8));
        let reported: Vec<String> = reported.try_iter().collect();
        assert!(reported.len() == 2 && reported[0].contains("its rows are in the stream"), "{reported:?}");
        assert!(reported[1].contains("was removed while it was written, with its rows"), "{reported:?}");
    });
    assert_eq!(parts(&folder).iter().map(|(part, _)| part.num_rows()).sum::<usize>(), 16);
}

#[test]
fn two_journals_of_one_process_share_a_folder() {
    let folder = empty_folder();
    runtime().block_on(async {
        for _ in 0..2 {
            let engines =
                [engine(vec![function("each", Shape::Sample)]), engine(vec![function("each", Shape::Sample)])];
            let journals = engines.each_ref().map(|engine| {
                let journal = Arc::new(Journal::start(config(&folder.0, &["each"], &[], 1), sources()).unwrap());
                engine.observe(vec![journal.clone()]);
                journal
            });
            for engine in &engines {
                let batch = engine.submit(spec(3, 4)).unwrap();
                assert!(done(&batch).await);
            }
            assert!(journals.iter().all(|journal| journal.close(LONG)));
        }
    });
    let batches: BTreeSet<u64> = parts(&folder)
        .iter()
        .flat_map(|(part, _)| {
            let batches = part.column_by_name("batch").unwrap().as_primitive::<arrow_array::types::UInt64Type>();
            batches.values().to_vec()
        })
        .collect();
    assert_eq!(batches.len(), 4, "each batch has a number of its own");
    assert!(batches.iter().all(|batch| *batch < 1 << 53), "exact in a float");
}
