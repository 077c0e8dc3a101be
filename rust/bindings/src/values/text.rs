//! Addresses of Python strings' characters, for reading without the GIL.
//!
//! A string that was noted lives, unchanged and in its place, as long as the note: strings are
//! immutable, and the one operation that resizes one in place needs the sole reference to it, with
//! or without the GIL, while the note holds another.

use std::borrow::Cow;

use guerdon_wire::text::{RawText, TextKind};
use pyo3::prelude::*;
use pyo3::types::string::PyStringData;
use pyo3::types::{PyList, PyString};

use crate::gil;

/// Address of one string's characters. `Utf16` means two bytes a character here, surrogates or not.
pub struct Note {
    start: *const u8,
    bytes: usize,
    kind: TextKind,
}

/// A column of strings.
pub struct Texts {
    notes: Box<[Note]>,
    /// Keeps the strings alive. A copy that nobody else knows.
    _list: Py<PyList>,
}

#[expect(unsafe_code, reason = "a raw pointer is not Send by itself")]
// SAFETY: the pointers are only read, and their data does not change as long as `_list` lives.
unsafe impl Send for Texts {}
#[expect(unsafe_code, reason = "a raw pointer is not Sync by itself")]
// SAFETY: as above.
unsafe impl Sync for Texts {}

/// Returns whether the characters of an exact str, one byte each, are all ASCII, as the string
/// knows itself.
#[cfg(not(Py_3_14))]
fn is_ascii(text: &Bound<'_, PyString>, _units: &[u8]) -> bool {
    #[expect(unsafe_code, reason = "asks the string whether it is ASCII")]
    // SAFETY: `text` is an exact str, made ready where its data were looked up.
    let ascii = unsafe { pyo3::ffi::PyUnicode_IS_ASCII(text.as_ptr()) };
    ascii != 0
}

/// Decides the same by the distance of the characters from the object: the header of an ASCII
/// string is the shorter one. (From 3.14 on the string's flags can't be read from here.)
#[cfg(Py_3_14)]
fn is_ascii(text: &Bound<'_, PyString>, units: &[u8]) -> bool {
    units.as_ptr().addr() - text.as_ptr().addr() == size_of::<pyo3::ffi::PyASCIIObject>()
}

impl Note {
    /// Notes a string.
    pub fn of(text: &Bound<'_, PyString>) -> PyResult<Self> {
        #[expect(unsafe_code, reason = "looks at the string's own layout")]
        // SAFETY: the data's address is noted, and read only while the string is held.
        let data = unsafe { text.data()? };
        let (start, bytes, kind) = match data {
            PyStringData::Ucs1(units) => {
                let kind = if is_ascii(text, units) { TextKind::Ascii } else { TextKind::Latin1 };
                (units.as_ptr(), units.len(), kind)
            }
            PyStringData::Ucs2(units) => (units.as_ptr().cast(), units.len() * 2, TextKind::Utf16),
            PyStringData::Ucs4(units) => (units.as_ptr().cast(), units.len() * 4, TextKind::Utf32),
        };
        Ok(Self { start, bytes, kind })
    }

    /// Returns the string in its present form; whoever asks sees to it that it is still held.
    pub fn raw(&self) -> RawText<'_> {
        #[expect(unsafe_code, reason = "reads a string's characters without the GIL")]
        // SAFETY: the pointer and the length are those of a live string, which does not change.
        let bytes = unsafe { std::slice::from_raw_parts(self.start, self.bytes) };
        RawText { kind: self.kind, bytes }
    }
}

impl Texts {
    /// Notes the strings of a list that nobody else changes; `None` if a value is not a string.
    pub fn of(list: &Bound<'_, PyList>) -> PyResult<Option<Self>> {
        let mut notes = Vec::with_capacity(list.len());
        for (index, value) in list.iter().enumerate() {
            if index % gil::PIECE == gil::PIECE - 1 {
                gil::pass_on(list.py());
            }
            // A subclass may have state that its text does not show: it goes the way of other
            // objects.
            let Ok(text) = value.cast_exact::<PyString>() else { return Ok(None) };
            notes.push(Note::of(text)?);
        }
        Ok(Some(Self { notes: notes.into(), _list: list.clone().unbind() }))
    }

    /// Returns the number of texts.
    pub const fn len(&self) -> usize {
        self.notes.len()
    }

    /// Bytes of one text, 0 for a sample that is not there.
    pub fn bytes(&self, sample: usize) -> usize {
        self.notes.get(sample).map_or(0, |note| note.bytes)
    }

    /// Returns one text in its present form.
    pub fn raw(&self, sample: usize) -> RawText<'_> {
        self.notes[sample].raw()
    }

    /// One text, widened where a decoder of UTF-16 would take surrogates of its for pairs.
    pub fn on_the_wire(&self, sample: usize) -> (TextKind, Cow<'_, [u8]>) {
        let RawText { kind, bytes } = self.raw(sample);
        if kind == TextKind::Utf16 && bytes.as_chunks::<2>().0.iter().any(|unit| is_surrogate(*unit)) {
            let wide =
                bytes.as_chunks::<2>().0.iter().flat_map(|unit| u32::from(u16::from_ne_bytes(*unit)).to_le_bytes());
            return (TextKind::Utf32, Cow::Owned(wide.collect()));
        }
        (kind, Cow::Borrowed(bytes))
    }
}

const fn is_surrogate(unit: [u8; 2]) -> bool {
    matches!(u16::from_ne_bytes(unit), 0xD800..=0xDFFF)
}
