//! Helpers of the tests and models of both lanes.

pub(crate) mod fake_frame;
