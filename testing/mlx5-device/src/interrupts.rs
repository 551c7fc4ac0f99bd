//! Interrupts, which the client receives as event descriptors.

use std::fs::File;
use std::io::Write;

/// The event descriptor of each MSI-X vector that the guest uses.
#[derive(Debug)]
pub(crate) struct Interrupts {
    vectors: Vec<Option<File>>,
}

impl Interrupts {
    pub(crate) fn new(vectors: u32) -> Self {
        Self {
            vectors: (0..vectors).map(|_| None).collect(),
        }
    }

    /// Sets the descriptors of `count` vectors from `start` on; missing ones are removed.
    pub(crate) fn set(&mut self, start: u32, count: u32, descriptors: Vec<File>) {
        let mut descriptors = descriptors.into_iter();
        for vector in self
            .vectors
            .iter_mut()
            .skip(start as usize)
            .take(count as usize)
        {
            *vector = descriptors.next();
        }
    }

    /// Removes all descriptors.
    pub(crate) fn clear(&mut self) {
        self.vectors.fill_with(|| None);
    }

    /// Raises an interrupt. Returns `false` if the guest does not use the vector.
    pub(crate) fn raise(&mut self, vector: u32) -> bool {
        let descriptor = self
            .vectors
            .get_mut(vector as usize)
            .and_then(Option::as_mut);
        descriptor.is_some_and(|descriptor| descriptor.write_all(&1_u64.to_ne_bytes()).is_ok())
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::os::fd::OwnedFd;

    use super::Interrupts;

    #[test]
    fn an_interrupt_reaches_the_descriptor_of_its_vector() {
        let (mut reader, writer) = std::io::pipe().unwrap();
        let mut interrupts = Interrupts::new(4);
        interrupts.set(2, 1, vec![OwnedFd::from(writer).into()]);
        assert!(!interrupts.raise(0));
        assert!(interrupts.raise(2));
        let mut count = [0; 8];
        reader.read_exact(&mut count).unwrap();
        assert_eq!(u64::from_ne_bytes(count), 1);
        interrupts.set(2, 1, Vec::new());
        assert!(!interrupts.raise(2) && !interrupts.raise(4));
    }
}
