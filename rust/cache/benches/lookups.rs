//! Lookups of kept outcomes: from memory, compared with a map behind a lock, and from the folder;
//! and what keeping costs whoever keeps.
//!
//! An element is one lookup; they come 64 at a time, as from the scheduler.
#![allow(clippy::expect_used, reason = "what is missing ends the bench")]

use std::collections::HashMap;
use std::hint::black_box;
use std::sync::Arc;
use std::time::Duration;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use guerdon_cache::OutcomeStore;
use guerdon_core::outcome_cache::{KeptOutcome, OutcomeCache, OutcomeKey};
use parking_lot::Mutex;

const ENTRIES: u64 = 65_536;
const TOGETHER: usize = 64;
const SIZE: u64 = 256 << 20;

fn keys(first: u64) -> Vec<OutcomeKey> {
    (first..first + ENTRIES).map(|number| *blake3::hash(&number.to_le_bytes()).as_bytes()).collect()
}

fn outcome() -> Arc<KeptOutcome> {
    Arc::new(KeptOutcome { value: Some(1.0), ..KeptOutcome::default() })
}

fn lookups(criterion: &mut Criterion) {
    let folder = std::env::temp_dir().join(format!("guerdon-bench-cache-{}", std::process::id()));
    let store = OutcomeStore::open(&folder, SIZE);
    let keys = keys(0);
    for part in keys.chunks(1024) {
        part.iter().for_each(|key| store.keep(*key, outcome()));
        std::thread::sleep(Duration::from_millis(30));
    }
    store.close(Duration::from_secs(30));
    assert_eq!(store.counts().dropped, 0);
    let map: Mutex<HashMap<OutcomeKey, Arc<KeptOutcome>>> =
        Mutex::new(keys.iter().map(|key| (*key, outcome())).collect());
    let mut group = criterion.benchmark_group("lookups");
    group.sample_size(10).warm_up_time(Duration::from_millis(300)).measurement_time(Duration::from_secs(2));
    group.throughput(Throughput::Elements(ENTRIES));
    let look = |store: &OutcomeStore, keys: &[OutcomeKey], is_known: bool| {
        for part in keys.chunks(TOGETHER) {
            assert!(black_box(store.find(part)).iter().all(|found| found.is_some() == is_known));
        }
    };
    group.bench_function("from memory", |bencher| bencher.iter(|| look(&store, &keys, true)));
    group.bench_function("of a HashMap behind a lock", |bencher| {
        bencher.iter(|| {
            for part in keys.chunks(TOGETHER) {
                let found: Vec<_> = part.iter().map(|key| map.lock().get(key).cloned()).collect();
                assert!(black_box(found).iter().all(Option::is_some));
            }
        });
    });
    group.bench_function("from the folder", |bencher| {
        let fresh = || OutcomeStore::open(&folder, SIZE);
        bencher.iter_batched(fresh, |store| look(&store, &keys, true), criterion::BatchSize::PerIteration);
    });
    let missing = self::keys(ENTRIES);
    group.bench_function("in vain", |bencher| {
        let store = OutcomeStore::open(&folder, SIZE);
        bencher.iter(|| look(&store, &missing, false));
    });
    group.finish();
    drop(store);
    std::fs::remove_dir_all(&folder).expect("the folder of the bench");
}

criterion_group!(benches, lookups);
criterion_main!(benches);
