//! Lane of a function, and the form of its calls' values that follows from it.

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

impl LaneKind {
    /// Returns the lane with this name in Python, and the name: code rewards are functions of the
    /// process lane.
    pub fn of(word: &str) -> Option<(Self, &'static str)> {
        let all = [Self::Thread, Self::Asyncio, Self::Http, Self::Native, Self::Compose, Self::Process];
        let named = all.into_iter().map(|lane| (lane, lane.word())).chain([(Self::Process, "code")]);
        named.into_iter().find(|(_, name)| *name == word)
    }

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
