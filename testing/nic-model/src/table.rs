//! A table of objects by number.

use crate::errno::{Errno, Result};

/// Objects by number, from 1 or a higher one. The number of a removed object is used again as late
/// as possible, so that a stale number finds nothing.
#[derive(Debug)]
pub struct Table<T> {
    slots: Vec<Option<Box<T>>>,
    /// The numbers in use, and some of removed objects, in order.
    live: Vec<u32>,
    /// Number of the first slot.
    first: u32,
    next: usize,
    max: usize,
}

impl<T> Table<T> {
    /// Creates a table for numbers up to `max`.
    pub const fn new(max: u32) -> Self {
        Self::between(1, max)
    }

    /// Creates a table for numbers from `first` to `last`.
    pub const fn between(first: u32, last: u32) -> Self {
        Self {
            slots: Vec::new(),
            live: Vec::new(),
            first,
            next: 0,
            max: (last + 1 - first) as usize,
        }
    }

    /// Adds an object and returns its number.
    ///
    /// # Errors
    /// Fails with `ENOMEM` if the table is full.
    pub fn insert(&mut self, value: T) -> Result<u32> {
        let index = (self.next..self.max)
            .chain(0..self.next)
            .find(|&index| self.slots.get(index).is_none_or(Option::is_none))
            .ok_or(Errno::ENOMEM)?;
        if index >= self.slots.len() {
            self.slots.resize_with(index + 1, || None);
        }
        self.slots[index] = Some(Box::new(value));
        self.next = (index + 1) % self.max;
        let number = self.first + u32::try_from(index).map_err(|_| Errno::ENOMEM)?;
        self.live.push(number);
        self.live.sort_unstable();
        self.live.dedup();
        Ok(number)
    }

    const fn index(&self, number: u32) -> usize {
        number.wrapping_sub(self.first) as usize
    }

    /// Returns the object with this number.
    pub fn get(&self, number: u32) -> Option<&T> {
        self.slots.get(self.index(number))?.as_deref()
    }

    /// Returns the object with this number, to change it.
    pub fn get_mut(&mut self, number: u32) -> Option<&mut T> {
        let index = self.index(number);
        self.slots.get_mut(index)?.as_deref_mut()
    }

    /// Removes the object with this number.
    pub fn remove(&mut self, number: u32) -> Option<Box<T>> {
        let index = self.index(number);
        self.slots.get_mut(index)?.take()
    }

    /// Puts back an object that [`remove`](Self::remove) returned.
    pub(crate) fn put_back(&mut self, number: u32, value: Box<T>) {
        let index = self.index(number);
        self.slots[index] = Some(value);
    }

    /// Returns the numbers in use, without a look at those that were used before.
    pub(crate) fn numbers(&mut self) -> Vec<u32> {
        let (slots, first) = (&self.slots, self.first);
        self.live
            .retain(|&number| slots[(number - first) as usize].is_some());
        self.live.clone()
    }

    /// Returns the objects with their numbers.
    pub fn iter(&self) -> impl Iterator<Item = (u32, &T)> {
        (self.first..)
            .zip(&self.slots)
            .filter_map(|(number, slot)| Some((number, slot.as_deref()?)))
    }
}

#[cfg(test)]
mod tests {
    use super::Table;

    #[test]
    fn a_number_is_used_again_after_all_others() {
        let mut table = Table::between(4, 6);
        let insert = |table: &mut Table<char>, value| table.insert(value).ok();
        assert_eq!(insert(&mut table, 'a'), Some(4));
        assert_eq!(insert(&mut table, 'b'), Some(5));
        assert_eq!(table.remove(4), Some(Box::new('a')));
        assert_eq!(insert(&mut table, 'c'), Some(6));
        assert_eq!(insert(&mut table, 'd'), Some(4));
        assert_eq!(insert(&mut table, 'e'), None);
        let all: Vec<_> = table
            .iter()
            .map(|(number, value)| (number, *value))
            .collect();
        assert_eq!(all, [(4, 'd'), (5, 'b'), (6, 'c')]);
        assert_eq!((table.get(6), table.get(3)), (Some(&'c'), None));
        assert_eq!(table.remove(9), None);
    }
}
