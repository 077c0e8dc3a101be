//! The window of a server that bounds the requests that it answers at a time.

use super::super::window::{FULL, Window};
use super::S;

#[test]
fn a_held_window_counts_no_calls_of_a_process_that_died() {
    let mut window = Window::default();
    assert!(window.hold(8));
    assert!(window.full_until_ns(S, 8).is_some());
    assert_eq!(window.full_until_ns(S, 0), None);
}

#[test]
fn more_calls_than_a_window_holds_explain_no_refusal() {
    let full = usize::try_from(FULL).unwrap();
    assert!(!Window::default().hold(full));
    assert!(Window::default().hold(full - 1));
}

#[test]
fn fewer_calls_than_were_taken_explain_no_refusal() {
    let mut window = Window::default();
    window.take(20);
    assert!(!window.hold(8));
    window.narrow();
    assert!(!window.hold(4));
    window.narrow();
    assert!(window.hold(4));
}
