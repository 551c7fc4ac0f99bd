//! Descriptors of the program that belong to the model.

use std::collections::HashMap;
use std::os::fd::RawFd;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::errno::{Errno, Result};

/// Largest descriptor number that the model can use, plus 1.
const MAX_FD: usize = 1 << 16;

/// One bit for each descriptor that [`Descriptors`] knows. Other threads read it without a lock, so
/// that calls for other descriptors cost little.
static KNOWN: [AtomicU64; MAX_FD / 64] = [const { AtomicU64::new(0) }; MAX_FD / 64];

/// Returns `true` if the descriptor belongs to the model.
pub(crate) fn is_known(fd: RawFd) -> bool {
    usize::try_from(fd).is_ok_and(|fd| {
        fd < MAX_FD && KNOWN[fd / 64].load(Ordering::Acquire) & (1 << (fd % 64)) != 0
    })
}

fn mark(fd: RawFd, known: bool) -> Result<()> {
    let fd = usize::try_from(fd).map_err(|_| Errno::EBADF)?;
    let word = KNOWN.get(fd / 64).ok_or(Errno::EMFILE)?;
    if known {
        word.fetch_or(1 << (fd % 64), Ordering::AcqRel);
    } else {
        word.fetch_and(!(1 << (fd % 64)), Ordering::AcqRel);
    }
    Ok(())
}

/// The meaning of a descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Meaning {
    /// An open device, by its number.
    File(u32),
    /// An event channel, by its number.
    Channel(u32),
    /// An open connection manager, by its number. 0 in a child process that inherited it.
    Cm(u32),
}

#[derive(Default)]
pub(crate) struct Descriptors {
    map: HashMap<RawFd, Meaning>,
}

impl Descriptors {
    fn add(&mut self, fd: RawFd, meaning: Meaning) -> Result<()> {
        mark(fd, true)?;
        self.map.insert(fd, meaning);
        Ok(())
    }

    pub(crate) fn add_file(&mut self, fd: RawFd, file: u32) -> Result<()> {
        self.add(fd, Meaning::File(file))
    }

    pub(crate) fn add_channel(&mut self, fd: RawFd, channel: u32) -> Result<()> {
        self.add(fd, Meaning::Channel(channel))
    }

    pub(crate) fn add_cm(&mut self, fd: RawFd, file: u32) -> Result<()> {
        self.add(fd, Meaning::Cm(file))
    }

    pub(crate) fn get(&self, fd: RawFd) -> Option<Meaning> {
        self.map.get(&fd).copied()
    }

    /// Removes a descriptor and returns its meaning, with the number of others that mean the same.
    pub(crate) fn remove(&mut self, fd: RawFd) -> Option<(Meaning, usize)> {
        let meaning = self.map.remove(&fd)?;
        // A descriptor of the map has a valid number.
        let _ = mark(fd, false);
        let others = self.map.values().filter(|other| **other == meaning).count();
        Some((meaning, others))
    }

    /// Returns the event channel that the descriptor reads from.
    pub(crate) fn channel(&self, fd: RawFd) -> Option<u32> {
        match self.get(fd)? {
            Meaning::Channel(channel) => Some(channel),
            Meaning::File(_) | Meaning::Cm(_) => None,
        }
    }

    /// Forgets the event channels and connection managers, in a child process.
    pub(crate) fn forget_channels(&mut self) {
        self.map.retain(|fd, meaning| {
            if let Meaning::Cm(file) = meaning {
                *file = 0;
            }
            let keep = !matches!(meaning, Meaning::Channel(_));
            if !keep {
                // A descriptor of the map has a valid number.
                let _ = mark(*fd, false);
            }
            keep
        });
    }
}
