//! JSON values as the code of schemas reads them, until it is to stop.
//!
//! - Once it is asked to stop, what is read looks empty, so that a check ends soon; what it says
//!   then counts for nothing.
//! - Values are those of serde_json, and equal where they are there.

use std::borrow::Cow;
use std::cell::Cell;
use std::collections::HashSet;
use std::hash::{Hash, Hasher};
use std::sync::LazyLock;

use ahash::RandomState;
use jsonschema::JsonType;
use jsonschema::json::{Array, Json, Node, NodeIdentity, Object, SerdeJson, cmp, unique};
use serde_json::{Map, Number, Value};

use crate::fault::Stop;

/// Values that are read between two questions: each may be matched with a pattern for a million
/// steps.
const UNTIL_ASKED: u32 = 16;

/// Arrays up to this length are compared pair by pair, as by jsonschema itself.
const FEW: usize = 15;

/// Whether to stop, for one check.
pub struct Reading<'a> {
    stop: &'a dyn Stop,
    reads: Cell<u32>,
    is_stopped: Cell<bool>,
}

impl<'a> Reading<'a> {
    pub fn new(stop: &'a dyn Stop) -> Self {
        Self { stop, reads: Cell::new(0), is_stopped: Cell::new(false) }
    }

    pub const fn value(&'a self, value: &'a Value) -> StoppableValue<'a> {
        StoppableValue { value, reading: Some(self) }
    }

    /// Whether the check was cut short.
    pub const fn is_stopped(&self) -> bool {
        self.is_stopped.get()
    }

    fn goes_on(&self) -> bool {
        let reads = self.reads.get().wrapping_add(1);
        self.reads.set(reads);
        if reads.is_multiple_of(UNTIL_ASKED) && !self.is_stopped.get() {
            self.is_stopped.set(self.stop.is_asked());
        }
        !self.is_stopped.get()
    }
}

fn goes_on(reading: Option<&Reading<'_>>) -> bool {
    reading.is_none_or(Reading::goes_on)
}

/// The representation, for jsonschema.
pub struct StoppableJson;

/// A value, and whether to stop; the name of a property has no such thing.
#[derive(Clone, Copy)]
pub struct StoppableValue<'a> {
    value: &'a Value,
    reading: Option<&'a Reading<'a>>,
}

impl Json for StoppableJson {
    type Node<'a> = StoppableValue<'a>;
    type PreparedKey = String;
    type StringBuffer = Value;

    const KEYS_PER_LOOKUP: usize = SerdeJson::KEYS_PER_LOOKUP;

    fn prepare_key(key: &str) -> String {
        key.to_owned()
    }

    fn with_string_node<T>(buffer: &mut Value, string: &str, f: impl FnOnce(StoppableValue<'_>) -> T) -> T {
        SerdeJson::with_string_node(buffer, string, |value| f(StoppableValue { value, reading: None }))
    }
}

impl<'a> Node<'a, StoppableJson> for StoppableValue<'a> {
    type Object = StoppableObject<'a>;
    type Array = StoppableArray<'a>;
    type Number = &'a Number;

    fn as_object(&self) -> Option<StoppableObject<'a>> {
        let members = self.value.as_object().filter(|_| goes_on(self.reading))?;
        Some(StoppableObject { members, reading: self.reading })
    }

    fn as_array(&self) -> Option<StoppableArray<'a>> {
        let items = self.value.as_array().filter(|_| goes_on(self.reading))?;
        Some(StoppableArray { items, reading: self.reading })
    }

    fn as_string(&self) -> Option<Cow<'a, str>> {
        self.value.as_str().filter(|_| goes_on(self.reading)).map(Cow::Borrowed)
    }

    fn as_number(&self) -> Option<&'a Number> {
        self.value.as_number()
    }

    fn as_boolean(&self) -> Option<bool> {
        self.value.as_bool()
    }

    fn is_null(&self) -> bool {
        self.value.is_null()
    }

    fn json_type(&self) -> JsonType {
        Node::<SerdeJson>::json_type(&self.value)
    }

    fn string_length(&self) -> Option<u64> {
        Node::<SerdeJson>::string_length(&self.value)
    }

    fn equals_value(&self, expected: &Value) -> bool {
        cmp::equal(self.value, expected)
    }

    fn to_value(&self) -> Cow<'a, Value> {
        Cow::Borrowed(self.value)
    }

    fn identity(&self) -> Option<NodeIdentity> {
        Node::<SerdeJson>::identity(&self.value)
    }
}

