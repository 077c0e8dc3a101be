//! A list that grows at its end while other threads read it. Elements never move, so readers and
//! growth do not wait for each other. A list that never grows has one piece: a lookup costs a
//! comparison.

use std::sync::OnceLock;

/// Far more than memory holds: each piece is as long as all before it.
const PIECES: usize = 48;

/// The pieces: `first` elements, then as many again, then twice as many, and so on.
pub(crate) struct AppendList<T> {
    first: usize,
    /// Both are written by `grow`, `begin` first.
    begin: OnceLock<Box<[T]>>,
    rest: Box<[OnceLock<Box<[T]>>]>,
}

impl<T> AppendList<T> {
    /// Makes an empty list whose first piece will have `first` elements.
    pub(crate) fn new(first: usize) -> Self {
        Self { first: first.max(1), begin: OnceLock::new(), rest: (0..PIECES).map(|_| OnceLock::new()).collect() }
    }

    /// Grows the list to at least `length` elements.
    pub(crate) fn grow(&self, length: usize, make: impl Fn() -> T) {
        let mut start = 0;
        for piece in std::iter::once(&self.begin).chain(&self.rest) {
            if start >= length {
                return;
            }
            let count = start.max(self.first);
            piece.get_or_init(|| (0..count).map(|_| make()).collect());
            start += count;
        }
    }

    /// The element, if the list has grown so far.
    pub(crate) fn get(&self, index: usize) -> Option<&T> {
        if index < self.first {
            return self.begin.get()?.get(index);
        }
        let doublings = (index / self.first).ilog2() as usize;
        self.rest.get(doublings)?.get()?.get(index - (self.first << doublings))
    }
}

#[cfg(all(test, not(feature = "loom")))]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    #[test]
    fn every_element_is_made_once_and_stays() {
        for first in [1, 2, 3, 7, 64] {
            let made = AtomicUsize::new(0);
            let list = AppendList::new(first);
            let mut seen: Vec<*const usize> = Vec::new();
            for length in 0..200 {
                list.grow(length, || made.fetch_add(1, Ordering::Relaxed));
                seen.extend((seen.len()..length).map(|index| std::ptr::from_ref(list.get(index).unwrap())));
                for (index, place) in seen.iter().enumerate() {
                    let found = list.get(index).unwrap();
                    assert_eq!((*found, std::ptr::from_ref(found)), (index, *place), "of pieces from {first}");
                }
            }
            assert!(list.get(made.load(Ordering::Relaxed)).is_none());
        }
    }

    #[test]
    fn a_list_of_fixed_length_is_one_piece() {
        let list = AppendList::new(100);
        assert!(list.get(0).is_none());
        list.grow(100, || 0_u8);
        assert!(list.rest[0].get().is_none());
        assert!(list.get(99).is_some() && list.get(100).is_none() && list.get(usize::MAX).is_none());
    }
}
