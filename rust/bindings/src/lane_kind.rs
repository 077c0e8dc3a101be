//! Lane of a function, and the form of its calls' values that follows from it.

use serde::de::Error;
use serde::{Deserialize, Deserializer};

/// Lane of a function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LaneKind {
    Thread,
    Asyncio,
    Http,
    Native,
    Compose,
    /// Last: an engine without such functions has no process lane.
    Process,
}

/// Lane of a function, and its name in Python: code rewards are functions of the process lane.
#[derive(Clone, Copy)]
pub struct LaneName {
    pub kind: LaneKind,
    pub word: &'static str,
}

impl<'de> Deserialize<'de> for LaneName {
    fn deserialize<D: Deserializer<'de>>(given: D) -> Result<Self, D::Error> {
        use LaneKind::{Asyncio, Compose, Http, Native, Process, Thread};
        let given = String::deserialize(given)?;
        let all = [Thread, Asyncio, Http, Native, Compose, Process].into_iter().map(|kind| (kind, kind.word()));
        let named = all.chain([(Process, "code")]).find(|(_, word)| *word == given);
        named.map(|(kind, word)| Self { kind, word }).ok_or_else(|| D::Error::custom(format!("unknown lane '{given}'")))
    }
}

impl LaneKind {
    /// The index of the lane in the engine.
    pub const fn index(self) -> usize {
        self as usize
    }

    /// Returns Python's name for it.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Thread => "thread",
            Self::Asyncio => "asyncio",
            Self::Http => "http",
            Self::Native => "native",
            Self::Compose => "compose",
            Self::Process => "process",
        }
    }

    /// Returns whether the values of its calls are taken as bytes, for no Python of this process.
    pub const fn takes_bytes(self) -> bool {
        matches!(self, Self::Http | Self::Native | Self::Compose | Self::Process)
    }
}
