use super::batch::{function, spec};
use super::scheduler::{RAN, SchedulerModel, failure};
use super::{beside, explore_within};
use crate::compose::{Composite, Member, Members, Opinions, Reduce, Reduction};
use crate::frame::Frame;
use crate::function::{Function, FunctionId, Parsing};
use crate::member_call::ANSWER;
use crate::outcome::{Cell, FailureKind};
use crate::report::Report;

fn opinions(members: Members, needed: usize) -> Opinions {
    let rules = Reduction { reduce: Reduce::Mean, needed, weights: Vec::new(), min_agreement: None };
    Opinions { members, rules }
}

fn member(of: FunctionId) -> (String, Member) {
    (format!("m{of}"), Member::Function(of))
}

fn first_of(members: Vec<(String, Member)>) -> Opinions {
    opinions(Members::Cascade { members, accept: Vec::new(), is_fallback: false }, 1)
}

fn both_of(members: Vec<(String, Member)>) -> Opinions {
    opinions(Members::Panel(members), 2)
}

fn nested(opinions: Opinions) -> (String, Member) {
    ("nested".to_owned(), Member::Opinions(Box::new(opinions)))
}

/// A call of function `ending` ends at the same time as one of function 3 on the same sample. A
/// call of function 2, which the former requests and the latter makes superfluous, ends in every
/// order.
fn a_superfluous_call_ends(opinions: Opinions, parsing: [Option<Parsing>; 2], ending: FunctionId, end: fn(&mut Frame)) {
    explore_within(2, move || {
        let composite = Composite::Opinions(opinions.clone());
        let slots = if parsing[0].is_some() { 2 } else { 1 } * composite.calls();
        let of = |parsing| Function { member_of: Some(0), parsing, ..function(0, false) };
        let functions = vec![
            Function { lane: 1, member_calls: slots, ..function(0, false) },
            of(parsing[0]),
            of(parsing[1]),
            of(None),
            of(None),
        ];
        let world = SchedulerModel::with_composite(8, functions, composite);
        let batch = world.scheduler.submit(spec(2, 1)).unwrap();
        let first = |function| {
            let mut frames = std::iter::repeat_with(|| world.lane.take_of(function).expect("it was handed out"));
            frames.find(|frame| frame.first(0) == 0).expect("there is no end of frames")
        };
        let (mut one, mut other) = (first(ending), first(3));
        beside(vec![Box::new(move || end(&mut one)), Box::new(move || fail(&mut other))]);
        let mut held: Vec<Frame> = std::iter::from_fn(|| world.lane.take_of(2)).collect();
        held.retain(|frame| frame.first(0) == 0 && frame.is_open(0));
        assert!(held.is_empty(), "a call that nobody waits for runs");
        world.scheduler.cancel(&batch, "by the test");
        assert!(batch.is_done());
        world.close();
    });
}

fn fail(frame: &mut Frame) {
    frame.fail(0, failure(FailureKind::Error), RAN);
}

#[test]
fn the_next_member_of_a_cascade_beside_the_end_of_its_panel() {
    let cascade = nested(first_of(vec![member(1), member(2)]));
    a_superfluous_call_ends(both_of(vec![cascade, member(3)]), [None; 2], 1, fail);
}

#[test]
fn the_next_member_of_a_cascade_beside_the_end_of_an_inner_panel() {
    let cascade = nested(first_of(vec![member(1), member(2)]));
    let panel = nested(both_of(vec![cascade, member(3)]));
    a_superfluous_call_ends(first_of(vec![panel, member(4)]), [None; 2], 1, fail);
}

#[test]
fn an_answer_to_parse_beside_the_end_of_its_panel() {
    let panel = both_of(vec![member(1), member(3)]);
    a_superfluous_call_ends(panel, [Some(Parsing::By(2)), Some(Parsing::Of(1))], 1, |frame| {
        let mut report = Report::default();
        report.add(0, ANSWER, "7");
        frame.report(0, report);
        frame.complete(0, Cell::Abstained, RAN);
    });
}

#[test]
fn another_attempt_beside_the_end_of_its_panel() {
    a_superfluous_call_ends(both_of(vec![member(2), member(3)]), [None; 2], 2, |frame| {
        frame.fail(0, failure(FailureKind::Crashed), RAN); // the first crash is free
    });
}
