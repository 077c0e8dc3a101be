use std::os::unix::fs::PermissionsExt;
use std::process::Command;
use std::time::Duration;

use proptest::prelude::*;
use rustix::fs::{FlockOperation, flock};

use super::super::book::{Heard, Passed, Rules, Tokens, Verdict};
use super::super::shared::{Open, Shared};
use super::Folder;
use crate::started::Started;

const S: u64 = 1_000_000_000;
const PASSED: Passed = Passed { sent_ns: 100 * S, tokens: 0.0, probe: false };

fn with<R>(shared: &mut Shared, now_ns: u64, work: impl FnOnce(&mut Open) -> R) -> R {
    shared.with(now_ns, work).unwrap().expect("nobody else has it")
}

#[test]
fn s1_an_occupied_file_is_not_waited_for() {
    let folder = Folder::new();
    let mut shared = Shared::new(&folder.file());
    with(&mut shared, S, |_| ());
    let other = std::fs::File::open(folder.file()).unwrap();
    flock(&other, FlockOperation::LockExclusive).unwrap();
    assert!(shared.with(S, |_| ()).unwrap().is_none());
    drop(other);
    assert!(shared.with(S, |_| ()).unwrap().is_some());
}

#[test]
fn s1_who_leaves_waits_for_an_occupied_file() {
    let folder = Folder::new();
    let (mut here, mut there) = (Shared::new(&folder.file()), Shared::new(&folder.file()));
    with(&mut there, S, |open| open.mine(3));
    let mut other = Some(std::fs::File::open(folder.file()).unwrap());
    flock(other.as_ref().unwrap(), FlockOperation::LockExclusive).unwrap();
    there.leave_after(|| other = None);
    assert!(other.is_none());
    assert_eq!(with(&mut here, S, |open| open.elsewhere()), 0);
}

#[test]
fn s2_what_others_have_under_way_counts_until_they_are_dead() {
    let folder = Folder::new();
    let (mut here, mut there) = (Shared::new(&folder.file()), Shared::new(&folder.file()));
    with(&mut there, S, |open| open.mine(3));
    assert_eq!(with(&mut here, S, |open| open.elsewhere()), 3);
    assert_eq!(with(&mut there, S, |open| open.elsewhere()), 0);
    // An engine of a process that lives is never freed by others; when it leaves, it is.
    assert!(!with(&mut here, 2 * S, |open| open.free_dead(2 * S)));
    there.leave();
    assert_eq!(with(&mut here, S, |open| open.elsewhere()), 0);
    // The same by a process that was killed: its number and the time of its start stand in the file.
    let mut child = Started::from(Command::new("sleep").arg("600").spawn().unwrap());
    let mut dead = Shared::new(&folder.file());
    dead.pretend(child.id());
    with(&mut dead, S, |open| open.mine(5));
    assert!(!with(&mut here, 3 * S, |open| open.free_dead(3 * S)));
    child.kill().unwrap();
    child.wait().unwrap();
    assert_eq!(with(&mut here, 4 * S, |open| (open.free_dead(4 * S), open.elsewhere())), (true, 0));
}

#[test]
fn s3_a_file_that_was_removed_is_made_again() {
    let folder = Folder::new();
    let (mut here, mut there) = (Shared::new(&folder.file()), Shared::new(&folder.file()));
    with(&mut here, S, |open| open.mine(1));
    std::fs::remove_file(folder.file()).unwrap();
    with(&mut here, 2 * S, |open| open.mine(1));
    assert_eq!(with(&mut there, S, |open| open.elsewhere()), 1);
}

#[test]
fn s3_another_boots_book_is_not_read() {
    let folder = Folder::new();
    let mut shared = Shared::new(&folder.file());
    with(&mut shared, S, |_| ());
    let mut bytes = std::fs::read(folder.file()).unwrap();
    bytes[8] ^= 1;
    bytes[16..24].copy_from_slice(&u64::MAX.to_le_bytes());
    std::fs::write(folder.file(), bytes).unwrap();
    let book = with(&mut Shared::new(&folder.file()), S, |open| open.book.clone());
    assert_eq!(book, super::super::book::Book::default());
}

