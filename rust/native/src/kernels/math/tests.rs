//! Pairs that are decided, and pairs that aren't, by kind of answer. Math-verify's decisions on the
//! same pairs are checked from Python.

use proptest::prelude::*;

use super::{Decision, Question, decide};

fn reward(gold: &str, answer: &str) -> Decision {
    decide(Question::Reward, gold, answer, false)
}

fn equal(gold: &str, answer: &str) -> Decision {
    decide(Question::Equal, gold, answer, false)
}

#[test]
fn numbers_in_boxes_are_decided() {
    let pairs = [
        ("18", "\\boxed{18}"),
        ("$18$", "so $\\boxed{18}$."),
        ("1,234", "\\boxed{1234}"),
        ("1234.5", "\\[\\boxed{1,234.50}\\]"),
        ("#### 72", "\\boxed{72}, as was said, thus \\boxed{72}"),
        ("$\\frac{1}{2}$", "\\boxed{0.5}"),
        ("1/2", "\\boxed{\\dfrac{1}{2}}"),
        ("-3", "\\boxed{-3}"),
        ("50%", "\\boxed{50\\%}"),
        ("50%", "\\boxed{50}"),
        ("50%", "\\boxed{0.5}"),
        ("90", "\\boxed{90^\\circ}"),
        ("5", "\\boxed{5 \\text{ dollars}}"),
        ("5", "\\boxed{x=5}"),
        ("$x=5$", "\\boxed{5}"),
    ];
    for (gold, answer) in pairs {
        assert_eq!(reward(gold, answer), Decision::Equal, "{gold} {answer}");
        assert_eq!(reward(gold, "\\boxed{77}"), Decision::Different, "{gold}");
        assert_eq!(reward(gold, "nothing, then"), Decision::Different, "{gold}");
    }
}

#[test]
fn words_and_equal_latex_are_decided() {
    assert_eq!(reward("$B$", "\\boxed{\\text{(b)}}"), Decision::Equal);
    assert_eq!(reward("$B$", "\\boxed{C}"), Decision::Different);
    assert_eq!(reward("$\\text{Yes}$", "\\boxed{\\text{No}}"), Decision::Different);
    assert_eq!(reward("$2\\sqrt{3}$", "\\boxed{2\\sqrt{3}}"), Decision::Equal);
    assert_eq!(reward("$2\\sqrt{3}$", "\\boxed{\\sqrt{12}}"), Decision::Unknown);
}

#[test]
fn equal_latex_that_is_rewritten_is_left() {
    for latex in ["\\frac{1}{2} .", "x .5", "\\sqrt{2}+%\\ ", "2\\sqrt{3}\\ "] {
        assert_eq!(reward(&format!("${latex}$"), &format!("\\boxed{{{latex}}}")), Decision::Unknown, "{latex}");
    }
}

#[test]
fn texts_equal_but_for_a_percent_sign_are_left() {
    for (gold, answer) in [("18.0%", "18.0"), ("-0.09", "-0.09%"), ("4782526.4782526%", "4782526.4782526")] {
        assert_eq!(equal(gold, answer), Decision::Unknown, "{gold} {answer}");
        assert_eq!(decide(Question::Equal, gold, answer, true), Decision::Different, "{gold} {answer}");
    }
    assert_eq!(equal("18.0%", "18.5"), Decision::Different);
    assert_eq!(equal("18.0%", "0.180"), Decision::Equal);
}

#[test]
fn numbers_that_are_read_otherwise_are_left() {
    for latex in ["1,800\\%", "2,210 %", "00252 %", "-018\\%", "160.1  \\%", "+1,234"] {
        assert_eq!(reward("$5$", &format!("\\boxed{{{latex}}}")), Decision::Unknown, "{latex}");
    }
    for plain in ["-001", "x = -010", "18/012", "$\\boxed{or}$ of -05", "５ so $\\boxed{or}$"] {
        assert_eq!(equal(plain, "5"), Decision::Unknown, "{plain}");
        assert_eq!(equal("5", plain), Decision::Unknown, "{plain}");
    }
}

