//! Endpoints that come and go.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use guerdon_core::clock::Clock;

use super::replicas::{Mood, Replicas, SLOTS, endpoint, fleet, score, url};
use crate::endpoint::Endpoint;
use crate::fleet::{Fleet, FleetOptions, Pools, RequestKey};

/// Requests in flight to an endpoint that leaves are answered; one that comes gets its share.
#[tokio::test(start_paused = true)]
async fn the_list_is_replaced_in_mid_batch() {
    let (replicas, all) = (Replicas::new(4), fleet(2, 3 * SLOTS, None));
    let changed = all.clone();
    let scored = score(&all, &replicas, (3000, 3 * SLOTS, 4), move |call| {
        if call == 1000 {
            let others = [1, 2, 3].map(|place| (changed.at(&url(place)).unwrap(), 1.0));
            changed.set(others.to_vec()).unwrap();
        }
    })
    .await;
    assert_eq!(scored.lost(), 0);
    let served: Vec<usize> = (0..4).map(|place| replicas.at(place).served.load(Ordering::Relaxed)).collect();
    let dropped: usize = (0..4).map(|place| replicas.at(place).dropped.load(Ordering::Relaxed)).sum();
    assert_eq!(dropped, 0);
    assert!(served[0] > 400 && served[2] > 600 && served[3] > 600, "{served:?}");
    let left = all.endpoints();
    assert_eq!(left.iter().map(|one| one.url.clone()).collect::<Vec<_>>(), [1, 2, 3].map(url));
    assert!(left[0].answered > 1000, "it kept its counts: {left:?}");
}

/// Connections to eight endpoints: twice a share each, since idle ones stay for a while.
#[tokio::test]
async fn the_connections_that_may_be_open_follow_the_list() {
    let pools = Arc::new(Pools::new([(&endpoint(0), SLOTS, 1)]));
    let open = || pools.descriptors().connections();
    let all = Fleet::new(&endpoint(0), &FleetOptions::default(), SLOTS, &pools, Clock::start()).unwrap();
    assert_eq!(open(), SLOTS);
    for (count, connections) in [(8, 2 * SLOTS), (2, 2 * SLOTS), (1, SLOTS)] {
        all.set((0..count).map(|place| (endpoint(place), 1.0)).collect()).unwrap();
        assert_eq!(open(), connections, "{count} endpoints");
    }
    let named = FleetOptions { resolve_all: true, ..FleetOptions::default() };
    let at = |url: &str| Endpoint::new(url, Vec::new(), None, false, None).unwrap();
    let all = Fleet::new(&at("http://127.0.0.1/v1"), &named, SLOTS, &pools, Clock::start()).unwrap();
    assert_eq!(open(), SLOTS, "planned, whether its addresses are known or not");
    all.set(["http://127.0.0.1/v1", "http://127.0.0.2/v1"].map(|url| (at(url), 1.0)).to_vec()).unwrap();
    all.refresh().await;
    assert_eq!(open(), 2 * SLOTS);
}

#[tokio::test(start_paused = true)]
async fn weights_say_who_gets_more() {
    let (replicas, all) = (Replicas::new(2), fleet(2, SLOTS, None));
    all.set(vec![(endpoint(0), 3.0), (endpoint(1), 1.0)]).unwrap();
    score(&all, &replicas, (4096, SLOTS, 1), |_| {}).await;
    let (one, two) = (replicas.at(0).served.load(Ordering::Relaxed), replicas.at(1).served.load(Ordering::Relaxed));
    assert!((2.6..3.4).contains(&(one as f64 / two as f64)), "{one} and {two}");
}

/// The next attempt goes elsewhere, and the limiter gets a failure only if all are down.
#[tokio::test(start_paused = true)]
async fn a_retry_goes_to_another_endpoint() {
    let (replicas, all) = (Replicas::new(3), fleet(3, 8, None));
    let second = Duration::from_secs(1);
    (0..3).for_each(|place| replicas.set(place, Mood::Hangs));
    let came = || (0..3).map(|place| replicas.at(place).came.load(Ordering::Relaxed)).collect::<Vec<_>>();
    for attempt in 1..=3 {
        let key = RequestKey { batch: 1, sample: 7, group_size: 1, attempt, ..RequestKey::default() };
        let failed = all.send(key, &replicas.asked(1.0), second).await.unwrap_err();
        assert!(failed.others_up);
    }
    assert_eq!(came(), [1, 1, 1]);
    (0..3).for_each(|place| replicas.set(place, Mood::Dead));
    let key = RequestKey { batch: 1, sample: 8, group_size: 1, attempt: 1, ..RequestKey::default() };
    let failed = all.send(key, &replicas.asked(1.0), second).await.unwrap_err();
    assert!(!failed.others_up && came() == [2, 2, 2], "one attempt found no connection anywhere");
}
