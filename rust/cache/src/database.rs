//! The database in the folder: one table of entries by key, with the time of each entry's last use.
//!
//! - A write is one transaction: a process that is killed during one leaves the former contents.
//! - A file of another version, or of another program, is left unchanged.

use std::fs::DirBuilder;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use guerdon_core::outcome_cache::OutcomeKey;
use rusqlite::{Connection, ErrorCode, OpenFlags, OptionalExtension, Transaction, TransactionBehavior};

use crate::file_system;

pub(crate) const FILE: &str = "outcomes.sqlite";
/// "GuOC": identifies files of this crate.
const APPLICATION: i64 = 0x4775_4F43;
/// Version of the table and of its contents.
const VERSION: i64 = 1;
/// Size of the log beside the database: a share of the folder, up to a maximum.
const LOG_SHARE: u64 = 4;
const LOG_BYTES: u64 = 8 << 20;
/// Approximate size of an entry in addition to its contents, including the indexes.
const ENTRY_BYTES: u64 = 160;
/// Number of entries that are removed at a time.
const FEW: i64 = 64;
/// Longest time that a write waits for writes of other processes.
const WRITE_PATIENCE: Duration = Duration::from_secs(5);
/// A read never waits for writes; for the repair after a kill it waits at most this long.
const READ_PATIENCE: Duration = Duration::from_millis(500);

/// An entry's contents, and the time of its last use.
pub(crate) struct Row {
    pub content: Vec<u8>,
    pub used_ms: i64,
}

pub(crate) struct Database {
    connection: Connection,
    /// Bytes of the database file.
    most: u64,
}

/// Returns the reason why a folder can't be used.
pub(crate) fn describe(error: &rusqlite::Error) -> String {
    match error.sqlite_error_code() {
        Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase) => format!("{FILE} is damaged ({error})"),
        Some(ErrorCode::DiskFull) => format!("the disk is full ({error})"),
        _ => error.to_string(),
    }
}

impl Database {
    /// Opens the folder's database for writing, and makes it if it does not exist.
    pub(crate) fn create(folder: &Path, bytes: u64) -> Result<Self, String> {
        // It contains the texts of judges, which other users must not read.
        let made = DirBuilder::new().recursive(true).mode(0o700).create(folder);
        made.map_err(|error| error.to_string())?;
        if let Some(kind) = file_system::network(folder) {
            return Err(format!("it is on {kind}, where processes can't lock a database: choose a local disk"));
        }
        let log = LOG_BYTES.min(bytes / LOG_SHARE);
        let mut database = Self::open(folder, WRITE_PATIENCE, bytes - log).map_err(|error| describe(&error))?;
        database.prepare(log).map_err(|error| describe(&error))??;
        Ok(database)
    }

    /// Opens a database that `create` has made, for reading.
    pub(crate) fn reader(folder: &Path) -> rusqlite::Result<Self> {
        Self::open(folder, READ_PATIENCE, 0)
    }

    fn open(folder: &Path, patience: Duration, most: u64) -> rusqlite::Result<Self> {
        let path: PathBuf = folder.join(FILE);
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_CREATE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let connection = Connection::open_with_flags(path, flags)?;
        connection.busy_timeout(patience)?;
        Ok(Self { connection, most })
    }

