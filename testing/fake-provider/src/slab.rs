//! Objects by index. An index is reused as soon as possible, as devices do, so that tests detect
//! the use of a stale one.

pub(crate) struct Slab<T> {
    slots: Vec<Option<T>>,
}

impl<T> Default for Slab<T> {
    fn default() -> Self {
        Self { slots: Vec::new() }
    }
}

impl<T> Slab<T> {
    /// Returns the index that the next object will get.
    pub(crate) fn next(&self) -> usize {
        self.slots
            .iter()
            .position(Option::is_none)
            .unwrap_or(self.slots.len())
    }

    pub(crate) fn insert(&mut self, value: T) -> usize {
        let index = self.next();
        if index == self.slots.len() {
            self.slots.push(Some(value));
        } else {
            self.slots[index] = Some(value);
        }
        index
    }

    /// Returns an upper bound of the indices in use, exclusive.
    pub(crate) fn end(&self) -> usize {
        self.slots.len()
    }

    pub(crate) fn get(&self, index: usize) -> Option<&T> {
        self.slots.get(index)?.as_ref()
    }

    pub(crate) fn get_mut(&mut self, index: usize) -> Option<&mut T> {
        self.slots.get_mut(index)?.as_mut()
    }

    pub(crate) fn remove(&mut self, index: usize) -> Option<T> {
        self.slots.get_mut(index)?.take()
    }

    pub(crate) fn indices(&self) -> impl Iterator<Item = usize> {
        self.slots
            .iter()
            .enumerate()
            .filter(|(_, slot)| slot.is_some())
            .map(|(index, _)| index)
    }

    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = &mut T> {
        self.slots.iter_mut().filter_map(Option::as_mut)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &T> {
        self.slots.iter().filter_map(Option::as_ref)
    }

    pub(crate) fn len(&self) -> usize {
        self.iter().count()
    }
}
