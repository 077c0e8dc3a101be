//! A map of bounded size that forgets the entries that were not used lately: two halves, of which
//! the older one is dropped when the younger one is full.

use std::collections::HashMap;
use std::hash::Hash;

/// Keys in one half.
const HALF: usize = 4096;

/// See the module.
#[derive(Clone, Debug)]
pub struct RecentMap<K, V> {
    young: HashMap<K, V>,
    old: HashMap<K, V>,
}

impl<K: Eq + Hash, V> Default for RecentMap<K, V> {
    fn default() -> Self {
        Self { young: HashMap::new(), old: HashMap::new() }
    }
}

impl<K: Eq + Hash + Copy, V> RecentMap<K, V> {
    /// The value of a key, which is remembered for longer then.
    pub fn get(&mut self, key: K) -> Option<&V> {
        if let Some(value) = self.old.remove(&key) {
            self.insert(key, value);
        }
        self.young.get(&key)
    }

    pub fn insert(&mut self, key: K, value: V) {
        if self.young.len() >= HALF && !self.young.contains_key(&key) {
            self.old = std::mem::take(&mut self.young);
        }
        self.old.remove(&key);
        self.young.insert(key, value);
    }

    pub fn remove(&mut self, key: K) -> Option<V> {
        let old = self.old.remove(&key);
        self.young.remove(&key).or(old)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn used_entries_stay_and_the_rest_goes() {
        let mut map = RecentMap::default();
        for key in 0..10 * HALF {
            map.insert(key, key);
            assert_eq!(map.get(0), Some(&0));
        }
        assert!(map.get(1).is_none() && map.get(10 * HALF - 1).is_some());
        assert!(map.young.len() + map.old.len() <= 2 * HALF);
        assert_eq!((map.remove(0), map.get(0)), (Some(0), None));
    }
}
