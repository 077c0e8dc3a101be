//! Eight replicas, of which one dies, one hangs and one is slow.

use std::sync::atomic::Ordering;
use std::time::Duration;

use super::replicas::{Mood, Replicas, SERVICE, SLOTS, fleet, score};

const REPLICAS: usize = 8;
const IN_FLIGHT: usize = REPLICAS * SLOTS;
const CALLS: usize = 16_384;
const GROUP: usize = 8;

/// Fault: of eight replicas one dies, one hangs and one is slow by 10 times, in mid-batch
/// Sees: nothing: no sample is lost, and the others do the work
#[tokio::test(start_paused = true)]
async fn one_dies_one_hangs_one_is_slow() {
    let (healthy, hostile) = (Replicas::new(REPLICAS), Replicas::new(REPLICAS));
    let usual = score(&fleet(REPLICAS, IN_FLIGHT, None), &healthy, (CALLS, IN_FLIGHT, GROUP), |_| {}).await;
    let moods = hostile.clone();
    let all = fleet(REPLICAS, IN_FLIGHT, None);
    let scored = score(&all, &hostile, (CALLS, IN_FLIGHT, GROUP), move |call| match call {
        1024 => moods.set(0, Mood::Dead),
        1025 => moods.set(1, Mood::Hangs),
        1026 => moods.set(2, Mood::Serves(10.0)),
        _ => {}
    })
    .await;
    // Five and a tenth of eight are left; the last calls of a batch wait for the slow one.
    let left = 5.1 / 8.0;
    let ideal = left * usual.rate_between(1024, CALLS - 512);
    let rate = scored.rate_between(1024, CALLS - 512);
    eprintln!("{rate:.0}/s of {ideal:.0}/s, p99 {:?} of {:?}", scored.quantile(0.99), usual.quantile(0.99));
    assert_eq!(scored.lost(), 0);
    assert!(rate > 0.95 * ideal, "{rate} of {ideal} calls a second");
    assert!(scored.quantile(0.99) < usual.quantile(0.99).mul_f64(1.5 / left), "{:?}", scored.quantile(0.99));
}

/// A group's samples have one prefix, which one endpoint keeps.
#[tokio::test(start_paused = true)]
async fn groups_stay_together_under_even_load() {
    for group_size in [4, 8, 16] {
        let replicas = Replicas::new(REPLICAS);
        let scored = score(&fleet(REPLICAS, IN_FLIGHT, None), &replicas, (8192, IN_FLIGHT, group_size), |_| {}).await;
        eprintln!("groups of {group_size}: {:.3}, {:.0}/s", scored.affinity(group_size), scored.rate());
        assert!(scored.affinity(group_size) > 0.9, "groups of {group_size}: {}", scored.affinity(group_size));
        // 256 slots do 256 calls a second if a mean answer takes a second.
        assert!(scored.rate() > 0.9 * 256.0, "{}", scored.rate());
        for place in 0..REPLICAS {
            let served = replicas.at(place).served.load(Ordering::Relaxed);
            assert!((900..1150).contains(&served), "{place}: {served}");
        }
    }
}

/// A slow replica gets as many calls as it can serve if calls have no groups, and a fast one no
/// more than its share.
#[tokio::test(start_paused = true)]
async fn a_slow_replica_gets_less() {
    let replicas = Replicas::new(4);
    replicas.set(3, Mood::Serves(10.0));
    let all = fleet(4, 4 * SLOTS, None);
    let scored = score(&all, &replicas, (8192, 4 * SLOTS, 1), |_| {}).await;
    let slow = all.endpoints()[3].answered;
    eprintln!("slow: {slow} of 8192, p99 {:?}, {:.0}/s", scored.quantile(0.99), scored.rate());
    assert!(slow < 8192 / 100, "{slow}");
    assert!(scored.quantile(0.99) < 3 * SERVICE, "{:?}", scored.quantile(0.99));
}

