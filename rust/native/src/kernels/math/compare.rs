//! Compares two answers, the gold one first.

use crate::kernels::math::number::{Form, Number};
use crate::kernels::math::value::{Decision, Value};

/// Floats are compared after rounding to six places: numbers nearer than this can't be decided.
const NEAR: i128 = 500_000;

/// Compares two answers. If `strict` is set, 9 % is not 9, decimals are compared exactly, and
/// letters by case.
pub fn compare(gold: &Value<'_>, answer: &Value<'_>, strict: bool) -> Decision {
    match (gold, answer) {
        // An equation on one side means the part after its sign.
        (Value::Number(gold), Value::Number(answer) | Value::Assignment(_, answer))
        | (Value::Assignment(_, gold), Value::Number(answer)) => numbers(gold, answer, strict),
        (Value::Assignment(name, gold), Value::Assignment(other, answer))
            if name == other && gold == answer && !gold.rough =>
        {
            Decision::Equal
        }
        (Value::Word(gold), Value::Word(answer)) => {
            let is_letter = strict && gold.len() == 1;
            decision(if is_letter { gold == answer } else { gold.eq_ignore_ascii_case(answer) })
        }
        (Value::Number(_), Value::Word(_)) | (Value::Word(_), Value::Number(_)) => Decision::Different,
        (Value::Latex(gold), Value::Latex(answer)) if gold == answer => Decision::Equal,
        _ => Decision::Unknown,
    }
}

fn decision(is_equal: bool) -> Decision {
    if is_equal { Decision::Equal } else { Decision::Different }
}

fn numbers(gold: &Number, answer: &Number, strict: bool) -> Decision {
    compared(gold, answer, strict).unwrap_or(Decision::Unknown)
}

/// Compares two numbers; `None` if a float is too near, or the numbers are too long.
fn compared(gold: &Number, answer: &Number, strict: bool) -> Option<Decision> {
    let both = |form: Form| gold.form == form && answer.form == form;
    if both(Form::Integer) && gold.numerator == answer.numerator {
        // math-verify takes 9 % and 9 as equal, and 900 % and 9 too; a sign makes it depend on the
        // parser.
        let is_certain = gold.percent == answer.percent || (gold.numerator >= 0 && !strict);
        if is_certain || gold.numerator == 0 {
            return Some(Decision::Equal);
        }
        if !strict {
            return None;
        }
    }
    let below = |number: &Number| number.denominator.checked_mul(if number.percent { 100 } else { 1 });
    let (gold_below, answer_below) = (below(gold)?, below(answer)?);
    let difference =
        gold.numerator.checked_mul(answer_below)?.checked_sub(answer.numerator.checked_mul(gold_below)?)?;
    let is_rough = gold.rough || answer.rough;
    // math-verify compares equal digits as text, which is equal without the percent sign.
    let is_same_text = gold.form == answer.form
        && gold.percent != answer.percent
        && gold.numerator.checked_mul(answer.denominator)? == answer.numerator.checked_mul(gold.denominator)?;
    if is_same_text && !strict {
        return None;
    }
    if difference == 0 {
        return (!is_rough).then_some(Decision::Equal);
    }
    let is_float = gold.form == Form::Decimal || answer.form == Form::Decimal;
    let is_near = difference.abs().checked_mul(NEAR)? <= gold_below.checked_mul(answer_below)?;
    if is_float && is_near && (is_rough || !strict) { None } else { Some(Decision::Different) }
}
