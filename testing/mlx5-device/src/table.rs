//! Numbered objects.

use std::collections::BTreeMap;

/// Objects with numbers of a range. A number is used again after all others.
#[derive(Debug)]
pub(crate) struct Table<T> {
    objects: BTreeMap<u32, T>,
    start: u32,
    end: u32,
    next: u32,
}

impl<T> Table<T> {
    pub(crate) fn new(start: u32, end: u32) -> Self {
        Self {
            objects: BTreeMap::new(),
            start,
            end,
            next: start,
        }
    }

    /// Adds an object and returns its number, or `None` if all numbers are in use.
    pub(crate) fn insert(&mut self, object: T) -> Option<u32> {
        let number = (self.next..self.end)
            .chain(self.start..self.next)
            .find(|number| !self.objects.contains_key(number))?;
        self.next = number + 1;
        self.objects.insert(number, object);
        Some(number)
    }

    pub(crate) fn remove(&mut self, number: u32) -> Option<T> {
        self.objects.remove(&number)
    }

    pub(crate) fn get(&self, number: u32) -> Option<&T> {
        self.objects.get(&number)
    }

    pub(crate) fn get_mut(&mut self, number: u32) -> Option<&mut T> {
        self.objects.get_mut(&number)
    }

    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = &mut T> {
        self.objects.values_mut()
    }

    pub(crate) fn len(&self) -> usize {
        self.objects.len()
    }
}

#[cfg(test)]
mod tests {
    use super::Table;

    #[test]
    fn a_number_is_used_again_after_all_others() {
        let mut table = Table::new(4, 7);
        assert_eq!([table.insert('a'), table.insert('b')], [Some(4), Some(5)]);
        assert_eq!(table.remove(4), Some('a'));
        assert_eq!([table.insert('c'), table.insert('d')], [Some(6), Some(4)]);
        assert_eq!(table.insert('e'), None);
        assert_eq!((table.get(6), table.len()), (Some(&'c'), 3));
        assert_eq!(table.remove(9), None);
    }
}
