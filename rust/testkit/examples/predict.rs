//! Prints docs/internals/prediction.md: `cargo run --package guerdon-testkit --example predict
//! >docs/internals/prediction.md`.
#![allow(clippy::print_stdout, reason = "what it is for")]

#[path = "../tests/prediction/page.rs"]
mod page;

fn main() {
    print!("{}", page::page());
}