#[test]
fn s4_numbers_that_nobody_wrote_start_anew() {
    let folder = Folder::new();
    let rules = Rules { rpm: Some(60.0), ..Rules::default() };
    let busy = |open: &mut Open| {
        open.book.learn(&rules, 100 * S, PASSED, Heard::Busy(Some(Duration::from_secs(500))), None, 0.5);
    };
    let asked = |shared: &mut Shared, now_ns| {
        with(shared, now_ns, |open| open.book.ask(&rules, now_ns, Tokens::About(None), 0))
    };
    let mut here = Shared::new(&folder.file());
    with(&mut here, 100 * S, busy);
    assert!(
        matches!(asked(&mut here, 101 * S), Verdict::Wait { until_ns, .. } if until_ns == 600 * S),
        "as it was told"
    );
    // The same numbers, but for one.
    let mut bytes = std::fs::read(folder.file()).unwrap();
    bytes[24] ^= 1;
    std::fs::write(folder.file(), bytes).unwrap();
    assert!(matches!(asked(&mut here, 101 * S), Verdict::Go(_)));
    // Written as a whole, by a clock that has begun anew since.
    with(&mut here, 1_000_000 * S, |open| open.book.ask(&rules, 1_000_000 * S, Tokens::About(None), 0));
    assert!(matches!(asked(&mut here, 200 * S), Verdict::Go(_)));
    assert!(matches!(asked(&mut here, 200 * S), Verdict::Wait { until_ns, .. } if until_ns < 202 * S));
}

/// What a process took of a rate stays taken when it dies: the endpoint has counted it.
#[test]
fn s2_the_rate_of_a_dead_process_is_not_given_out_twice() {
    let folder = Folder::new();
    let rules = Rules { rpm: Some(60.0), concurrency: Some(1), ..Rules::default() };
    let mut child = Started::from(Command::new("sleep").arg("600").spawn().unwrap());
    let mut dead = Shared::new(&folder.file());
    dead.pretend(child.id());
    with(&mut dead, S, |open| {
        assert!(matches!(open.book.ask(&rules, S, Tokens::About(None), 0), Verdict::Go(_)));
        open.mine(1);
    });
    child.kill().unwrap();
    child.wait().unwrap();
    let mut here = Shared::new(&folder.file());
    let ask = |open: &mut Open| {
        assert!(open.free_dead(S) && open.elsewhere() == 0, "its place is free");
        open.book.ask(&rules, S, Tokens::About(None), open.elsewhere())
    };
    let Verdict::Wait { until_ns, .. } = with(&mut here, S, ask) else { panic!("its request counts") };
    assert!((2 * S - S / 10..=2 * S + S / 10).contains(&until_ns), "{until_ns}");
}

#[test]
fn s5_the_file_is_nobody_elses() {
    let folder = Folder::new();
    with(&mut Shared::new(&folder.file()), S, |_| ());
    let mode = |path: &std::path::Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!((mode(&folder.0), mode(&folder.file())), (0o700, 0o600));
    let link = folder.0.join("link");
    std::os::unix::fs::symlink(folder.file(), &link).unwrap();
    assert!(Shared::new(&link).with(S, |_| ()).is_err());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn s4_no_file_makes_reading_fail(bytes in prop::collection::vec(prop_oneof![Just(0_u8), Just(255), any::<u8>()], 0..600), whole: bool) {
        let folder = Folder::new();
        let mut shared = Shared::new(&folder.file());
        with(&mut shared, S, |_| ());
        let mut file = std::fs::read(folder.file()).unwrap();
        if whole {
            file = bytes;
        } else {
            // The head stays: its numbers don't.
            file.truncate(16);
            file.extend_from_slice(&bytes);
        }
        std::fs::write(folder.file(), file).unwrap();
        with(&mut shared, S, |open| open.mine(1));
        let mut other = Shared::new(&folder.file());
        prop_assert!(with(&mut other, S, |open| open.elsewhere()) >= 1);
    }
}
