//! Ways in which a worker's calls, or the trust in it, are lost.

use guerdon_core::loss_ledger::LossProgress;

/// A message that our workers never send.
#[derive(Debug)]
pub(crate) struct Violation;

/// End of the running call with its worker.
#[derive(Clone, Debug)]
pub(crate) enum Loss {
    /// Out of time: signalled, and killed a grace later. The expired claim, with its last location
    /// in the code if it was found.
    Expired(u64, Option<String>),
    /// It did what its resource limits forbid, and was killed for it: which claim, where it was
    /// last seen if that could be seen, and why.
    Stopped(u64, Option<String>, String),
    /// The worker ended: why, where its interpreter was if it could say, and whether a lack of
    /// memory ends workers that way.
    Crashed(String, Option<String>, bool),
    /// It was killed with the process that forked it, which had other workers or not.
    Zygote(LossProgress),
}

/// Reason for the loss of a zygote, to follow "the worker process": of one that had other workers,
/// and of one that had not.
const WITH_ZYGOTE: &str = "was killed with its zygote";
pub(super) const WITH_ITS_OWN: &str =
    "was killed with its zygote, which had no other worker; a zygote was lost under the call before";

impl Loss {
    /// Returns it in a few words.
    pub(crate) fn why(&self) -> &str {
        match self {
            Self::Expired(..) => "its call ran out of time",
            Self::Stopped(_, _, why) | Self::Crashed(why, ..) => why,
            Self::Zygote(_) => WITH_ZYGOTE,
        }
    }
}
