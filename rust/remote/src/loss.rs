//! Which calls were at which nodes when those were lost, or their workers died.
//!
//! - After the second loss a call has a node to itself (`apart`), and only the loss of that one is
//!   its end. Calls of a begun frame that were not next become suspects with the second. So a call
//!   ends three nodes, or four if its beginning was not heard of.

use std::sync::Arc;

/// From so many losses on a call has a node to itself.
pub(crate) const APART_AFTER: usize = 2;

/// By the names of nodes.
pub(crate) type LossLedger = guerdon_core::loss_ledger::LossLedger<Arc<str>>;

/// What the reason of a call says of the nodes before.
pub(crate) fn before(nodes: &[Arc<str>]) -> String {
    match nodes {
        [] => String::new(),
        nodes => {
            let names: Vec<String> = nodes.iter().map(|name| format!("'{name}'")).collect();
            format!(" (before that on {})", names.join(", "))
        }
    }
}
