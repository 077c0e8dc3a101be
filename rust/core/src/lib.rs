//! The engine of guerdon: batches, scheduling, deadlines and lanes, without any knowledge of Python.
#![forbid(unsafe_code)]
