//! Whether a text is JSON that a schema takes.
//!
//! - The code is that of PyPI's jsonschema-rs; nothing is fetched: a reference to another address
//!   makes it a wrong schema.
//! - A schema is compiled once, and kept with the last others.
//! - A schema that is wrong is a fault of the sample, never a 0 for the text.
//! - A check stops between two values, however many patterns and values there are.

use std::sync::Arc;

use jsonschema::Validator;
use quick_cache::sync::Cache;
use serde_json::Value;

use crate::fault::{Fault, Score, Stop};
use crate::input::{Input, InputForm};
use crate::kernel::Kernel;
use crate::matching::Part;
use crate::stoppable_json::{Reading, StoppableJson};

/// Schemas of a column that stay compiled.
const KEPT: usize = 256;

/// What a text has to be.
enum Schemas {
    /// The same for all.
    One(Arc<Validator<StoppableJson>>),
    /// One a sample, by its text.
    Column(Cache<String, Arc<Validator<StoppableJson>>>),
}

/// See the module.
pub struct JsonSchema {
    part: Part,
    formats: bool,
    schemas: Schemas,
}

impl JsonSchema {
    /// With a schema for all samples, as JSON, or with a column of them.
    pub fn new(part: Part, formats: bool, schema: Option<&str>) -> Result<Self, String> {
        let schemas = match schema {
            Some(schema) => Schemas::One(compiled(schema, formats)?),
            None => Schemas::Column(Cache::new(KEPT)),
        };
        Ok(Self { part, formats, schemas })
    }

    /// The schema of a sample; `None` where its column has none.
    fn schema(&self, inputs: &[Input<'_>]) -> Result<Option<Arc<Validator<StoppableJson>>>, Fault> {
        match &self.schemas {
            Schemas::One(schema) => Ok(Some(schema.clone())),
            Schemas::Column(known) => match Input::json(inputs, 1)? {
                "null" => Ok(None),
                schema => {
                    let make = || compiled(schema, self.formats).map_err(|why| Fault::input(1, why));
                    known.get_or_insert_with(schema, make).map(Some)
                }
            },
        }
    }
}

fn compiled(schema: &str, formats: bool) -> Result<Arc<Validator<StoppableJson>>, String> {
    let schema: Value = serde_json::from_str(schema).map_err(|error| format!("the schema is no JSON: {error}"))?;
    let options = jsonschema::options_for::<StoppableJson>().should_validate_formats(formats).offline();
    options.build(&schema).map(Arc::new).map_err(|error| format!("the schema is wrong: {error}"))
}

impl Kernel for JsonSchema {
    fn inputs(&self) -> Vec<InputForm> {
        match self.schemas {
            Schemas::One(_) => vec![InputForm::Text],
            Schemas::Column(_) => vec![InputForm::Text, InputForm::Json],
        }
    }

    fn score(&self, inputs: &[Input<'_>], stop: &dyn Stop) -> Result<Score, Fault> {
        let Some(schema) = self.schema(inputs)? else { return Ok(None) };
        let value = self.part.of(Input::text(inputs)?).and_then(|text| serde_json::from_str::<Value>(text).ok());
        stop.check()?;
        let reading = Reading::new(stop);
        let is_valid = value.is_some_and(|value| schema.is_valid(Reading::value(&reading, &value)));
        if reading.is_stopped() { Err(Fault::Stopped) } else { Ok(Some(f64::from(u8::from(is_valid)))) }
    }
}

#[cfg(test)]
mod tests {
    //! Schemas for all and by column, wrong ones, and those that lead back to themselves.

    use super::*;

    fn score(schema: &str, text: &str) -> Result<Score, Fault> {
        let kernel = JsonSchema::new(Part::default(), false, None).map_err(Fault::Invalid)?;
        let inputs = [Input::Text(text.into()), Input::Json(schema.into())];
        let first = kernel.score(&inputs, &|| false);
        assert_eq!(kernel.score(&inputs, &|| false), first, "the schema that was kept says the same");
        first
    }

