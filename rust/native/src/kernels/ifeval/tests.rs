//! Scores of lm-eval 0.4.13, recorded; and how instructions make a score.

use super::*;

fn score(kernel: &Ifeval, text: &str, ids: &str, arguments: &str) -> Result<Score, Fault> {
    let inputs = [Input::Text(text.into()), Input::Json(ids.into()), Input::Json(arguments.into())];
    kernel.score(&inputs, &|| false)
}

const STRICT: Ifeval = Ifeval { score: IfevalScore::All, loose: false, undecided: UndecidedRule::Abstain };

/// Returns whether a text follows one instruction.
fn of(text: &str, id: &str, arguments: &str) -> Option<f64> {
    score(&STRICT, text, &format!("[\"{id}\"]"), &format!("[{arguments}]")).unwrap()
}

#[test]
fn instructions_are_followed_or_not() {
    let table = [
        ("a Cat and a dog", "keywords:existence", r#"{"keywords": ["cat", "D.g"]}"#, Some(1.0)),
        ("a cat", "keywords:existence", r#"{"keywords": ["cat", "dog"]}"#, Some(0.0)),
        ("a cat", "keywords:existence", r#"{"keywords": ["c+"]}"#, None),
        ("concatenate", "keywords:forbidden_words", r#"{"forbidden_words": ["cat"]}"#, Some(1.0)),
        ("a CAT.", "keywords:forbidden_words", r#"{"forbidden_words": ["cat"]}"#, Some(0.0)),
        ("aaaa", "keywords:frequency", r#"{"keyword": "aa", "frequency": 2, "relation": "at least"}"#, Some(1.0)),
        ("aaaa", "keywords:frequency", r#"{"keyword": "aa", "frequency": 2, "relation": "less than"}"#, Some(0.0)),
        (
            "Ab a",
            "keywords:letter_frequency",
            r#"{"letter": "A", "let_frequency": 2, "let_relation": "at least"}"#,
            Some(1.0),
        ),
        (
            "Ab a",
            "keywords:letter_frequency",
            r##"{"letter": "#", "let_frequency": 2, "let_relation": "at least"}"##,
            None,
        ),
        ("it's two-fold", "length_constraints:number_words", r#"{"num_words": 5, "relation": "less than"}"#, Some(1.0)),
        ("a\n***\nb", "length_constraints:number_paragraphs", r#"{"num_paragraphs": 2}"#, Some(1.0)),
        ("a ****** b", "length_constraints:number_paragraphs", r#"{"num_paragraphs": 2}"#, Some(0.0)),
        (
            "x\n\n'Tis, so",
            "length_constraints:nth_paragraph_first_word",
            r#"{"num_paragraphs": 2, "nth_paragraph": 2, "first_word": "Tis"}"#,
            Some(1.0),
        ),
        ("[a] [b\n]", "detectable_content:number_placeholders", r#"{"num_placeholders": 1}"#, Some(1.0)),
        ("x p. p.s", "detectable_content:postscript", r#"{"postscript_marker": "P.P.S"}"#, Some(1.0)),
        ("* a\n- b\n** c", "detectable_format:number_bullet_lists", r#"{"num_bullets": 2}"#, Some(1.0)),
        ("So My answer is no.", "detectable_format:constrained_response", "{}", Some(1.0)),
        ("*a* **b** ** **", "detectable_format:number_highlighted_sections", r#"{"num_highlights": 2}"#, Some(1.0)),
        (
            "Section 1 x SECTION 2",
            "detectable_format:multiple_sections",
            r#"{"section_spliter": "Section", "num_sections": 1}"#,
            Some(1.0),
        ),
        ("```json\n{}```", "detectable_format:json_format", "{}", Some(1.0)),
        ("<<<x>>", "detectable_format:title", "{}", Some(1.0)),
        ("a******b", "combination:two_responses", "{}", Some(1.0)),
        ("a******a ", "combination:two_responses", "{}", Some(0.0)),
        (" DO it. Done", "combination:repeat_prompt", r#"{"prompt_to_repeat": "Do it. "}"#, Some(1.0)),
        ("\"The END\"", "startend:end_checker", r#"{"end_phrase": "the end"}"#, Some(1.0)),
        (" \"x\"", "startend:quotation", "{}", Some(1.0)),
        ("a，b", "punctuation:no_comma", "{}", Some(1.0)),
        ("Abc", "change_case:english_capital", "{}", Some(0.0)),
        ("ABC", "change_case:english_capital", "{}", Some(1.0)),
        ("abc", "change_case:english_lowercase", "{}", Some(1.0)),
        ("One. Two.", "length_constraints:number_sentences", r#"{"num_sentences": 1, "relation": "at least"}"#, None),
        (" ", "length_constraints:number_sentences", r#"{"num_sentences": 1, "relation": "at least"}"#, None),
    ];
    for (text, id, arguments, expected) in table {
        assert_eq!(of(text, id, arguments), expected, "{id} of {text:?}");
    }
}

#[test]
fn scores_of_several_instructions() {
    let ids = r#"["punctuation:no_comma", "startend:quotation", "language:response_language"]"#;
    let arguments = r#"[{}, null, {"language": "en"}]"#;
    let with = |score, undecided| Ifeval { score, loose: false, undecided };
    let (all, share) = (IfevalScore::All, IfevalScore::Share);
    let table = [
        (with(all, UndecidedRule::Abstain), "x", None),
        (with(all, UndecidedRule::Abstain), "\"x\"", None),
        (with(all, UndecidedRule::LeaveOut), "\"x\"", Some(1.0)),
        (with(share, UndecidedRule::Abstain), "x", None),
        (with(share, UndecidedRule::LeaveOut), "x", Some(0.5)),
    ];
    for (kernel, text, expected) in table {
        assert_eq!(score(&kernel, text, ids, arguments), Ok(expected), "{text}");
    }
    for (ids, arguments) in [("[\"a:b\"]", "[{}]"), ("[]", "[{}]"), ("1", "[]"), ("[]", "[1]")] {
        assert!(matches!(score(&STRICT, "x", ids, arguments), Err(Fault::Input(1 | 2, _))), "{ids} {arguments}");
    }
    assert_eq!(score(&STRICT, "x", "null", "null"), Ok(None));
}

#[test]
fn json_that_is_too_deep_is_followed_by_no_text() {
    assert_eq!(of(&"[".repeat(401), "detectable_format:json_format", "{}"), Some(0.0));
}

#[test]
fn loose_leaves_out_lines_and_asterisks() {
    let loose = Ifeval { loose: true, ..STRICT };
    let ids = r#"["startend:quotation"]"#;
    assert_eq!(score(&loose, "Here:\n\"*x*\"\nBye", ids, "[{}]"), Ok(Some(1.0)));
    assert_eq!(score(&loose, "*\"x\"*", ids, "[{}]"), Ok(Some(1.0)));
    assert_eq!(score(&STRICT, "*\"x\"*", ids, "[{}]"), Ok(Some(0.0)));
}

#[test]
fn a_search_for_long_keywords_stops_when_asked() {
    let long = format!("{}b", "a".repeat(1000));
    let (ids, text) = (r#"["keywords:existence"]"#, "a".repeat(20_000));
    let arguments = format!(r#"[{{"keywords": ["{long}"]}}]"#);
    let inputs = [Input::Text(text.into()), Input::Json(ids.into()), Input::Json(arguments.into())];
    let asked = std::sync::atomic::AtomicUsize::new(0);
    let stop = || asked.fetch_add(1, std::sync::atomic::Ordering::Relaxed) == 50;
    assert_eq!(STRICT.score(&inputs, &stop), Err(Fault::Stopped));
    assert_eq!(STRICT.score(&inputs, &|| false), Ok(Some(0.0)));
}
