//! The arguments of an IFEval instruction.

use serde_json::{Map, Value};

use crate::kernels::fault::Fault;

/// Indexes of the kernel's inputs.
pub const IDS: usize = 1;
pub const ARGUMENTS: usize = 2;

/// The arguments of an instruction. Empty values, 0 and null count as missing, as in lm-eval.
pub struct Arguments<'a>(pub &'a Map<String, Value>);

impl<'a> Arguments<'a> {
    pub fn text(&self, name: &str) -> Option<&'a str> {
        self.0.get(name)?.as_str().filter(|text| !text.is_empty())
    }

    pub fn number(&self, name: &str) -> Option<f64> {
        self.0.get(name)?.as_f64().filter(|number| *number != 0.0)
    }

    pub fn texts(&self, name: &str) -> Option<Vec<&'a str>> {
        let texts: Option<Vec<&str>> = self.0.get(name)?.as_array()?.iter().map(Value::as_str).collect();
        texts.filter(|texts| !texts.is_empty())
    }

    /// Returns the required number, with its relation.
    pub fn bound(&self, number: &str, relation: &str) -> Result<Option<Bound>, Fault> {
        let relation = match self.0.get(relation) {
            None | Some(Value::Null) => return Ok(None),
            Some(Value::String(relation)) if relation.is_empty() => return Ok(None),
            Some(Value::String(relation)) if relation == "at least" => Relation::AtLeast,
            Some(Value::String(relation)) if relation == "less than" => Relation::LessThan,
            Some(other) => return Err(Fault::input(ARGUMENTS, format!("{relation} {other} is no relation of IFEval"))),
        };
        Ok(self.number(number).filter(|number| *number >= 0.0).map(|number| Bound { number, relation }))
    }
}

enum Relation {
    AtLeast,
    LessThan,
}

/// Required number.
pub struct Bound {
    number: f64,
    relation: Relation,
}

impl Bound {
    #[expect(clippy::cast_precision_loss, reason = "counts of words")]
    pub fn holds(&self, count: usize) -> bool {
        match self.relation {
            Relation::AtLeast => count as f64 >= self.number,
            Relation::LessThan => (count as f64) < self.number,
        }
    }
}
