//! A fact that is queried when it is first used.

use std::ops::Deref;
use std::sync::{Arc, LazyLock};

use serde::{Deserialize, Deserializer, Serialize, Serializer};

type Query<T> = Box<dyn FnOnce() -> T + Send>;

/// A fact that is queried when it is first used. Clones share the result, so no check needs to know
/// which other checks use the fact.
#[derive(Debug)]
pub struct Fact<T>(Arc<LazyLock<T, Query<T>>>);

impl<T> Fact<T> {
    /// Creates a fact from the function that queries it.
    pub fn new(query: impl FnOnce() -> T + Send + 'static) -> Self {
        Self(Arc::new(LazyLock::new(Box::new(query))))
    }
}

impl<T: Clone + Send + Sync + 'static> Fact<T> {
    /// Returns the fact that a function makes of this one, which it queries only if it is used.
    #[must_use]
    pub fn map(self, change: impl FnOnce(T) -> T + Send + 'static) -> Self {
        Self::new(move || change(T::clone(&self)))
    }
}

impl<T> Deref for Fact<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}

impl<T> Clone for Fact<T> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<T: Send + 'static> From<T> for Fact<T> {
    fn from(value: T) -> Self {
        Self::new(move || value)
    }
}

impl<T: Default + 'static> Default for Fact<T> {
    fn default() -> Self {
        Self::new(T::default)
    }
}

impl<T: PartialEq> PartialEq for Fact<T> {
    fn eq(&self, other: &Self) -> bool {
        **self == **other
    }
}

impl<T: Eq> Eq for Fact<T> {}

impl<T: Serialize> Serialize for Fact<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        (**self).serialize(serializer)
    }
}

impl<'de, T: Deserialize<'de> + Send + 'static> Deserialize<'de> for Fact<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        T::deserialize(deserializer).map(Self::from)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;

    #[test]
    fn a_fact_is_queried_once_and_only_if_used() {
        static QUERIES: AtomicU32 = AtomicU32::new(0);
        let fact = Fact::new(|| QUERIES.fetch_add(1, Ordering::Relaxed) + 1);
        let (copy, doubled) = (fact.clone(), fact.clone().map(|count| count * 2));
        assert_eq!(QUERIES.load(Ordering::Relaxed), 0);
        assert_eq!((*fact, *copy, *doubled), (1, 1, 2));
        assert_eq!(QUERIES.load(Ordering::Relaxed), 1);
    }
}
