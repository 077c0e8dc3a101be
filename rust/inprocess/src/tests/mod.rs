//! What the tests and models of both lanes use.

pub(crate) mod fake_frame;
