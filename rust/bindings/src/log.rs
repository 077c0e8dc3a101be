//! The engine's own log, for those who work on it: where `GUERDON_LOG` says so, `tracing`'s events
//! go to stderr or to the file `GUERDON_LOG_FILE` names. If it is unset nothing is set up, and an
//! event costs a comparison.
//!
//! - Only what this engine reports is logged, whatever the filter says: libraries below it might
//!   print headers, and so keys. Its own events have names and numbers, never texts.
//! - A line is one write, with no lock: a forked child may log too, and nothing is lost with a
//!   killed process.

use std::ffi::OsStr;
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::sync::Arc;

use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::fmt;
use tracing_subscriber::prelude::*;

const FILTER: &str = "GUERDON_LOG";
const FILE: &str = "GUERDON_LOG_FILE";
/// All crates of the engine begin with it.
const OURS: &str = "guerdon";

/// Sets the log up, once a process; a wrong setting is reported and left out.
pub fn start() {
    let Some(filter) = std::env::var_os(FILTER).filter(|filter| !filter.is_empty()) else { return };
    let Some(targets) = filter.to_str().and_then(targets) else {
        return complain(&format!(
            "{FILTER}={filter:?} is not understood, and nothing is logged: expected off, error, warn, info, debug or trace, or \
             guerdon_http=trace and the like, with commas between"
        ));
    };
    let file = std::env::var_os(FILE).filter(|name| !name.is_empty()).map(|name| (open(&name), name));
    let layer = fmt::layer().with_ansi(false).with_thread_names(true);
    let layer = match file {
        None => layer.with_writer(|| Stderr).boxed(),
        Some((Ok(file), _)) => layer.with_writer(Arc::new(file)).boxed(),
        Some((Err(error), name)) => {
            return complain(&format!("{FILE}={name:?} can't be written, and nothing is logged: {error}"));
        }
    };
    // Nobody else can have set one: this crate is the only one in the extension that could.
    let _ = tracing_subscriber::registry().with(layer.with_filter(targets)).try_init();
}

/// Returns the targets that the filter lets through: only for our modules.
fn targets(filter: &str) -> Option<Targets> {
    let given: Targets = filter.parse().ok()?;
    let all = given.default_level().map(|level| (OURS.to_owned(), level));
    let some = given.iter().map(|(target, level)| (target.to_owned(), level));
    let ours: Vec<(String, LevelFilter)> =
        all.into_iter().chain(some.filter(|(name, _)| name.starts_with(OURS))).collect();
    (!ours.is_empty()).then(|| ours.into_iter().collect())
}

/// Adds to the file; `%p` in its name is the process id, so that ranks can have one each.
fn open(name: &OsStr) -> io::Result<File> {
    let name = name.to_string_lossy().replace("%p", &std::process::id().to_string());
    OpenOptions::new().append(true).create(true).open(PathBuf::from(name))
}

fn complain(what: &str) {
    // There is nobody else to tell.
    let _ = Stderr.write_all(format!("guerdon: {what}.\n").as_bytes());
}

/// Standard error without a lock: what another thread held at a fork would stay held.
struct Stderr;

impl Write for Stderr {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        Ok(rustix::io::write(io::stderr().as_fd(), bytes)?)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(filter: &str) -> Option<String> {
        targets(filter).map(|targets| targets.to_string())
    }

    #[test]
    fn only_our_targets_are_let_through() {
        assert_eq!(shown("debug").as_deref(), Some("guerdon=debug"));
        assert_eq!(shown("guerdon_http=trace").as_deref(), Some("guerdon_http=trace"));
        assert!(shown("guerdon_http=trace,warn").is_some_and(|all| all.contains("guerdon=warn")));
        assert_eq!(shown("h2=trace"), None);
        assert_eq!(shown("h2=trace,info").as_deref(), Some("guerdon=info"));
    }

    #[test]
    fn invalid_filters_are_refused() {
        assert_eq!(shown("guerdon_http=loud"), None);
        assert_eq!(shown("=="), None);
    }
}
