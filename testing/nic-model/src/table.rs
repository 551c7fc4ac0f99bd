//! A table of objects by number.

use crate::errno::{Errno, Result};

/// Objects by number, from 1. The number of a removed object is used again as late as possible, so
/// that a stale number finds nothing.
pub(crate) struct Table<T> {
    slots: Vec<Option<Box<T>>>,
    /// The numbers in use, and some of removed objects, in order.
    live: Vec<u32>,
    next: usize,
    max: usize,
}

impl<T> Table<T> {
    /// Creates a table for numbers up to `max`.
    pub(crate) const fn new(max: u32) -> Self {
        Self {
            slots: Vec::new(),
            live: Vec::new(),
            next: 0,
            max: max as usize,
        }
    }

    /// Adds an object and returns its number. Fails with `ENOMEM` if the table is full.
    pub(crate) fn insert(&mut self, value: T) -> Result<u32> {
        let index = (self.next..self.max)
            .chain(0..self.next)
            .find(|&index| self.slots.get(index).is_none_or(Option::is_none))
            .ok_or(Errno::ENOMEM)?;
        if index >= self.slots.len() {
            self.slots.resize_with(index + 1, || None);
        }
        self.slots[index] = Some(Box::new(value));
        self.next = (index + 1) % self.max;
        let number = u32::try_from(index + 1).expect("at most `max`");
        self.live.push(number);
        self.live.sort_unstable();
        self.live.dedup();
        Ok(number)
    }

    pub(crate) fn get(&self, number: u32) -> Option<&T> {
        self.slots
            .get((number as usize).wrapping_sub(1))?
            .as_deref()
    }

    pub(crate) fn get_mut(&mut self, number: u32) -> Option<&mut T> {
        self.slots
            .get_mut((number as usize).wrapping_sub(1))?
            .as_deref_mut()
    }

    pub(crate) fn remove(&mut self, number: u32) -> Option<Box<T>> {
        self.slots
            .get_mut((number as usize).wrapping_sub(1))?
            .take()
    }

    /// Puts back an object that [`remove`](Self::remove) returned.
    pub(crate) fn put_back(&mut self, number: u32, value: Box<T>) {
        self.slots[number as usize - 1] = Some(value);
    }

    /// Returns the numbers in use, without a look at those that were used before.
    pub(crate) fn numbers(&mut self) -> Vec<u32> {
        let slots = &self.slots;
        self.live
            .retain(|&number| slots[number as usize - 1].is_some());
        self.live.clone()
    }

    /// Returns the objects with their numbers.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (u32, &T)> {
        (1..)
            .zip(&self.slots)
            .filter_map(|(number, slot)| Some((number, slot.as_deref()?)))
    }
}
