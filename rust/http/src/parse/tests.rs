//! Properties of every parser on every answer.

use std::collections::BTreeMap;

use guerdon_core::outcome::Cell;
use proptest::prelude::*;

use super::{AnswerText, Choice, Criterion, Layout, Method, Pattern, Range, Rubric, ScoreParser, Which};
use crate::json_path::JsonPath;

fn methods() -> Vec<Method> {
    let pattern = |text: &str, words| Method::Pattern(Pattern::new(text, words).unwrap());
    let words = BTreeMap::from([("good".to_owned(), 1.0), ("bad".to_owned(), 0.0)]);
    let labels = [("A", 1.0), ("B", 0.5), ("tie", 0.0)].map(|(label, value)| (label.to_owned(), value));
    let criteria = || ["s", "t"].map(|name| Criterion { name: name.to_owned(), weight: 1.0 }).to_vec();
    vec![
        Method::Number,
        Method::Tag("s".to_owned()),
        pattern(r"(?i)score:?\s*(\d+)", BTreeMap::new()),
        pattern(r"\b(good|bad)\b", words),
        pattern(r"(\d+)(?:\.\d+)?(?: of 10)?$", BTreeMap::new()),
        Method::Json(JsonPath::parse("s").unwrap()),
        Method::YesNo,
        Method::Choice(Choice::new(labels.to_vec())),
        Method::Rubric(Rubric { criteria: criteria(), layout: Layout::Json }),
        Method::Rubric(Rubric { criteria: criteria(), layout: Layout::Tags }),
    ]
}

fn parsers() -> impl Iterator<Item = ScoreParser> {
    let ranges = [None, Some(Range { low: 0.0, high: 10.0 })];
    let whiches = [Which::Only, Which::First, Which::Last];
    methods().into_iter().flat_map(move |method| {
        whiches.into_iter().flat_map(move |which| {
            let method = method.clone();
            ranges.into_iter().flat_map(move |range| {
                [false, true].map(|keep_reasoning| ScoreParser { method: method.clone(), which, range, keep_reasoning })
            })
        })
    })
}

/// Pieces that answers are made of, so that their joints are met more often than by chance; bars
/// separate them.
const PIECES: &str = "1¦7¦8¦10¦0¦100¦.5¦8/10¦9 / 10¦7-8¦3,5¦1,000¦1 000¦2nd¦GPT-4¦72B¦v1.2¦85%¦2024-05-01¦1.¦2.¦\
    1)¦12:30¦½¦８¦٧¦分¦第¦点満点¦out of 10¦ of ¦ of 5¦to 9¦or¦and¦between ¦about ¦scale of 0 to 10¦\
    Step ¦Score: ¦score:¦ points¦minus ¦-¦−¦+¦/¦%¦*¦**¦_¦`¦(¦)¦[[¦]]¦{¦}¦\\boxed{¦\\frac{1}{2}¦\
    $¦<¦>¦~¦^¦,¦.¦...¦:¦!¦?¦\"¦'¦<s>¦</s>¦<t>¦</t>¦<s a=\"1\">¦{\"s\": 1}¦{\"s\": \"8/10\"}¦\
    {\"s\":¦{\"t\": 2, \"s\": 3}¦{\"s\": 1, \"s\": 2}¦null¦}¦[¦]¦```json\n¦```¦<think>¦</think>¦\
    \n</think>\n¦yes¦No¦no¦yes/no¦not ¦isn't ¦errors¦A¦B¦tie¦Judgment: ¦the answer is ¦good¦bad¦ is better¦\
    \n¦\n\n¦ ¦  ¦\t¦- ¦| ¦a¦é¦中¦\u{200b}¦\u{301}¦\u{fe0f}¦#¦e5¦E";

/// Pieces of sentences that give a score.
const SENTENCE_PIECES: &str = "Score: ¦score ¦My ¦rating ¦is ¦I'd ¦I ¦would ¦give ¦rate ¦it ¦this ¦a ¦So ¦Overall, ¦\
    the response ¦deserves ¦7 ¦8/10 ¦9 out of 10 ¦10 ¦points ¦(0-10) ¦on a scale of 0 to 10 ¦, ¦\
    - ¦(clear) ¦because it is clear ¦but short ¦— good ¦**¦\"";

/// Pieces of answers that are a yes or a no.
const YES_NO_PIECES: &str = "yes ¦no ¦yes ¦no ¦. ¦, ¦: ¦\n¦Answer: ¦The answer is ¦so ¦therefore ¦and ¦or ¦/ ¦if ¦not ¦\
    wait ¦it holds ¦errors ¦but ¦? ¦**¦- ¦7 ¦the verdict is ";

