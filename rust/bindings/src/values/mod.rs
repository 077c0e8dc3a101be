//! The values of a batch's calls, captured on the caller's thread when samples are submitted.
//!
//! `columns` is what the package brings: columns, and which of them each function gets.
//! `python_values` holds the values of calls that run in this process, `wire` those of calls that
//! leave it as bytes (`text`: strings by their addresses). `whole_batch` puts them together for a
//! batch that came as a whole, `open_batch` for one to which samples are added; `journal_columns`
//! is what a journal keeps of them, and `journal_texts` reads it. `released` keeps what nobody
//! holds any more until it can be let go.

pub mod columns;
pub mod journal_columns;
pub mod journal_texts;
pub mod open_batch;
pub mod python_values;
pub mod released;
pub mod text;
pub mod whole_batch;
pub mod wire;
