use std::os::unix::fs::PermissionsExt;
use std::process::Command;
use std::time::Duration;

use guerdon_testkit::TempFolder;
use proptest::prelude::*;
use rustix::fs::{FlockOperation, flock};

use super::super::breaker::History;
use super::super::feedback::{CallEnd, Feedback};
use super::super::rate_limiter::{Decision, Grant, Rules, Tokens};
use super::super::shared_file::{LockedState, SharedFile};
use super::{S, file};

const GRANT: Grant = Grant { sent_ns: 100 * S, gap_ns: 0, others: 0, tokens: 0.0, trial: false };

fn with<R>(shared: &mut SharedFile, now_ns: u64, work: impl FnOnce(&mut LockedState) -> R) -> R {
    shared.with(now_ns, work).unwrap().expect("nobody else has it")
}

#[test]
fn a_locked_file_is_not_waited_for() {
    let folder = TempFolder::new();
    let mut shared = SharedFile::new(&file(&folder));
    with(&mut shared, S, |_| ());
    let other = std::fs::File::open(file(&folder)).unwrap();
    flock(&other, FlockOperation::LockExclusive).unwrap();
    assert!(shared.with(S, |_| ()).unwrap().is_none());
    drop(other);
    assert!(shared.with(S, |_| ()).unwrap().is_some());
}

#[test]
fn leaving_waits_for_a_locked_file() {
    let folder = TempFolder::new();
    let (mut here, mut there) = (SharedFile::new(&file(&folder)), SharedFile::new(&file(&folder)));
    with(&mut there, S, |locked| locked.set_in_flight(3));
    let mut other = Some(std::fs::File::open(file(&folder)).unwrap());
    flock(other.as_ref().unwrap(), FlockOperation::LockExclusive).unwrap();
    there.leave_after(|| other = None);
    assert!(other.is_none());
    assert_eq!(with(&mut here, S, |locked| locked.in_flight_elsewhere()), 0);
}

#[test]
fn calls_in_flight_elsewhere_count_until_their_process_ends() {
    let folder = TempFolder::new();
    let (mut here, mut there) = (SharedFile::new(&file(&folder)), SharedFile::new(&file(&folder)));
    with(&mut there, S, |locked| locked.set_in_flight(3));
    assert_eq!(with(&mut here, S, |locked| locked.in_flight_elsewhere()), 3);
    assert_eq!(with(&mut there, S, |locked| locked.in_flight_elsewhere()), 0);
    // An engine of a process that lives is never freed by others; when it leaves, it is.
    assert!(!with(&mut here, 2 * S, |locked| locked.free_expired(2 * S)));
    there.leave();
    assert_eq!(with(&mut here, S, |locked| locked.in_flight_elsewhere()), 0);
    // The same by a process that was killed: its number and the time of its start are in the file.
    let mut child = Command::new("sleep").arg("600").spawn().unwrap();
    let mut killed = SharedFile::new(&file(&folder));
    killed.impersonate(child.id());
    with(&mut killed, S, |locked| locked.set_in_flight(5));
    assert!(!with(&mut here, 3 * S, |locked| locked.free_expired(3 * S)));
    child.kill().unwrap();
    child.wait().unwrap();
    assert_eq!(with(&mut here, 4 * S, |locked| (locked.free_expired(4 * S), locked.in_flight_elsewhere())), (true, 0));
}

#[test]
fn a_file_that_was_removed_is_made_again() {
    let folder = TempFolder::new();
    let (mut here, mut there) = (SharedFile::new(&file(&folder)), SharedFile::new(&file(&folder)));
    with(&mut here, S, |locked| locked.set_in_flight(1));
    std::fs::remove_file(file(&folder)).unwrap();
    with(&mut here, 2 * S, |locked| locked.set_in_flight(1));
    assert_eq!(with(&mut there, S, |locked| locked.in_flight_elsewhere()), 1);
}

#[test]
fn a_file_of_another_boot_is_not_read() {
    let folder = TempFolder::new();
    let mut shared = SharedFile::new(&file(&folder));
    with(&mut shared, S, |_| ());
    let mut bytes = std::fs::read(file(&folder)).unwrap();
    bytes[8] ^= 1;
    bytes[16..24].copy_from_slice(&u64::MAX.to_le_bytes());
    std::fs::write(file(&folder), bytes).unwrap();
    let limiter = with(&mut SharedFile::new(&file(&folder)), S, |locked| locked.limiter.clone());
    assert_eq!(limiter, super::super::rate_limiter::RateLimiter::default());
}

