//! Every kernel that compares a text with references stops where it is asked to, between two steps.
#![expect(clippy::unwrap_used, reason = "a test can't go on without its kernel")]

use std::sync::atomic::{AtomicUsize, Ordering};

use guerdon_native::kernels::{Fault, Input, kernel};

/// Scores a text with a hundred references, and stops at each of the first questions in turn.
fn stops(spec: &str, text: &str) {
    let columns = ["completion", "answer"].map(str::to_owned).to_vec();
    let kernel = kernel(spec, columns).unwrap();
    let references = format!("[{}]", vec!["\"one two three\""; 100].join(","));
    let inputs = [Input::Text(text.into()), Input::Json(references.into())];
    for at in [0, 1, 7, 50] {
        let asked = AtomicUsize::new(0);
        let stop = || asked.fetch_add(1, Ordering::Relaxed) == at;
        assert_eq!(kernel.score(&inputs, &stop), Err(Fault::Stopped), "{spec} at question {at}");
        assert_eq!(asked.into_inner(), at + 1, "{spec}: it goes on after it was asked to stop");
    }
}

#[test]
fn matches_stop() {
    stops(r#"{"kernel": "exact_match", "tag": null}"#, "four");
    let ignored = r#""ignore_case": true, "ignore_punctuation": true, "ignore_numbers": true, "ignore_space": true"#;
    stops(&format!(r#"{{"kernel": "normalized_match", "tag": null, {ignored}}}"#), "four");
}

#[test]
fn squad_stops() {
    stops(r#"{"kernel": "squad_em", "tag": null}"#, "four");
    stops(r#"{"kernel": "squad_f1", "tag": null}"#, "one four");
}

#[test]
fn multiple_choice_stops() {
    stops(r#"{"kernel": "multiple_choice", "last": "D"}"#, "Answer: B");
}

#[test]
fn bleu_stops() {
    stops(r#"{"kernel": "bleu", "lowercase": false, "smooth": "exp"}"#, "one two");
}
