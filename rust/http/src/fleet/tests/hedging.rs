//! Requests that are sent twice.

use std::sync::atomic::Ordering;
use std::time::Duration;

use super::replicas::{Mood, Replicas, SLOTS, fleet, score};
use crate::fleet::{HedgeAfter, Hedging, RequestKey};

const P95: Hedging = Hedging { after: HedgeAfter::Quantile(0.95), share: 0.05 };

/// One endpoint in eight is slow by ten times: the p99 of a batch, and the share of calls that were
/// hedged.
async fn with_a_slow_one(hedging: Option<Hedging>) -> (Duration, f64) {
    let (replicas, all) = (Replicas::new(8), fleet(8, 128, hedging));
    replicas.set(3, Mood::Serves(10.0));
    let scored = score(&all, &replicas, (1024, 128, 8), |_| {}).await;
    assert_eq!(scored.lost(), 0);
    let hedges = f64::from(u32::try_from(all.counts().hedges).unwrap()) / 1024.0;
    (scored.quantile(0.99), hedges)
}

#[tokio::test(start_paused = true)]
async fn the_tail_is_cut_and_the_share_holds() {
    let (without, none) = with_a_slow_one(None).await;
    let (with, hedged) = with_a_slow_one(Some(P95)).await;
    eprintln!("p99 {without:?} -> {with:?}, hedged {hedged:.4}");
    assert!(none == 0.0 && hedged > 0.0 && hedged <= 0.05, "{hedged}");
    assert!(2 * with < without, "{without:?} without, {with:?} with");
}

/// One of the endpoints is slow for a moment, every now and then, so that nobody can avoid it.
#[tokio::test(start_paused = true)]
async fn moments_of_slowness_are_hedged() {
    let mut found = Vec::new();
    for hedging in [None, Some(Hedging { after: HedgeAfter::Time(Duration::from_secs(2)), share: 0.05 })] {
        let (replicas, all) = (Replicas::new(8), fleet(8, 128, hedging));
        let moods = replicas.clone();
        let scored = score(&all, &replicas, (16_384, 128, 8), move |call| {
            let (round, at) = (call / 1024, call % 1024);
            moods.set(round % 8, if at < 128 { Mood::Serves(10.0) } else { Mood::Serves(1.0) });
        })
        .await;
        assert_eq!(scored.lost(), 0);
        eprintln!("{hedging:?}: p99 {:?}, {} hedges", scored.quantile(0.99), all.counts().hedges);
        found.push(scored.quantile(0.99));
    }
    assert!(2 * found[1] < found[0], "{found:?}");
}

/// A request goes to two endpoints at most, and never twice to one.
#[tokio::test(start_paused = true)]
async fn the_loser_is_dropped() {
    let replicas = Replicas::new(2);
    replicas.set(0, Mood::Hangs);
    replicas.set(1, Mood::Hangs);
    let hedging = Hedging { after: HedgeAfter::Time(Duration::from_secs(2)), share: 1.0 };
    let all = fleet(2, 4, Some(hedging));
    let moods = replicas.clone();
    tokio::spawn(async move {
        tokio::time::sleep(Duration::from_secs(1)).await;
        for place in 0..2 {
            if moods.at(place).came.load(Ordering::Relaxed) == 0 {
                moods.set(place, Mood::Serves(1.0));
            }
        }
    });
    let key = RequestKey { batch: 1, group_size: 1, attempt: 1, ..RequestKey::default() };
    let place = all.send(key, &replicas.asked(1.0), Duration::from_secs(30)).await.unwrap();
    let came = |place: usize| replicas.at(place).came.load(Ordering::Relaxed);
    assert_eq!((came(0), came(1)), (1, 1));
    assert_eq!(replicas.at(1 - place).dropped.load(Ordering::Relaxed), 1, "the loser");
    assert_eq!((all.counts().hedges, all.counts().hedges_won), (1, 1));
    assert!(all.endpoints().iter().all(|one| one.in_flight == 0));
}

/// A call that is cancelled drops both requests; a second one that fails leaves the first.
#[tokio::test(start_paused = true)]
async fn cancelled_and_failed_second_requests() {
    let replicas = Replicas::new(2);
    let hedging = Hedging { after: HedgeAfter::Time(Duration::from_secs(1)), share: 1.0 };
    let all = fleet(2, 4, Some(hedging));
    (0..2).for_each(|place| replicas.set(place, Mood::Hangs));
    let key = RequestKey { batch: 1, group_size: 1, attempt: 1, ..RequestKey::default() };
    let request = replicas.asked(1.0);
    let sent = all.send(key, &request, Duration::from_secs(30));
    assert!(tokio::time::timeout(Duration::from_secs(5), sent).await.is_err());
    assert!(all.endpoints().iter().all(|one| one.in_flight == 0));
    assert_eq!((0..2).map(|place| replicas.at(place).dropped.load(Ordering::Relaxed)).sum::<usize>(), 2);
    (0..2).for_each(|place| replicas.set(place, Mood::Serves(3.0)));
    let moods = replicas.clone();
    tokio::spawn(async move {
        // Before the second one comes, after the first one was taken.
        tokio::time::sleep(Duration::from_millis(500)).await;
        let busy = (0..2).find(|place| moods.at(*place).in_flight() > 0).unwrap();
        moods.set(1 - busy, Mood::Dead);
    });
    assert!(all.send(RequestKey { sample: 1, ..key }, &request, Duration::from_secs(30)).await.is_ok());
    let quiet = super::replicas::SeenRequest { may_hedge: false, ..replicas.asked(1.0) };
    let hedges = all.counts().hedges;
    (0..2).for_each(|place| replicas.set(place, Mood::Serves(3.0)));
    assert!(all.send(RequestKey { sample: 2, ..key }, &quiet, Duration::from_secs(30)).await.is_ok());
    assert_eq!(all.counts().hedges, hedges, "the limiter had no permit");
}

/// If all answer slowly, a second request would only add to it.
#[tokio::test(start_paused = true)]
async fn an_overloaded_fleet_gets_no_second_requests() {
    let replicas = Replicas::new(4);
    (0..4).for_each(|place| replicas.set(place, Mood::Serves(20.0)));
    let hedging = Hedging { after: HedgeAfter::Time(Duration::from_secs(2)), share: 1.0 };
    let all = fleet(4, 4 * SLOTS, Some(hedging));
    let scored = score(&all, &replicas, (512, 4 * SLOTS, 1), |_| {}).await;
    assert_eq!(scored.lost(), 0);
    let hedges = all.counts().hedges;
    assert!(hedges < 512 / 4, "{hedges} of 512");
}
