//! Moves frames from nodes that have not begun them to nodes that run low.
//!
//! - A frame on its way back counts for its next node.
//! - A frame moves only if the giver then has at least as many for each worker as the taker, so
//!   that no frame goes back and forth.

/// Load of a node, for comparison with others.
#[derive(Clone, Debug)]
pub(crate) struct Load {
    pub workers: usize,
    /// Frames that it has and that were not requested back.
    pub frames: usize,
    /// Number of frames below which it is low; 0 for a node that takes none.
    pub low: usize,
    /// Frames that it can give.
    pub unclaimed: usize,
}

impl Load {
    /// Returns whether it would have more frames for each worker than another node, at these
    /// numbers.
    fn has_more(&self, frames: usize, other: &Self, of_other: usize) -> bool {
        frames.saturating_mul(other.workers) > of_other.saturating_mul(self.workers)
    }
}

/// Returns the number of frames that each node must give. `on_the_way` frames were requested
/// before.
pub(crate) fn moves(mut nodes: Vec<Load>, on_the_way: usize) -> Vec<usize> {
    let mut gives = vec![0; nodes.len()];
    let least = |nodes: &[Load]| {
        let takers = (0..nodes.len()).filter(|one| nodes[*one].low > 0);
        takers.reduce(|one, other| {
            let (a, b) = (&nodes[one], &nodes[other]);
            if a.has_more(a.frames, b, b.frames) { other } else { one }
        })
    };
    let mut coming = on_the_way;
    while let Some(taker) = least(&nodes) {
        if nodes[taker].frames >= nodes[taker].low {
            break;
        }
        nodes[taker].frames += 1;
        if coming > 0 {
            coming -= 1;
            continue;
        }
        let givers = (0..nodes.len()).filter(|one| nodes[*one].unclaimed > 0);
        let most = givers.reduce(|one, other| {
            let (a, b) = (&nodes[one], &nodes[other]);
            if b.has_more(b.frames, a, a.frames) { other } else { one }
        });
        let Some(giver) = most.filter(|giver| *giver != taker) else { break };
        let (gives_one, takes_one) = (&nodes[giver], &nodes[taker]);
        if takes_one.has_more(takes_one.frames, gives_one, gives_one.frames.saturating_sub(1)) {
            break;
        }
        nodes[giver].frames -= 1;
        nodes[giver].unclaimed -= 1;
        gives[giver] += 1;
    }
    gives
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(workers: usize, frames: usize, low: usize, unclaimed: usize) -> Load {
        Load { workers, frames, low, unclaimed }
    }

    #[test]
    fn a_node_that_is_low_gets_what_others_have_not_begun() {
        assert_eq!(moves(vec![node(2, 0, 3, 0), node(2, 8, 3, 6)], 0), [0, 3]);
        // Until both have the same.
        assert_eq!(moves(vec![node(2, 0, 9, 0), node(2, 8, 9, 6)], 0), [0, 4]);
        // Shares go by the worker.
        assert_eq!(moves(vec![node(2, 1, 9, 0), node(8, 10, 9, 6)], 0), [0, 1]);
        // No more than has not begun.
        assert_eq!(moves(vec![node(4, 0, 9, 0), node(2, 8, 3, 1)], 0), [0, 1]);
        // Frames come from the nodes that have most.
        assert_eq!(moves(vec![node(1, 0, 2, 0), node(1, 3, 2, 2), node(1, 5, 2, 4)], 0), [0, 0, 2]);
    }

    #[test]
    fn frames_on_the_way_are_not_asked_for_again() {
        assert_eq!(moves(vec![node(2, 0, 3, 0), node(2, 8, 3, 6)], 2), [0, 1]);
        assert_eq!(moves(vec![node(2, 0, 3, 0), node(2, 8, 3, 6)], 3), [0, 0]);
    }

    #[test]
    fn nothing_moves_without_need() {
        assert_eq!(moves(vec![node(2, 3, 3, 1), node(2, 8, 3, 6)], 0), [0, 0]);
        assert_eq!(moves(vec![node(2, 1, 3, 0), node(2, 2, 3, 1)], 0), [0, 0]);
        // One that takes none gives.
        assert_eq!(moves(vec![node(1, 0, 2, 0), node(1, 4, 0, 3)], 0), [0, 2]);
        assert_eq!(moves(vec![node(1, 0, 0, 0), node(1, 4, 2, 3)], 0), [0, 0]);
        assert!(moves(Vec::new(), 1).is_empty());
    }
}
