//! A store and its folder: what is kept is found, by other processes too, and faults are reported.
#![allow(clippy::unwrap_used, reason = "what is missing has failed the test")]

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use guerdon_cache::OutcomeStore;
use guerdon_core::outcome_cache::{KeptOutcome, OutcomeCache, OutcomeKey};
use parking_lot::Mutex;

const SIZE: u64 = 64 << 20;
const CHILD: &str = "GUERDON_CACHE_TEST_FOLDER";

/// A folder that is removed with it.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("guerdon-cache-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&path);
        Self(path)
    }

    fn file(&self) -> PathBuf {
        self.0.join("outcomes.sqlite")
    }

    /// Bytes of all files in it.
    fn bytes(&self) -> u64 {
        fs::read_dir(&self.0).unwrap().map(|file| file.unwrap().metadata().unwrap().len()).sum()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn key(number: u64) -> OutcomeKey {
    *blake3::hash(&number.to_le_bytes()).as_bytes()
}

fn outcome(number: u64, bytes: usize) -> Arc<KeptOutcome> {
    let record = Some(vec![number as u8; bytes]);
    Arc::new(KeptOutcome { value: Some(number as f64), record, extra: vec![("said".into(), "yes".into())] })
}

fn written(folder: &Path, numbers: impl Iterator<Item = u64>) {
    let store = OutcomeStore::open(folder, SIZE);
    numbers.for_each(|number| store.keep(key(number), outcome(number, 20)));
    store.close(Duration::from_secs(10));
    assert_eq!(store.counts().dropped, 0);
}

fn failures(store: &OutcomeStore) -> Arc<Mutex<Vec<String>>> {
    let reported = Arc::new(Mutex::new(Vec::new()));
    let listener = reported.clone();
    store.on_failure(move |reason| listener.lock().push(reason.to_owned()));
    reported
}

#[test]
fn kept_entries_are_found_at_once_and_later() {
    let folder = Folder::new("later");
    let store = OutcomeStore::open(&folder.0, SIZE);
    store.keep(key(1), outcome(1, 20));
    store.keep(key(2), Arc::new(KeptOutcome::default()));
    assert_eq!(store.find(&[key(1), key(2), key(3)]), [Some(outcome(1, 20)), Some(Arc::default()), None]);
    store.close(Duration::from_secs(10));
    let later = OutcomeStore::open(&folder.0, SIZE);
    assert_eq!(later.find(&[key(3), key(2), key(1)]), [None, Some(Arc::default()), Some(outcome(1, 20))]);
    assert_eq!(later.counts().dropped, 0);
    assert!(later.counts().bytes > 0);
}

#[test]
fn two_stores_of_a_folder_find_what_the_other_keeps() {
    let folder = Folder::new("two");
    let (one, other) = (OutcomeStore::open(&folder.0, SIZE), OutcomeStore::open(&folder.0, SIZE));
    one.keep(key(1), outcome(1, 20));
    other.keep(key(2), outcome(2, 20));
    one.close(Duration::from_secs(10));
    other.close(Duration::from_secs(10));
    assert_eq!(one.find(&[key(1), key(2)]), other.find(&[key(1), key(2)]));
    assert_eq!(one.find(&[key(2)]), [Some(outcome(2, 20))]);
}

#[test]
fn a_folder_stays_within_its_size_and_what_was_used_stays() {
    let (folder, size) = (Folder::new("size"), 4 << 20);
    for round in 0..4 {
        let store = OutcomeStore::open(&folder.0, size);
        for number in 0..1500 {
            store.keep(key(round * 1500 + number), outcome(number, 1000));
            if number % 100 == 0 {
                std::thread::sleep(Duration::from_millis(1));
            }
        }
        store.close(Duration::from_secs(20));
        assert!(folder.bytes() <= size, "{} bytes", folder.bytes());
    }
    let store = OutcomeStore::open(&folder.0, size);
    let found = |numbers: std::ops::Range<u64>| {
        let keys: Vec<_> = numbers.map(key).collect();
        store.find(&keys).into_iter().flatten().count()
    };
    assert_eq!((found(0..1500), found(5000..6000)), (0, 1000), "the oldest went first");
}

#[test]
fn a_fault_of_a_folder_is_reported_once_and_outcomes_are_in_memory_alone() {
    let folder = Folder::new("fault");
    fs::create_dir_all(&folder.0).unwrap();
    let other = Folder::new("other");
    let unusable: [(&str, &dyn Fn()); 4] = [
        ("is damaged", &|| {
            fs::write(folder.file(), "this is not a database, however long one reads it".repeat(9)).unwrap();
        }),
        ("has version 9", &|| {
            written(&other.0, 0..3);
            version_of(&other.file(), 9);
            fs::copy(other.file(), folder.file()).unwrap();
        }),
        ("another program's", &|| {
            let _ = fs::remove_file(folder.file());
            rusqlite::Connection::open(folder.file()).unwrap().execute_batch("CREATE TABLE t (x)").unwrap();
        }),
        ("unable to open", &|| {
            fs::remove_file(folder.file()).unwrap();
            symlink("/proc/nowhere", folder.file()).unwrap();
        }),
    ];
    for (reason, make) in unusable {
        make();
        let before = fs::read(folder.file()).ok();
        let store = OutcomeStore::open(&folder.0, SIZE);
        let reported = failures(&store);
        store.keep(key(1), outcome(1, 20));
        assert_eq!(store.find(&[key(1), key(2)]), [Some(outcome(1, 20)), None]);
        store.close(Duration::from_secs(10));
        let reported = reported.lock();
        assert!(reported.len() == 1 && reported[0].contains(reason), "{reason}: {reported:?}");
        assert_eq!(fs::read(folder.file()).ok(), before, "the file is left as it is");
    }
}

fn version_of(file: &Path, version: i64) {
    let connection = rusqlite::Connection::open(file).unwrap();
    connection.pragma_update(None, "user_version", version).unwrap();
    connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(())).unwrap();
}