/// Fault: a replica is restarted: nothing listens for a minute
/// Sees: nothing; it gets its share again within seconds after it is back
#[tokio::test(start_paused = true)]
async fn a_replica_comes_back() {
    let replicas = Replicas::new(4);
    let all = fleet(4, 4 * SLOTS, None);
    let moods = replicas.clone();
    tokio::spawn(async move {
        tokio::time::sleep(Duration::from_secs(10)).await;
        moods.set(0, Mood::Dead);
        tokio::time::sleep(Duration::from_secs(60)).await;
        moods.set(0, Mood::Serves(1.0));
        let before = moods.at(0).served.load(Ordering::Relaxed);
        tokio::time::sleep(Duration::from_secs(30)).await;
        let after = moods.at(0).served.load(Ordering::Relaxed);
        assert!(after - before > 10 * SLOTS, "{before} {after}: thirty seconds of its share less the way back");
    });
    let scored = score(&all, &replicas, (128 * 120, 4 * SLOTS, 8), |_| {}).await;
    assert_eq!(scored.lost(), 0);
    assert_eq!(all.endpoints()[0].breaker, "closed");
}

/// Fault: one of eight replicas answers 429 without saying until when
/// Sees: nothing: its calls go to the others at once
#[tokio::test(start_paused = true)]
async fn one_throttles() {
    let replicas = Replicas::new(REPLICAS);
    replicas.set(5, Mood::Throttles);
    let all = fleet(REPLICAS, IN_FLIGHT, None);
    let scored = score(&all, &replicas, (4096, IN_FLIGHT, GROUP), |_| {}).await;
    let refused = replicas.at(5).came.load(Ordering::Relaxed);
    assert_eq!(scored.lost(), 0);
    assert!(refused < 64, "{refused} requests went to one that said 'too many'");
    assert!(scored.rate() > 0.9 * 7.0 * 32.0, "{}", scored.rate());
}

/// Fault: one of eight replicas refuses all requests at once, as with another key or address
/// Sees: nothing: the others answer, and its breaker opens
#[tokio::test(start_paused = true)]
async fn one_refuses() {
    for code in [307, 400, 401, 403, 404, 405, 422] {
        let replicas = Replicas::new(REPLICAS);
        replicas.set(5, Mood::Refuses(code));
        let all = fleet(REPLICAS, IN_FLIGHT, None);
        let scored = score(&all, &replicas, (4096, IN_FLIGHT, GROUP), |_| {}).await;
        let refused = replicas.at(5).came.load(Ordering::Relaxed);
        eprintln!("{code}: {refused} refused, {:.0}/s", scored.rate());
        assert_eq!(scored.lost(), 0, "{code}");
        assert!(refused < 4096 / 4, "{refused} requests went to one that answers {code}");
    }
}

/// Fault: one of eight replicas answers text that can't be read
/// Sees: nothing: its requests are made again elsewhere, and it gets none
#[tokio::test(start_paused = true)]
async fn one_answers_garbage() {
    let replicas = Replicas::new(REPLICAS);
    replicas.set(5, Mood::Garbage);
    let all = fleet(REPLICAS, IN_FLIGHT, None);
    let scored = score(&all, &replicas, (4096, IN_FLIGHT, GROUP), |_| {}).await;
    let came = replicas.at(5).came.load(Ordering::Relaxed);
    assert_eq!(scored.lost(), 0);
    assert!(came < 4096 / 16, "{came} requests went to it");
}

/// Fault: all replicas answer 404 for a second, as a router that starts anew
/// Sees: nothing, where requests were answered before
#[tokio::test(start_paused = true)]
async fn a_router_knows_no_replica_for_a_second() {
    for count in [1, 4] {
        let replicas = Replicas::new(count);
        let all = fleet(count, count * SLOTS, None);
        let moods = replicas.clone();
        let turn = move |mood: Mood| (0..count).for_each(|place| moods.set(place, mood));
        tokio::spawn(async move {
            tokio::time::sleep(Duration::from_secs(5)).await;
            turn(Mood::Refuses(404));
            tokio::time::sleep(Duration::from_millis(300)).await;
            turn(Mood::Serves(1.0));
        });
        let scored = score(&all, &replicas, (count * SLOTS * 20, count * SLOTS, 1), |_| {}).await;
        assert!(scored.lost() * 100 <= scored.places.len(), "{} lost", scored.lost());
    }
}