fn piece(of: &'static str) -> impl Strategy<Value = &'static str> {
    prop::sample::select(of.split('¦').collect::<Vec<_>>())
}

fn answers() -> impl Strategy<Value = String> {
    let pieces = prop::collection::vec(piece(PIECES), 0..12).prop_map(|pieces| pieces.concat());
    prop_oneof![8 => pieces, 1 => "\\PC{0,40}", 1 => "[ -~\\n]{0,40}"]
}

fn read(parser: &ScoreParser, text: &str, reasoning: Option<&str>, cut: bool) -> Option<Cell> {
    parser.read_answer(AnswerText { text, reasoning, cut }).ok()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]

    /// A score of a prefix, cut or decided early, is the score of the whole answer, too.
    #[test]
    fn a_cut_answer_reads_like_the_whole_one_or_not_at_all(text in answers(), apart in any::<bool>()) {
        let reasoning = apart.then_some("7 or 8?");
        for parser in parsers() {
            let whole = read(&parser, &text, reasoning, false);
            for end in (0..=text.len()).filter(|end| text.is_char_boundary(*end)) {
                let prefix = &text[..end];
                let cut = read(&parser, prefix, reasoning, true);
                if cut.is_some() {
                    prop_assert_eq!(&cut, &whole, "{:?} of {:?} by {:?}", prefix, text, parser);
                }
                let decided = parser.decided(AnswerText { text: prefix, reasoning, cut: false });
                prop_assert_eq!(decided, cut, "{:?} by {:?}", prefix, parser);
            }
        }
    }

    /// A number that was read is a token of the answer, with no letter or digit beside it.
    #[test]
    fn a_number_is_never_part_of_a_token(text in answers()) {
        for parser in parsers().filter(|parser| matches!(parser.method, Method::Number)) {
            let Some(Cell::Value(value)) = read(&parser, &text, None, false) else { continue };
            let plain = super::digits::with_ascii_digits(&text).replace("..", " ");
            let stands = plain
                .split(|letter: char| !(super::text::is_word(letter) || letter == '.'))
                .map(|token| token.trim_end_matches('.'))
                .any(|token| token.parse::<f64>().is_ok_and(|number| number == value.abs()));
            prop_assert!(stands, "{} of {:?}", value, text);
            if let Some(range) = parser.range {
                prop_assert!(range.holds(value));
            }
        }
    }

    /// A negation anywhere in a sentence that gives a score leaves none.
    #[test]
    fn a_negated_sentence_gives_no_score(pieces in prop::collection::vec(piece(SENTENCE_PIECES), 1..8)) {
        let parser = ScoreParser { range: Some(Range { low: 0.0, high: 10.0 }), ..Method::Number.into() };
        let sentence = pieces.concat();
        if read(&parser, &sentence, None, false).is_some() {
            for negation in ["not", "never", "no", "hardly", "isn't", "None of"] {
                let ends = sentence.match_indices(' ').map(|(at, _)| at).chain([0, sentence.len()]);
                for at in ends {
                    let negated = format!("{} {negation} {}", &sentence[..at], &sentence[at..]);
                    prop_assert_eq!(read(&parser, &negated, None, false), None, "{}", negated);
                }
            }
        }
    }

    /// A text that is clear with "yes" is as clear with "no".
    #[test]
    fn yes_and_no_are_read_alike(pieces in prop::collection::vec(piece(YES_NO_PIECES), 1..8)) {
        let text = pieces.concat();
        let swapped = text.replace("yes", "§").replace("no ", "yes ").replace('§', "no");
        let parser = ScoreParser::from(Method::YesNo);
        let flipped = read(&parser, &text, None, false).map(|cell| match cell {
            Cell::Value(value) => Cell::Value(1.0 - value),
            other => other,
        });
        prop_assert_eq!(read(&parser, &swapped, None, false), flipped, "{:?} and {:?}", text, swapped);
    }

    /// All choices give the same for one score, and for several that agree.
    #[test]
    fn clear_scores_are_first_and_last(text in answers()) {
        for only in parsers().filter(|parser| parser.which == Which::Only) {
            let Some(found) = read(&only, &text, None, false) else { continue };
            for which in [Which::First, Which::Last] {
                let parser = ScoreParser { which, ..only.clone() };
                prop_assert_eq!(read(&parser, &text, None, false), Some(found.clone()), "{:?} by {:?}", text, parser);
            }
        }
    }
}

/// Long answers of a hostile judge are read in time that grows with their length.
#[test]
fn no_answer_takes_quadratic_time() {
    let hostile = "{¦{\"¦{\"a\":¦{\"a\":{},¦{\"s\":[¦}¦<s>¦</s>¦<s ¦<think>¦</think>¦1. a\n¦8 ¦8/¦1,¦-¦9 of ¦yes ¦no-¦A ¦A¦not ¦[¦`¦*¦中¦8（¦<¦out of ";
    let start = std::time::Instant::now();
    for piece in hostile.split('¦') {
        let text = piece.repeat(20_000 / piece.len());
        for parser in parsers().filter(|parser| parser.range.is_none() && parser.which == Which::Last) {
            let _ = parser.read(&text, false);
        }
    }
    // Quadratic time would be hours.
    assert!(start.elapsed() < std::time::Duration::from_secs(120), "{:?}", start.elapsed());
}