#[test]
fn damaged_pages_give_no_outcomes() {
    let folder = Folder::new("pages");
    written(&folder.0, 0..3000);
    let connection = rusqlite::Connection::open(folder.file()).unwrap();
    connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(())).unwrap();
    drop(connection);
    let mut bytes = fs::read(folder.file()).unwrap();
    for at in (8192..bytes.len()).step_by(997) {
        bytes[at] ^= 0x55;
    }
    fs::write(folder.file(), bytes).unwrap();
    let store = OutcomeStore::open(&folder.0, SIZE);
    let reported = failures(&store);
    for number in 0..3000 {
        let found = store.find(&[key(number)]);
        assert!(found == [None] || found == [Some(outcome(number, 20))], "{number}: {found:?}");
    }
    store.keep(key(1), outcome(1, 20));
    assert_eq!(store.find(&[key(1)]), [Some(outcome(1, 20))]);
    assert!(reported.lock().len() <= 1);
}

/// Not a test of its own: what the processes of the next one do.
#[test]
fn a_process_that_writes() {
    let Some(folder) = std::env::var_os(CHILD) else { return };
    let store = OutcomeStore::open(Path::new(&folder), SIZE);
    for number in u64::from(std::process::id()).. {
        store.keep(key(number), outcome(number, 300));
        if number % 64 == 0 {
            std::thread::sleep(Duration::from_micros(300));
        }
    }
}

#[test]
fn killed_writers_leave_whole_outcomes_or_none() {
    let folder = Folder::new("killed");
    let start = || {
        let mut writer = Command::new(std::env::current_exe().unwrap());
        writer.args(["--exact", "a_process_that_writes"]).env(CHILD, &folder.0);
        writer.stdout(Stdio::null()).spawn().unwrap()
    };
    let mut kept = 0;
    for round in 0..8 {
        // Two at a time, so that one is killed while the other writes.
        let mut writers = [start(), start()];
        let first = u64::from(writers[0].id());
        let until = Instant::now() + Duration::from_secs(20);
        while !folder.file().exists() && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(5));
        }
        std::thread::sleep(Duration::from_millis(40 + 17 * round));
        for writer in &mut writers {
            writer.kill().unwrap();
            writer.wait().unwrap();
        }
        let store = OutcomeStore::open(&folder.0, SIZE);
        let reported = failures(&store);
        for number in first..first + 3000 {
            let found = store.find(&[key(number)]).pop().flatten();
            assert!(found.as_ref().is_none_or(|found| *found == outcome(number, 300)), "{number}");
            kept += u64::from(found.is_some());
        }
        store.keep(key(0), outcome(0, 300));
        store.close(Duration::from_secs(10));
        assert_eq!(*reported.lock(), Vec::<String>::new());
    }
    assert!(kept > 1000, "{kept} outcomes of killed writers");
}
