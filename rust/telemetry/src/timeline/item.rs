//! Items of a timeline: beginnings and ends of slices, instants and values of counters.

use std::sync::Arc;

/// The most bytes of a name or of a text: more is of no use on a screen.
const LONGEST_TEXT: usize = 256;

/// A track, by its place in `Tracks`.
pub(crate) type TrackId = usize;

/// Value of a slice's detail.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Value {
    Number(u64),
    Real(f64),
    Text(Arc<str>),
}

/// A slice's or an instant's name and its details.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Details {
    pub name: Arc<str>,
    /// Items of one flow are joined by arrows, in the order of their times.
    pub flows: Vec<u64>,
    pub values: Vec<(&'static str, Value)>,
}

impl Details {
    pub(crate) fn named(name: &Arc<str>) -> Self {
        Self { name: name.clone(), ..Self::default() }
    }

    pub(crate) fn number(mut self, key: &'static str, value: u64) -> Self {
        self.values.push((key, Value::Number(value)));
        self
    }

    pub(crate) fn real(mut self, key: &'static str, value: f64) -> Self {
        self.values.push((key, Value::Real(value)));
        self
    }

    pub(crate) fn text(mut self, key: &'static str, value: &str) -> Self {
        self.values.push((key, Value::Text(shortened(value).into())));
        self
    }

    pub(crate) fn flow(mut self, flow: u64) -> Self {
        self.flows.push(flow);
        self
    }

    fn bytes(&self) -> usize {
        let texts: usize =
            self.values.iter().map(|(_, value)| if let Value::Text(text) = value { text.len() } else { 0 }).sum();
        24 + self.name.len() + texts + 16 * self.values.len() + 10 * self.flows.len()
    }
}

/// Kind of an item.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum ItemKind {
    Begin(Box<Details>),
    End,
    Instant(Box<Details>),
    Counter(u64),
}

/// Something on a track.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Item {
    pub at_ns: u64,
    /// Number of slices of the track around it.
    pub depth: u8,
    pub track: TrackId,
    pub kind: ItemKind,
}

impl Item {
    /// Sorted by it, slices nest: at one time ends come first, inner before outer, then beginnings,
    /// outer before inner.
    pub(crate) fn order(&self) -> (u64, u8, u8) {
        match self.kind {
            ItemKind::End => (self.at_ns, 0, u8::MAX - self.depth),
            ItemKind::Begin(_) => (self.at_ns, 1, self.depth),
            ItemKind::Instant(_) => (self.at_ns, 2, 0),
            ItemKind::Counter(_) => (self.at_ns, 3, 0),
        }
    }

    /// About how many bytes it takes in a file.
    pub(crate) fn bytes(&self) -> usize {
        match &self.kind {
            ItemKind::Begin(details) | ItemKind::Instant(details) => 32 + details.bytes(),
            ItemKind::End | ItemKind::Counter(_) => 32,
        }
    }
}

/// The beginning of a text, in whole characters.
pub(crate) fn shortened(text: &str) -> &str {
    &text[..text.floor_char_boundary(LONGEST_TEXT)]
}
