//! The values of a batch's calls, captured on the caller's thread when samples are submitted.
//!
//! `given` is what the package brings: columns, and the use that each function makes of them. `rows` holds the values of calls that run in
//! this process, `wire` those of calls that leave it as bytes (`text`: strings where they lie). `arrived` puts them together for a batch that
//! came as a whole, `growing` for one to which samples are added.

pub mod arrived;
pub mod given;
pub mod growing;
pub mod rows;
pub mod text;
pub mod wire;
