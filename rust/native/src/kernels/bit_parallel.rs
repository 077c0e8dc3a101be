//! Longest common subsequence and edit distance, 64 cells of the table at a time (Hyyrö's and
//! Myers' bit vectors).
//!
//! - The table is processed in strips of 64 rows, so memory is linear in the texts.
//! - The caller may stop the work at the start of each strip, and every 100 000 steps of a long
//!   one.

use crate::kernels::fault::{Fault, Stop};

const STRIP: usize = 64;
/// Steps between two checks whether to stop: about 0.2 ms.
const STEPS: usize = 100_000;

/// Rows of a strip in which each token occurs.
struct Rows {
    masks: Vec<u64>,
}

impl Rows {
    fn new(distinct: usize) -> Self {
        Self { masks: vec![0; distinct] }
    }

    fn put(&mut self, strip: &[u32]) {
        for (row, token) in strip.iter().enumerate() {
            self.masks[*token as usize] |= 1 << row;
        }
    }

    fn clear(&mut self, strip: &[u32]) {
        strip.iter().for_each(|token| self.masks[*token as usize] = 0);
    }
}

/// Returns the length of the longest common subsequence. All tokens are below `distinct`.
pub fn common_subsequence(one: &[u32], other: &[u32], distinct: usize, stop: &dyn Stop) -> Result<usize, Fault> {
    let (rows, columns) = if one.len() < other.len() { (one, other) } else { (other, one) };
    let mut masks = Rows::new(distinct);
    // Carries of each column for the next strip.
    let mut carries = vec![false; columns.len()];
    let mut length = 0;
    for strip in rows.chunks(STRIP) {
        masks.put(strip);
        let mut state = u64::MAX;
        for (column, carry) in columns.chunks(STEPS).zip(carries.chunks_mut(STEPS)) {
            stop.check()?;
            for (token, carry) in column.iter().zip(carry) {
                let matches = state & masks.masks[*token as usize];
                let (sum, over) = state.overflowing_add(matches);
                let (sum, over_again) = sum.overflowing_add(u64::from(*carry));
                state = sum | (state & !matches);
                *carry = over || over_again;
            }
        }
        let used = if strip.len() == STRIP { u64::MAX } else { (1 << strip.len()) - 1 };
        length += (!state & used).count_ones() as usize;
        masks.clear(strip);
    }
    Ok(length)
}

/// Returns the fewest insertions, deletions and replacements that turn one into the other.
pub fn edit_distance(one: &[u32], other: &[u32], distinct: usize, stop: &dyn Stop) -> Result<usize, Fault> {
    let (rows, columns) = if one.len() < other.len() { (one, other) } else { (other, one) };
    let mut masks = Rows::new(distinct);
    // Difference along the last row of the strip above, in each column; 1 above the first strip.
    let mut rises = vec![1_i8; columns.len()];
    for strip in rows.chunks(STRIP) {
        masks.put(strip);
        let last_row = strip.len() - 1;
        let (mut plus, mut minus) = (u64::MAX, 0_u64);
        for (column, rise) in columns.chunks(STEPS).zip(rises.chunks_mut(STEPS)) {
            stop.check()?;
            for (token, rise) in column.iter().zip(rise) {
                let mut equal = masks.masks[*token as usize];
                let down = equal | minus;
                equal |= u64::from(*rise < 0);
                let across = ((equal & plus).wrapping_add(plus) ^ plus) | equal;
                let mut rising = minus | !(across | plus);
                let mut falling = plus & across;
                let handed_on = ((rising >> last_row) & 1) as i8 - ((falling >> last_row) & 1) as i8;
                rising = (rising << 1) | u64::from(*rise > 0);
                falling = (falling << 1) | u64::from(*rise < 0);
                plus = falling | !(down | rising);
                minus = rising & down;
                *rise = handed_on;
            }
        }
        masks.clear(strip);
    }
    // The last row starts at the number of rows.
    let change: i64 = rises.iter().map(|rise| i64::from(*rise)).sum();
    Ok(usize::try_from(rows.len() as i64 + change).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    //! Both against the full table.

    use proptest::prelude::*;

    use super::*;

    fn tables(one: &[u32], other: &[u32]) -> (usize, usize) {
        let (mut common, mut edits) = (vec![0; other.len() + 1], (0..=other.len()).collect::<Vec<_>>());
        for (row, a) in one.iter().enumerate() {
            let (before, edits_before) = (common.clone(), edits.clone());
            edits[0] = row + 1;
            for (column, b) in other.iter().enumerate() {
                let best = before[column + 1].max(common[column]);
                common[column + 1] = if a == b { before[column] + 1 } else { best };
                let replaced = edits_before[column] + usize::from(a != b);
                edits[column + 1] = replaced.min(edits[column] + 1).min(edits_before[column + 1] + 1);
            }
        }
        (common[other.len()], edits[other.len()])
    }

    fn tokens() -> impl Strategy<Value = Vec<u32>> {
        prop_oneof![prop::collection::vec(0..3_u32, 0..200), prop::collection::vec(0..40_u32, 0..200)]
    }

    proptest! {
        #[test]
        fn they_are_the_tables_corners(one in tokens(), other in tokens()) {
            let go_on = || false;
            let found = (
                common_subsequence(&one, &other, 40, &go_on).unwrap(),
                edit_distance(&one, &other, 40, &go_on).unwrap(),
            );
            prop_assert_eq!(found, tables(&one, &other));
        }
    }

    #[test]
    fn strips_have_edges() {
        for length in [0, 1, 63, 64, 65, 127, 128, 129] {
            let one: Vec<u32> = (0..length).map(|at| at % 7).collect();
            let other: Vec<u32> = (0..length).map(|at| at % 5).collect();
            let go_on = || false;
            let found = (common_subsequence(&one, &other, 7, &go_on), edit_distance(&one, &other, 7, &go_on));
            let (common, edits) = tables(&one, &other);
            assert_eq!(found, (Ok(common), Ok(edits)), "{length}");
        }
    }

    #[test]
    fn it_stops_when_asked() {
        let stop = || true;
        assert_eq!(common_subsequence(&[0], &[0], 1, &stop), Err(Fault::Stopped));
        assert_eq!(edit_distance(&[0], &[0], 1, &stop), Err(Fault::Stopped));
    }
}
