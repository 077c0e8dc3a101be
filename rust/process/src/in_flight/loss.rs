//! Reasons for which a worker's calls are lost, or the worker is not trusted any more.

use guerdon_core::loss_ledger::LossProgress;

/// A message that correct workers never send.
#[derive(Debug)]
pub(crate) struct Violation;

/// End of the running call with its worker.
#[derive(Clone, Debug)]
pub(crate) enum Loss {
    /// The call was out of time: signalled, and killed a grace later. The expired claim, with its
    /// last location in the code if it was found.
    Expired(u64, Option<String>),
    /// The call broke its resource limits and was killed: the claim, its last location if it was
    /// found, and the reason.
    Stopped(u64, Option<String>, String),
    /// The worker ended: the reason, the location of its interpreter if there was a crash report,
    /// and whether a lack of memory ends workers like this.
    Crashed(String, Option<String>, bool),
    /// The worker was killed with the process that forked it; that process had other workers or
    /// not.
    Zygote(LossProgress),
}

/// Reason for the loss of a zygote, to follow "the worker process": of a zygote with other workers,
/// and of one without.
const WITH_ZYGOTE: &str = "was killed with its zygote";
pub(super) const WITH_ITS_OWN: &str =
    "was killed with its zygote, which had no other worker; a zygote was lost under the call before";

impl Loss {
    /// Returns the loss in a few words.
    pub(crate) fn why(&self) -> &str {
        match self {
            Self::Expired(..) => "its call ran out of time",
            Self::Stopped(_, _, why) | Self::Crashed(why, ..) => why,
            Self::Zygote(_) => WITH_ZYGOTE,
        }
    }
}
