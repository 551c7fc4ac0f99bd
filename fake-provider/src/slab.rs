//! Objects by number. Numbers are reused at once, as devices do, so that a stale one is found out.

pub(crate) struct Slab<T> {
    places: Vec<Option<T>>,
}

impl<T> Default for Slab<T> {
    fn default() -> Self {
        Self { places: Vec::new() }
    }
}

impl<T> Slab<T> {
    /// The number that the next object will get.
    pub(crate) fn next(&self) -> usize {
        self.places
            .iter()
            .position(Option::is_none)
            .unwrap_or(self.places.len())
    }

    pub(crate) fn insert(&mut self, value: T) -> usize {
        let number = self.next();
        if number == self.places.len() {
            self.places.push(Some(value));
        } else {
            self.places[number] = Some(value);
        }
        number
    }

    /// Above every number in use.
    pub(crate) fn end(&self) -> usize {
        self.places.len()
    }

    pub(crate) fn get(&self, number: usize) -> Option<&T> {
        self.places.get(number)?.as_ref()
    }

    pub(crate) fn get_mut(&mut self, number: usize) -> Option<&mut T> {
        self.places.get_mut(number)?.as_mut()
    }

    pub(crate) fn remove(&mut self, number: usize) -> Option<T> {
        self.places.get_mut(number)?.take()
    }

    pub(crate) fn numbers(&self) -> impl Iterator<Item = usize> {
        self.places
            .iter()
            .enumerate()
            .filter(|(_, place)| place.is_some())
            .map(|(number, _)| number)
    }

    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = &mut T> {
        self.places.iter_mut().flatten()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &T> {
        self.places.iter().flatten()
    }

    pub(crate) fn len(&self) -> usize {
        self.iter().count()
    }
}
