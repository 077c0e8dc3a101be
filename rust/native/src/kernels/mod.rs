//! Reward functions as native kernels: one text, its counterpart, one number.
//!
//! - A kernel returns what its original returns (docs/rewards.md names it), for every input.
//! - A sample that a kernel can't decide does not get a number: it abstains, or names the fault of
//!   the input.
//! - Work that is more than linear in the input checks about every millisecond whether to stop;
//!   work on JSON schemas checks between two values, all other between two passes over a text.
//! - Kernels are independent of Python, batches and lanes. Text that Python would split, fold or
//!   classify goes through `python_text`.

mod bit_parallel;
mod bleu;
mod edit_distance;
mod fault;
mod format;
mod ifeval;
mod input;
mod kernel;
mod length;
mod matching;
pub mod math;
mod multiple_choice;
mod python_json;
mod python_text;
mod repetition;
mod rouge;
mod spec;
mod squad;
mod tokens;

pub use fault::{Fault, Score, Stop};
pub use input::{Input, InputForm};
pub use kernel::Kernel;
pub use spec::{SpecError, kernel};