pub struct StoppableObject<'a> {
    members: &'a Map<String, Value>,
    reading: Option<&'a Reading<'a>>,
}

impl<'a> Object<'a, StoppableJson> for StoppableObject<'a> {
    type Node = StoppableValue<'a>;
    type MemberName = &'a str;
    type MembersIter = Members<'a>;

    fn len(&self) -> usize {
        self.members.len()
    }

    fn get(&self, key: &String) -> Option<StoppableValue<'a>> {
        self.members.get(key).map(|value| StoppableValue { value, reading: self.reading })
    }

    fn members(&self) -> Members<'a> {
        Members { members: self.members.iter(), reading: self.reading }
    }
}

pub struct Members<'a> {
    members: serde_json::map::Iter<'a>,
    reading: Option<&'a Reading<'a>>,
}

impl<'a> Iterator for Members<'a> {
    type Item = (&'a str, StoppableValue<'a>);

    fn next(&mut self) -> Option<Self::Item> {
        let (name, value) = self.members.next().filter(|_| goes_on(self.reading))?;
        Some((name, StoppableValue { value, reading: self.reading }))
    }
}

pub struct StoppableArray<'a> {
    items: &'a [Value],
    reading: Option<&'a Reading<'a>>,
}

impl<'a> Array<'a, StoppableJson> for StoppableArray<'a> {
    type Node = StoppableValue<'a>;
    type ElementsIter = Elements<'a>;

    fn len(&self) -> usize {
        self.items.len()
    }

    fn elements(&self) -> Elements<'a> {
        Elements { items: self.items.iter(), reading: self.reading }
    }

    fn is_unique(&self) -> bool {
        if self.items.len() <= FEW {
            return unique::is_unique(self.items);
        }
        let mut seen = HashSet::with_capacity_and_hasher(self.items.len(), RandomState::new());
        self.items.iter().all(|item| !goes_on(self.reading) || seen.insert(ByValue(item)))
    }
}

/// As many as the array has: nobody expects fewer.
pub struct Elements<'a> {
    items: std::slice::Iter<'a, Value>,
    reading: Option<&'a Reading<'a>>,
}

impl<'a> Iterator for Elements<'a> {
    type Item = StoppableValue<'a>;

    fn next(&mut self) -> Option<Self::Item> {
        self.items.next().map(|value| StoppableValue { value, reading: self.reading })
    }
}

/// Of hashes of members: the same for all.
static KEYS: LazyLock<RandomState> = LazyLock::new(RandomState::new);

/// Equal as JSON is. jsonschema's own hashes leave out where arrays begin and end, so that a text
/// can make them collide.
struct ByValue<'a>(&'a Value);

impl PartialEq for ByValue<'_> {
    fn eq(&self, other: &Self) -> bool {
        cmp::equal(self.0, other.0)
    }
}

impl Eq for ByValue<'_> {}

impl Hash for ByValue<'_> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        std::mem::discriminant(self.0).hash(state);
        match self.0 {
            Value::Null => {}
            Value::Bool(value) => value.hash(state),
            // 0.0 and -0.0 are equal; equal numbers have the same nearest float.
            Value::Number(number) => (number.as_f64().unwrap_or_default() + 0.0).to_bits().hash(state),
            Value::String(text) => text.hash(state),
            Value::Array(items) => {
                items.len().hash(state);
                items.iter().for_each(|item| ByValue(item).hash(state));
            }
            Value::Object(members) => {
                // The order of members makes no difference.
                let each = members.iter().map(|(name, value)| KEYS.hash_one((name, ByValue(value))));
                each.fold(0_u64, u64::wrapping_add).hash(state);
            }
        }
    }
}
