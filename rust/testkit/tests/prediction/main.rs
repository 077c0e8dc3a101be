//! docs/internals/prediction.md is what the simulation says, and the simulation says what the
//! engine does.
#![allow(clippy::unwrap_used, reason = "what is missing has failed the test")]

mod page;

use std::time::Duration;

use guerdon_testkit::paused;
use guerdon_testkit::training::{Engine, MODES, Mode, Queue, Recipe, Rewards, steady_step, steps};

const S: Duration = Duration::from_secs(1);

fn recipe() -> Recipe {
    Recipe { samples: 64, group: 8, generation: 6 * S, training: 8 * S, delays: (S, 40 * S), at_once: 48, pieces: 4 }
}

async fn run(recipe: &Recipe, mode: Mode, rewards: &mut impl Rewards) -> f64 {
    steady_step(&steps(recipe, mode, 8, rewards).await, mode)
}

#[test]
fn the_page_is_up_to_date() {
    let written = include_str!("../../../../docs/internals/prediction.md");
    assert!(
        written == page::page(),
        "cargo run --package guerdon-testkit --example predict >docs/internals/prediction.md"
    );
}

#[test]
fn the_simulated_judge_is_as_fast_as_the_engine() {
    for (name, mode) in MODES {
        let recipe = recipe();
        let simulated = paused(run_queue(recipe, mode));
        let real = paused(async move {
            let mut engine = Engine::start(&recipe);
            let seconds = run(&recipe, mode, &mut engine).await;
            engine.close().await;
            seconds
        });
        assert!((real / simulated - 1.0).abs() < 0.01, "{name}: {real} s through the engine, {simulated} s simulated");
    }
}

async fn run_queue(recipe: Recipe, mode: Mode) -> f64 {
    run(&recipe, mode, &mut Queue::default()).await
}

#[test]
fn no_mode_is_faster_than_its_bound() {
    // Every reward takes as long as another, so that the bounds hold exactly.
    for reward in [4, 14, 30] {
        let recipe = Recipe { delays: (reward * S, reward * S), at_once: usize::MAX, ..recipe() };
        let (generation, training, reward) = (6.0, 8.0, f64::from(reward));
        let bound = |mode: Mode| match (mode.mini_batch, mode.lookahead) {
            // all groups come at once: mini-batches bring nothing
            (_, 0) => generation + reward + training,
            (_, ahead) => (generation + training).max((reward + generation + training) / (1.0 + ahead as f64)),
        };
        let deeper = Mode { mini_batch: false, lookahead: 2 };
        for mode in MODES.into_iter().map(|(_, mode)| mode).chain([deeper]) {
            let took = paused(run_queue(recipe, mode));
            assert!(
                took >= bound(mode) * 0.999,
                "{mode:?}, rewards of {reward} s: {took} s, less than {}",
                bound(mode)
            );
            assert!(
                took <= bound(mode) * 1.25,
                "{mode:?}, rewards of {reward} s: {took} s, far more than {}",
                bound(mode)
            );
        }
    }
}
