//! Finds the numbers of list items: the 1 and 2 of "1. Accuracy: …\n2. Clarity: …".

use std::collections::BTreeMap;

/// Numbers at the beginning of lines, by where they stand.
#[derive(Debug, Default)]
pub struct ListItems(BTreeMap<usize, bool>);

/// What a number at the beginning of a line is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Item {
    /// The number of a list's item.
    Number,
    /// The 1 of a list, or a score with a sentence after it.
    Unclear,
}

impl ListItems {
    pub fn of(text: &str) -> Self {
        let mut items = BTreeMap::new();
        if !text.contains("1.") && !text.contains("1)") {
            return Self(items);
        }
        let (mut last, mut first, mut line_start) = (0, None, 0);
        for line in text.split('\n') {
            if let Some((at, number)) = item(line) {
                let at = line_start + at;
                if number == 1 {
                    items.insert(at, false);
                    first = Some(at);
                    last = 1;
                } else if number == last + 1 && last > 0 {
                    if let Some(first) = first.take() {
                        items.insert(first, true);
                    }
                    items.insert(at, true);
                    last = number;
                }
            }
            line_start += line.len() + 1;
        }
        Self(items)
    }

    pub fn at(&self, place: usize) -> Option<Item> {
        self.0.get(&place).map(|sure| if *sure { Item::Number } else { Item::Unclear })
    }
}

/// The number that a line begins with as an item of a list does, and where.
fn item(line: &str) -> Option<(usize, u32)> {
    let rest = line.trim_start_matches([' ', '\t', '#', '*', '_', '>', '-', '+', '•', '(']);
    let at = line.len() - rest.len();
    let digits = rest.len() - rest.trim_start_matches(|letter: char| letter.is_ascii_digit()).len();
    if !(1..=3).contains(&digits) {
        return None;
    }
    let after = rest[digits..].trim_start_matches(['*', '_']);
    let after = after.strip_prefix(['.', ')'])?;
    let text = after.trim_start_matches(['*', '_']);
    let apart = text.len() < after.len() || text.starts_with([' ', '\t']);
    (apart && !text.trim().is_empty()).then(|| rest[..digits].parse().ok().map(|number| (at, number)))?
}
