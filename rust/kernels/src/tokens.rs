//! Texts as numbers: equal tokens have equal numbers, counted from 0.

use std::borrow::Borrow;
use std::collections::{HashMap, HashSet};
use std::hash::Hash;

use ahash::RandomState;

use crate::fault::{Fault, Stop};

/// Numbers tokens in the order in which they come. Its hashes are keyed: a model can't write a text
/// that makes them collide.
pub struct Numbering<T> {
    known: HashMap<T, u32, RandomState>,
}

impl<T: Eq + Hash> Numbering<T> {
    pub fn new() -> Self {
        Self { known: HashMap::default() }
    }

    pub fn number(&mut self, token: T) -> u32 {
        // There are fewer tokens than bytes of a text, whose number a u32 holds up to 4 GiB.
        #[expect(clippy::cast_possible_truncation, reason = "see above")]
        let next = self.known.len() as u32;
        *self.known.entry(token).or_insert(next)
    }

    pub fn numbers(&mut self, tokens: impl IntoIterator<Item = T>) -> Vec<u32> {
        tokens.into_iter().map(|token| self.number(token)).collect()
    }

    /// The number of a token, if it came before.
    pub fn known<K: Eq + Hash + ?Sized>(&self, token: &K) -> Option<u32>
    where
        T: Borrow<K>,
    {
        self.known.get(token).copied()
    }

    /// How many different ones there were.
    pub fn len(&self) -> usize {
        self.known.len()
    }
}

/// Tokens that are hashed between two questions whether to stop: a millisecond's work, about.
const UNTIL_ASKED: usize = 200_000;

/// How many different n-grams there are.
pub fn distinct_ngrams(tokens: &[u32], n: usize, stop: &dyn Stop) -> Result<usize, Fault> {
    // Long ones overlap, so the work is the text's length times theirs.
    let each = (UNTIL_ASKED / n.max(1)).max(1);
    if n > COUNTED {
        distinct(tokens.windows(n), each, stop)
    } else {
        distinct(tokens.windows(n).map(packed), each, stop)
    }
}

fn distinct<T: Eq + Hash>(
    mut ngrams: impl ExactSizeIterator<Item = T>,
    each: usize,
    stop: &dyn Stop,
) -> Result<usize, Fault> {
    let mut known = HashSet::with_capacity_and_hasher(ngrams.len(), RandomState::new());
    while ngrams.len() > 0 {
        stop.check()?;
        known.extend(ngrams.by_ref().take(each));
    }
    Ok(known.len())
}

/// The longest n-grams that are counted: four tokens fit into one number, which is cheaper to hash
/// and compare.
pub const COUNTED: usize = 4;

/// How often an n-gram stands in a text, in the reference in hand, and in the one that has most.
#[derive(Default)]
struct Count {
    found: u32,
    here: u32,
    most: u32,
}

/// How many n-grams of a text are in a reference, each as often as in the one that has most. What
/// is kept at a time is the text's n-grams of one length, however many references there are.
pub fn common_ngrams(text: &[u32], references: &[Vec<u32>], n: usize, stop: &dyn Stop) -> Result<usize, Fault> {
    stop.check()?;
    let keys = RandomState::new();
    let mut counts: HashMap<u128, Count, _> = HashMap::with_capacity_and_hasher(text.len(), keys);
    text.windows(n).for_each(|ngram| counts.entry(packed(ngram)).or_default().found += 1);
    for reference in references {
        stop.check()?;
        for ngram in reference.windows(n) {
            if let Some(count) = counts.get_mut(&packed(ngram)) {
                count.here += 1;
            }
        }
        for count in counts.values_mut() {
            count.most = count.most.max(count.here);
            count.here = 0;
        }
    }
    Ok(counts.values().map(|count| count.found.min(count.most) as usize).sum())
}

/// An n-gram as one number.
fn packed(ngram: &[u32]) -> u128 {
    ngram.iter().fold(0, |all, token| all << 32 | u128::from(*token))
}

/// How many tokens two lists share, each as often as it stands in both.
pub fn common_tokens(one: &[u32], other: &[u32], distinct: usize) -> usize {
    let mut counts = vec![0_usize; distinct];
    one.iter().for_each(|token| counts[*token as usize] += 1);
    let taken = |token: &&u32| {
        let count = &mut counts[**token as usize];
        let was = *count > 0;
        *count = count.saturating_sub(1);
        was
    };
    other.iter().filter(taken).count()
}
