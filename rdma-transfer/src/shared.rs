//! The state of an engine that its peers share.

use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

use ibverbs::Result;

use crate::failure::lock;
use crate::immediates::Immediates;
use crate::nic::Nic;
use crate::options::EngineOptions;

/// The devices of an engine and their threads, which end when this is dropped.
pub(crate) struct Shared {
    pub(crate) id: u64,
    pub(crate) nics: Vec<Arc<Nic>>,
    pub(crate) immediates: Arc<Immediates>,
    pub(crate) options: EngineOptions,
    /// Maximum length of a request in bytes.
    pub(crate) stripe: usize,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

impl Shared {
    pub(crate) fn new(id: u64, nics: Vec<Arc<Nic>>, options: EngineOptions, stripe: usize) -> Self {
        Self {
            id,
            nics,
            immediates: Arc::default(),
            options,
            stripe,
            threads: Mutex::default(),
        }
    }

    /// Starts the thread of each device.
    pub(crate) fn start(&self) -> Result<()> {
        for nic in &self.nics {
            lock(&self.threads).push(nic.start()?);
        }
        Ok(())
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        self.nics.iter().for_each(|nic| nic.stop());
        for thread in lock(&self.threads).drain(..) {
            // A thread that panicked has nothing left to do.
            let _ = thread.join();
        }
    }
}