#[test]
fn a_unit_before_blanks_is_left() {
    for unit in ["\\text{ cm}", "\\mbox{ ft}", "\\mathrm{ kg}", "\\textbf{ cm}"] {
        assert_eq!(reward(&format!("$ 5{unit} $"), &format!("\\boxed{{5{unit}}}")), Decision::Unknown, "{unit}");
    }
    assert_eq!(reward("$ 5\\text{ cm}$", "\\boxed{5\\text{ cm} }"), Decision::Equal);
    assert_eq!(reward("$ 5 $", "\\boxed{ 5 }"), Decision::Equal);
}

#[test]
fn plain_numbers_are_decided_where_any_text_counts() {
    assert_eq!(equal("She makes $<<9*2=18>>18 a day.\n#### 18", "9 * 2 = $18 a day\nA: 18"), Decision::Equal);
    assert_eq!(equal("18", "it is 19."), Decision::Different);
    assert_eq!(equal("18", "none"), Decision::Different);
    assert_eq!(equal("none", "18"), Decision::Different);
    assert_eq!(reward("none", "\\boxed{18}"), Decision::NoGold);
}

#[test]
fn ambiguous_answers_are_left() {
    let golds = ["3 + 4", "1 234", "5 - x", "the answer is 5", "$5$ or $6$", "1,23", "1e5 %p", "7 percent", "**5**"];
    for gold in golds {
        assert_eq!(equal(gold, "5"), Decision::Unknown, "{gold}");
    }
    let answers = [
        "\\boxed{5} or \\boxed{6}",
        "$\\boxed{5}$ %",
        "\\boxed{5",
        "\\boxed 5",
        "the final answer is $5$. I hope it is correct",
        "Answer: $5$",
        "anſwer $5$",
        "\\boxed{5, 6}",
        "\\boxed{\\{5\\}}",
        "\\boxed{5!}",
        "\\boxed{i}",
        "\\boxed{\\frac{1}{0}}",
    ];
    for answer in answers {
        assert_eq!(reward("5", answer), Decision::Unknown, "{answer}");
    }
    assert_eq!(reward("$\\frac{1}{3}$", "\\boxed{0.333333}"), Decision::Unknown);
    assert_eq!(reward("$1/0$", "\\boxed{1/0}"), Decision::Unknown);
    assert_eq!(reward("$1/0 cm$", "\\boxed{1/0 cm}"), Decision::Unknown);
    assert_eq!(reward("$1,401^\\circ$", "\\boxed{1401}"), Decision::Unknown);
}

#[test]
fn strict_says_what_is_right() {
    let strict = |gold: &str, answer: &str| decide(Question::Reward, gold, answer, true);
    for (gold, answer) in [("9", "9\\%"), ("$\\frac{1}{3}$", "0.3333333"), ("$a$", "A")] {
        let answer = format!("\\boxed{{{answer}}}");
        assert_eq!(strict(gold, &answer), Decision::Different, "{gold} {answer}");
        assert_ne!(reward(gold, &answer), Decision::Different, "{gold} {answer}");
    }
    assert_eq!(strict("0.09", "\\boxed{9\\%}"), Decision::Equal);
    assert_eq!(strict("$\\text{yes}$", "\\boxed{\\text{Yes}}"), Decision::Equal);
}

proptest! {
    #[test]
    fn nothing_panics_and_integers_equal_themselves(text in "[-$\\\\{}()0-9a-z,./%=^ \\n]{0,40}", number in any::<i32>()) {
        for question in [Question::Equal, Question::Reward] {
            let _ = decide(question, &text, &format!("\\boxed{{{text}}}"), true);
            let _ = decide(question, &format!("${text}$"), &text, false);
        }
        prop_assert_eq!(reward(&number.to_string(), &format!("so \\boxed{{{number}}}")), Decision::Equal);
    }
}
