//! What the tests of the engine share: fake lanes, injected faults, a paused clock.
#![forbid(unsafe_code)]