    /// Prepares the table, which is created in a new file; the inner error is the reason for
    /// refusing a file of another program.
    fn prepare(&mut self, log: u64) -> rusqlite::Result<Result<(), String>> {
        let read = |connection: &Connection, what: &str| connection.pragma_query_value(None, what, |row| row.get(0));
        let whose = |connection: &Connection| -> rusqlite::Result<(i64, i64, i64)> {
            let tables = connection.query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get(0))?;
            Ok((read(connection, "application_id")?, read(connection, "user_version")?, tables))
        };
        match whose(&self.connection)? {
            (0, 0, 0) | (APPLICATION, VERSION, _) => {}
            (APPLICATION, version, _) => {
                let what = format!("{FILE} has version {version} of the format, and this guerdon knows {VERSION}");
                return Ok(Err(format!("{what}: choose another folder, or delete that file")));
            }
            _ => return Ok(Err(format!("{FILE} in it is another program's database: choose another folder"))),
        }
        let mode: String = self.connection.pragma_update_and_check(None, "journal_mode", "wal", |row| row.get(0))?;
        if mode != "wal" {
            return Ok(
                Err("its file system has no shared memory, which processes need to share a database".to_owned()),
            );
        }
        self.connection.pragma_update(None, "synchronous", "normal")?;
        let page: i64 = read(&self.connection, "page_size")?;
        let pages = i64::try_from(log).unwrap_or(i64::MAX) / 2 / page.max(1);
        self.connection.pragma_update(None, "wal_autocheckpoint", pages.clamp(16, 1000))?;
        self.connection.pragma_update(None, "journal_size_limit", i64::try_from(log).unwrap_or(i64::MAX) / 2)?;
        let change = self.connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        change.execute_batch(
            "CREATE TABLE IF NOT EXISTS outcomes
                 (id INTEGER PRIMARY KEY, key BLOB NOT NULL UNIQUE, used_ms INTEGER NOT NULL, content BLOB NOT NULL);
             CREATE INDEX IF NOT EXISTS by_use ON outcomes (used_ms);",
        )?;
        change.pragma_update(None, "application_id", APPLICATION)?;
        change.pragma_update(None, "user_version", VERSION)?;
        change.commit()?;
        Ok(Ok(()))
    }

    /// The entries of these keys, one each.
    pub(crate) fn read(&mut self, keys: &[OutcomeKey]) -> rusqlite::Result<Vec<Option<Row>>> {
        let view = self.connection.transaction()?;
        let mut find = view.prepare_cached("SELECT content, used_ms FROM outcomes WHERE key = ?")?;
        let mut row = |key: &OutcomeKey| {
            find.query_row([key.as_slice()], |row| Ok(Row { content: row.get(0)?, used_ms: row.get(1)? })).optional()
        };
        keys.iter().map(&mut row).collect()
    }

    /// Writes entries and marks others as used, in one transaction; the entries unused for longest
    /// make room.
    pub(crate) fn write(
        &mut self,
        entries: &[(OutcomeKey, Vec<u8>)],
        used: &[OutcomeKey],
        now_ms: i64,
    ) -> rusqlite::Result<()> {
        let change = self.connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        {
            let mut mark = change.prepare_cached("UPDATE outcomes SET used_ms = ? WHERE key = ?")?;
            for key in used {
                mark.execute((now_ms, key.as_slice()))?;
            }
            let added: u64 = entries.iter().map(|(_, content)| content.len() as u64 + ENTRY_BYTES).sum();
            // Pages are never quite full.
            make_room(&change, self.most.saturating_sub(added + added / 2))?;
            let mut insert =
                change.prepare_cached("INSERT OR REPLACE INTO outcomes (key, used_ms, content) VALUES (?, ?, ?)")?;
            for (key, content) in entries {
                insert.execute((key.as_slice(), now_ms, content.as_slice()))?;
            }
        }
        change.commit()
    }

    /// The most bytes of one entry, small enough that a few entries can't displace all others.
    pub(crate) const fn largest(&self) -> u64 {
        self.most / 64
    }

    /// Bytes that its entries take in the file.
    pub(crate) fn bytes(&self) -> rusqlite::Result<u64> {
        bytes_in_use(&self.connection)
    }
}

fn bytes_in_use(connection: &Connection) -> rusqlite::Result<u64> {
    let read = |what: &str| connection.pragma_query_value(None, what, |row| row.get::<_, i64>(0));
    let pages = read("page_count")?.saturating_sub(read("freelist_count")?);
    Ok(u64::try_from(pages.saturating_mul(read("page_size")?)).unwrap_or_default())
}

fn make_room(change: &Transaction<'_>, most: u64) -> rusqlite::Result<()> {
    let mut remove =
        change.prepare_cached("DELETE FROM outcomes WHERE id IN (SELECT id FROM outcomes ORDER BY used_ms LIMIT ?)")?;
    while bytes_in_use(change)? > most {
        if remove.execute([FEW])? == 0 {
            break;
        }
    }
    Ok(())
}