    #[test]
    fn a_text_is_json_that_the_schema_takes() {
        let schema = r#"{"type": "object", "required": ["a"], "properties": {"a": {"type": "integer"}}}"#;
        let table = [
            (r#"{"a": 1}"#, 1.0),
            (r#" {"a": 1.0} "#, 1.0),
            (r#"{"a": "1"}"#, 0.0),
            (r#"{"a": "1", "a": 1}"#, 1.0),
            ("{}", 0.0),
            (r#"{"a": 1"#, 0.0),
            (r#"{"a": NaN}"#, 0.0),
            ("", 0.0),
        ];
        for (text, expected) in table {
            assert_eq!(score(schema, text), Ok(Some(expected)), "{text}");
        }
        assert_eq!(score("null", "{}"), Ok(None));
        assert_eq!((score("true", "1"), score("false", "1")), (Ok(Some(1.0)), Ok(Some(0.0))));
    }

    #[test]
    fn a_wrong_schema_is_no_fault_of_the_text() {
        for schema in ["{", "1", r#"{"type": "text"}"#, r#"{"$ref": "https://example.com/a.json"}"#] {
            assert!(matches!(score(schema, "{}"), Err(Fault::Input(1, _))), "{schema}");
            assert!(JsonSchema::new(Part::default(), false, Some(schema)).is_err(), "{schema}");
        }
    }

    #[test]
    fn a_schema_may_lead_back_to_itself() {
        let loops = [r##"{"$ref": "#"}"##, r##"{"allOf": [{"$ref": "#"}]}"##, r##"{"not": {"$ref": "#"}}"##];
        for schema in loops {
            assert!(score(schema, "1").is_ok(), "{schema}");
        }
        let deep = |depth: usize| format!("{}1{}", "[".repeat(depth), "]".repeat(depth));
        let tree = r##"{"anyOf": [{"type": "integer"}, {"items": {"$ref": "#"}, "type": "array"}]}"##;
        assert_eq!(score(tree, &deep(127)), Ok(Some(1.0)));
        assert_eq!(score(tree, &deep(128)), Ok(Some(0.0)), "nested deeper than this is no JSON here");
        let doubled =
            r##"{"anyOf": [{"items": {"$ref": "#"}, "type": "array"}, {"type": "array", "items": {"$ref": "#"}}]}"##;
        assert_eq!(score(doubled, &deep(100)), Ok(Some(0.0)));
    }

    #[test]
    fn items_are_unique_by_value() {
        let schema = r#"{"uniqueItems": true}"#;
        let items = |more: &str| format!("[{}{more}]", (0..30).map(|n| format!("{n}, ")).collect::<String>());
        for (more, expected) in [
            ("\"0\"", 1.0),
            ("0.0", 0.0),
            ("-0.0", 0.0),
            ("[], [[]], [[], []], {}", 1.0),
            ("[[1], 2], [1, [2]]", 1.0),
            ("{\"a\": 1, \"b\": 2}, {\"b\": 2.0, \"a\": 1}", 0.0),
            ("{\"a\": 1, \"b\": 2}, {\"a\": 2, \"b\": 1}", 1.0),
            ("9007199254740993, 9007199254740992", 1.0),
            ("null, false, \"\"", 1.0),
        ] {
            assert_eq!(score(schema, &items(more)), Ok(Some(expected)), "{more}");
        }
    }

    #[test]
    fn a_check_stops_between_two_values() {
        let table = [
            (r#"{"items": {"pattern": "(?=a)"}}"#.to_owned(), format!("[{}\"a\"]", "\"a\", ".repeat(200))),
            (
                r#"{"uniqueItems": true}"#.to_owned(),
                format!("[{}]", (0..200).map(|n| n.to_string()).collect::<Vec<_>>().join(",")),
            ),
            (r#"{"propertyNames": {"maxLength": 9}}"#.to_owned(), {
                let members: Vec<String> = (0..200).map(|n| format!("\"{n}\": 1")).collect();
                format!("{{{}}}", members.join(","))
            }),
        ];
        for (schema, text) in table {
            let kernel = JsonSchema::new(Part::default(), false, Some(&schema)).unwrap();
            let inputs = [Input::Text(text.into())];
            let asked = std::cell::Cell::new(0);
            let stop = || {
                asked.set(asked.get() + 1);
                asked.get() == 3
            };
            assert_eq!(kernel.score(&inputs, &stop), Err(Fault::Stopped), "{schema}");
            assert_eq!(asked.get(), 3, "{schema}");
        }
    }

    #[test]
    fn long_chains_of_references_are_followed() {
        let links: Vec<String> =
            (0..2_000).map(|link| format!(r##""d{link}": {{"$ref": "#/$defs/d{}"}}"##, link + 1)).collect();
        let schema =
            format!(r##"{{"$ref": "#/$defs/d0", "$defs": {{{}, "d2000": {{"type": "integer"}}}}}}"##, links.join(", "));
        assert_eq!((score(&schema, "1"), score(&schema, "\"1\"")), (Ok(Some(1.0)), Ok(Some(0.0))));
    }
}