#[test]
fn a_file_of_an_older_version_starts_anew() {
    let folder = TempFolder::new();
    with(&mut SharedFile::new(&file(&folder)), S, |locked| locked.set_in_flight(3));
    let mut bytes = std::fs::read(file(&folder)).unwrap();
    bytes[0] -= 1; // the lowest byte is the version
    std::fs::write(file(&folder), bytes).unwrap();
    let seen = with(&mut SharedFile::new(&file(&folder)), S, |locked| locked.in_flight_elsewhere());
    assert_eq!(seen, 0, "its numbers mean something else");
}

#[test]
fn a_wrong_checksum_starts_anew() {
    let folder = TempFolder::new();
    let rules = Rules { rpm: Some(60.0), ..Rules::default() };
    let busy = |locked: &mut LockedState| {
        let feedback = Feedback::Throttled(Some(Duration::from_secs(500)));
        let end = CallEnd { feedback, tokens: None, history: History::default() };
        locked.limiter.record(&rules, 100 * S, GRANT, end, 0, 0.5);
    };
    let asked = |shared: &mut SharedFile, now_ns| {
        with(shared, now_ns, |locked| locked.limiter.ask(&rules, now_ns, Tokens::Estimated(None), 0))
    };
    let mut here = SharedFile::new(&file(&folder));
    with(&mut here, 100 * S, busy);
    assert!(
        matches!(asked(&mut here, 101 * S), Decision::Wait { until_ns, .. } if until_ns == 220 * S),
        "two minutes are believed"
    );
    // The same numbers, but for one.
    let mut bytes = std::fs::read(file(&folder)).unwrap();
    bytes[24] ^= 1;
    std::fs::write(file(&folder), bytes).unwrap();
    assert!(matches!(asked(&mut here, 101 * S), Decision::Go(_)));
    // Written as a whole, by a clock that has begun anew since.
    with(&mut here, 1_000_000 * S, |locked| locked.limiter.ask(&rules, 1_000_000 * S, Tokens::Estimated(None), 0));
    assert!(matches!(asked(&mut here, 200 * S), Decision::Go(_)));
    assert!(matches!(asked(&mut here, 200 * S), Decision::Wait { until_ns, .. } if until_ns < 202 * S));
}

/// The part of a rate that a process took stays taken when it dies: the endpoint has counted it.
#[test]
fn the_rate_of_a_killed_process_is_not_given_out_twice() {
    let folder = TempFolder::new();
    let rules = Rules { rpm: Some(60.0), concurrency: Some(1), ..Rules::default() };
    let mut child = Command::new("sleep").arg("600").spawn().unwrap();
    let mut killed = SharedFile::new(&file(&folder));
    killed.impersonate(child.id());
    with(&mut killed, S, |locked| {
        assert!(matches!(locked.limiter.ask(&rules, S, Tokens::Estimated(None), 0), Decision::Go(_)));
        locked.set_in_flight(1);
    });
    child.kill().unwrap();
    child.wait().unwrap();
    let mut here = SharedFile::new(&file(&folder));
    let ask = |locked: &mut LockedState| {
        assert!(locked.free_expired(S) && locked.in_flight_elsewhere() == 0, "its place is free");
        locked.limiter.ask(&rules, S, Tokens::Estimated(None), locked.in_flight_elsewhere())
    };
    let Decision::Wait { until_ns, .. } = with(&mut here, S, ask) else { panic!("its request counts") };
    assert!((2 * S - S / 10..=2 * S + S / 10).contains(&until_ns), "{until_ns}");
}

#[test]
fn the_file_is_private() {
    let folder = TempFolder::new();
    with(&mut SharedFile::new(&file(&folder)), S, |_| ());
    let mode = |path: &std::path::Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!((mode(&folder.0), mode(&file(&folder))), (0o700, 0o600));
    let link = folder.0.join("link");
    std::os::unix::fs::symlink(file(&folder), &link).unwrap();
    assert!(SharedFile::new(&link).with(S, |_| ()).is_err());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn no_file_makes_reading_fail(bytes in prop::collection::vec(prop_oneof![Just(0_u8), Just(255), any::<u8>()], 0..600), whole: bool) {
        let folder = TempFolder::new();
        let mut shared = SharedFile::new(&file(&folder));
        with(&mut shared, S, |_| ());
        let mut content = std::fs::read(file(&folder)).unwrap();
        if whole {
            content = bytes;
        } else {
            // The head stays: its numbers don't.
            content.truncate(16);
            content.extend_from_slice(&bytes);
        }
        std::fs::write(file(&folder), content).unwrap();
        with(&mut shared, S, |locked| locked.set_in_flight(1));
        let mut other = SharedFile::new(&file(&folder));
        prop_assert!(with(&mut other, S, |locked| locked.in_flight_elsewhere()) >= 1);
    }
}
