//! Calls at nodes when those were lost, or when their workers died.
//!
//! - After the second loss a call gets a dedicated node (`apart`), and only the loss of that node
//!   ends it. Calls of a begun frame that were not next become suspects at the second loss. A call
//!   can therefore end at most three nodes, or four if its beginning was not reported.

use std::sync::Arc;

/// Number of losses from which on a call gets a dedicated node.
pub(crate) const APART_AFTER: usize = 2;

/// Loss ledger by the names of nodes.
pub(crate) type LossLedger = guerdon_core::loss_ledger::LossLedger<Arc<str>>;

/// Returns the part of a call's reason that names the earlier nodes.
pub(crate) fn before(nodes: &[Arc<str>]) -> String {
    match nodes {
        [] => String::new(),
        nodes => {
            let names: Vec<String> = nodes.iter().map(|name| format!("'{name}'")).collect();
            format!(" (before that on {})", names.join(", "))
        }
    }
}
