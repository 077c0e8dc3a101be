//! Texts as numbers: equal tokens get equal numbers, counted from 0.

use std::borrow::Borrow;
use std::collections::{HashMap, HashSet};
use std::hash::Hash;

use ahash::RandomState;

use crate::kernels::fault::{Fault, Stop};

/// Numbers tokens in the order of their first occurrence. The hash is keyed, so that a model can't
/// write a text that makes hashes collide.
pub struct TokenNumbers<T> {
    known: HashMap<T, u32, RandomState>,
}

impl<T: Eq + Hash> TokenNumbers<T> {
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

    /// Returns the number of a token, if it occurred before.
    pub fn known<K: Eq + Hash + ?Sized>(&self, token: &K) -> Option<u32>
    where
        T: Borrow<K>,
    {
        self.known.get(token).copied()
    }

    /// Returns the number of different tokens.
    pub fn len(&self) -> usize {
        self.known.len()
    }
}

/// Tokens that are hashed between two checks whether to stop: about a millisecond's work.
const UNTIL_ASKED: usize = 200_000;

/// Returns the number of different n-grams.
pub fn distinct_ngrams(tokens: &[u32], n: usize, stop: &dyn Stop) -> Result<usize, Fault> {
    // Long n-grams overlap, so the work is the text's length times theirs.
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

/// The longest n-grams that are counted: four tokens fit into one number, which is cheap to hash
/// and compare.
pub const COUNTED: usize = 4;

/// Number of a token, or of an n-gram, that a text does not have.
pub const ABSENT: u32 = u32::MAX;

/// Returns the number of common n-grams by length, from unigrams on. An n-gram counts as often as
/// in the reference with most of it. `distinct` is the number of different tokens in the text. Only
/// the n-grams of one length are kept at a time.
pub fn common_ngrams(
    text: &[u32],
    references: &[Vec<u32>],
    mut distinct: usize,
    stop: &dyn Stop,
) -> Result<[usize; COUNTED], Fault> {
    let (mut found, mut wanted) = (text.to_vec(), references.to_vec());
    let mut common = [0; COUNTED];
    for (n, common) in common.iter_mut().enumerate() {
        stop.check()?;
        if n > 0 {
            // An n-gram is identified by the number of a shorter one and a token.
            let mut known: HashMap<u64, u32, _> = HashMap::with_capacity_and_hasher(found.len(), RandomState::new());
            found = longer(&found, &text[n.min(text.len())..], |ngram| {
                #[expect(clippy::cast_possible_truncation, reason = "there are fewer than tokens")]
                let next = known.len() as u32;
                *known.entry(ngram).or_insert(next)
            });
            for (ids, tokens) in wanted.iter_mut().zip(references) {
                stop.check()?;
                let tokens = &tokens[n.min(tokens.len())..];
                *ids = longer(ids, tokens, |ngram| known.get(&ngram).copied().unwrap_or(ABSENT));
            }
            distinct = known.len();
        }
        let mut most = vec![0_u32; distinct];
        for ids in &wanted {
            stop.check()?;
            most.iter_mut().zip(counts(ids, distinct)).for_each(|(most, count)| *most = count.max(*most));
        }
        *common = counts(&found, distinct).zip(most).map(|(count, most)| count.min(most) as usize).sum();
    }
    Ok(common)
}

/// Extends n-grams, given by their numbers, by the next token in `tokens`.
fn longer(shorter: &[u32], tokens: &[u32], mut number: impl FnMut(u64) -> u32) -> Vec<u32> {
    let longer = shorter.iter().zip(tokens).map(|(ngram, token)| match (*ngram, *token) {
        (ABSENT, _) | (_, ABSENT) => ABSENT,
        (ngram, token) => number(u64::from(ngram) << 32 | u64::from(token)),
    });
    longer.collect()
}

/// Returns the number of occurrences of each id.
fn counts(ids: &[u32], distinct: usize) -> impl Iterator<Item = u32> {
    let mut counts = vec![0; distinct];
    ids.iter().filter(|id| **id != ABSENT).for_each(|id| counts[*id as usize] += 1);
    counts.into_iter()
}

/// An n-gram as one number.
fn packed(ngram: &[u32]) -> u128 {
    ngram.iter().fold(0, |all, token| all << 32 | u128::from(*token))
}

/// Returns the number of common tokens, each counted as often as it occurs in both lists.
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
