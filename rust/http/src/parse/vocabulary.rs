//! The words of the verdict grammar, which are English.
//!
//! A verdict has words of these lists only, which is why negations, conditions and comparisons need
//! no list before a score. The judge's explanation follows it; the lists at the end say which of
//! those take the verdict back.

use super::text::{Sentence, Token};

/// Names of a score.
const LABELS: &[&str] =
    &["score", "rating", "grade", "mark", "verdict", "reward", "overall", "final", "judgment", "judgement"];
/// Names of a score before ":" and "=" only: "the total is 7" may count anything.
const COUNTS: &[&str] = &["result", "total"];
/// Verbs of the judge: "I'd give it", "I rate this".
const GIVING: &[&str] = &["give", "rate", "assign", "award", "say", "score", "giving"];
/// Verbs of the answer: "it deserves".
const EARNING: &[&str] = &["gets", "deserves", "earns", "receives", "merits", "scores"];
const JUDGE: &[&str] = &["i", "we", "i'd", "we'd", "i'll", "we'll"];
pub const BEING: &[&str] = &["is", "it's", "that's"];
pub const UNITS: &[&str] = &["point", "points", "pts", "star", "stars", "mark", "marks", "分", "点", "점"];
/// Words that begin a conclusion.
pub const CONCLUDING: &[&str] = &["so", "therefore", "thus", "hence", "accordingly", "consequently"];
/// Nouns that a choice's label can name: "Option A".
const NOUNS: &[&str] = &[
    "response",
    "answer",
    "solution",
    "completion",
    "submission",
    "essay",
    "text",
    "output",
    "option",
    "assistant",
    "model",
    "candidate",
    "choice",
];
/// Nouns that announce a label: "the winner is".
const ANNOUNCING: &[&str] = &[
    "winner",
    "label",
    "decision",
    "category",
    "class",
    "preference",
    "conclusion",
    "better",
    "best",
    "vote",
    "evaluation",
    "assessment",
];
/// Verbs of the judge with a label: "I choose A".
const CHOOSING: &[&str] = &["choose", "pick", "select", "prefer", "go"];
const FILLER: &[&str] = &[
    "my", "our", "the", "this", "that", "it", "a", "an", "of", "for", "would", "will", "solid", "here", "here's",
    "assigned", "awarded", "given", "in", "opinion", "view", "summary", "based", "on", "analysis", "criteria",
    "rubric", "with", "scale", "from", "as", "are",
];

pub const NUMBERS: &[&str] = &["zero", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten"];
pub const NEGATIONS: &[&str] = &[
    "not", "no", "never", "neither", "nor", "nothing", "none", "cannot", "hardly", "barely", "without", "nobody",
    "unlikely",
];
pub const CONDITIONS: &[&str] = &[
    "if",
    "unless",
    "could",
    "should",
    "would",
    "might",
    "may",
    "when",
    "provided",
    "assuming",
    "otherwise",
    "except",
    "until",
    "depends",
    "depending",
    "only",
];
pub const CONCESSIONS: &[&str] = &["but", "although", "though", "however", "despite", "yet"];
pub const BOUNDS: &[&str] = &[
    "most",
    "least",
    "max",
    "maximum",
    "min",
    "minimum",
    "roughly",
    "approximately",
    "nearly",
    "almost",
    "maybe",
    "perhaps",
    "probably",
    "or",
    "up",
    "capped",
    "higher",
    "lower",
];
const RETRACTIONS: &[&str] = &[
    "wait",
    "actually",
    "correction",
    "edit",
    "rather",
    "sorry",
    "ignore",
    "disregard",
    "oops",
    "scratch",
    "reconsider",
    "reconsidering",
    "reconsidered",
    "reflection",
    "retract",
    "mistaken",
];
/// Words with which a sentence turns the one before it around.
const TURNING: &[&str] = &["not", "no", "if", "only", "yes"];

/// Returns whether a word may occur in a verdict.
pub fn is_known(word: &str) -> bool {
    let lists = [FILLER, LABELS, COUNTS, GIVING, EARNING, JUDGE, BEING, CONCLUDING, NOUNS];
    lists.iter().any(|list| list.contains(&word))
}

/// Returns whether a word may precede a label that was chosen.
pub fn may_announce(word: &str) -> bool {
    is_known(word) || ANNOUNCING.contains(&word) || CHOOSING.contains(&word)
}

/// Returns whether a word is what a choice's label is the name of.
pub fn is_noun(word: &str) -> bool {
    NOUNS.contains(&word)
}

/// Returns whether a word before a label says that it is the verdict, without "is" or a colon.
pub fn chooses(word: &str) -> bool {
    CHOOSING.contains(&word) || NOUNS.contains(&word) || LABELS.contains(&word) || ANNOUNCING.contains(&word)
}

/// Returns whether tokens are words of a verdict, in a sense that a verdict has, and marks that
/// join them.
pub fn are_plain(tokens: &[Token], known: impl Fn(&str) -> bool) -> bool {
    tokens.iter().enumerate().all(|(at, token)| match token {
        Token::Word(word, written) => {
            let subject = || at.checked_sub(1).and_then(|before| tokens[before].word());
            // "Response A" names something; "would" and "will" are conditions unless the judge is
            // the word before ("I would give").
            let article = word != "a" || written == "a" || at == 0;
            let judged =
                !matches!(word.as_str(), "would" | "will") || subject().is_some_and(|word| JUDGE.contains(&word));
            known(word) && article && judged
        }
        Token::Mark(mark) => matches!(mark, ':' | '=' | '→' | '—' | '"' | '\'' | '“' | '”' | '(' | ')' | '⟦' | ','),
        Token::Number(_) | Token::Odd(_) => false,
    })
}

/// Returns whether words name a score or say that one is given.
pub fn names_a_score(tokens: &[Token]) -> bool {
    let judge = tokens.iter().filter_map(Token::word).any(|word| JUDGE.contains(&word));
    tokens.iter().enumerate().any(|(at, token)| {
        let named = || tokens.get(at + 1).is_some_and(|next| next.is_mark(&[':', '=']));
        token.word().is_some_and(|word| {
            LABELS.contains(&word)
                || EARNING.contains(&word)
                || word == "giving"
                || (GIVING.contains(&word) && judge)
                || (COUNTS.contains(&word) && named())
        })
    })
}

/// Returns whether one of these words is there; negations in their short form, too.
pub fn has_any(tokens: &[Token], lists: &[&[&str]]) -> bool {
    tokens.iter().filter_map(Token::word).any(|word| {
        let negates = word.ends_with("n't") && lists.contains(&NEGATIONS);
        negates || lists.iter().any(|list| list.contains(&word))
    })
}

/// Returns whether a part of a sentence takes back the part before it.
pub fn retracts(tokens: &[Token]) -> bool {
    let second_thought = |pair: &[Token]| {
        (pair[0].is("second") && pair[1].word().is_some_and(|word| word.starts_with("thought")))
            || (pair[0].is("my") && pair[1].is("mind"))
    };
    has_any(tokens, &[RETRACTIONS]) || tokens.windows(2).any(second_thought)
}

/// Returns whether a sentence behind a verdict may take it back.
pub fn takes_back(sentence: &Sentence) -> bool {
    let opening = sentence.tokens.iter().find_map(Token::word);
    retracts(&sentence.tokens) || opening.is_some_and(|word| TURNING.contains(&word))
}
