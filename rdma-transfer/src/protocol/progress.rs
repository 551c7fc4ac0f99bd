//! The progress of a transfer, which its jobs report and the program waits for.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use crate::failure::{Failure, lock};
use crate::protocol::signal::Signal;

/// The progress of a transfer.
#[derive(Debug)]
pub(crate) struct Progress {
    pub(crate) state: Mutex<State>,
    pub(crate) ended: Signal,
    /// Number of canceled transfers of the engine, so that peers look for their jobs.
    cancels: Arc<AtomicU64>,
}

#[derive(Debug)]
pub(crate) struct State {
    /// Number of jobs that have not ended.
    pub(crate) in_flight: usize,
    pub(crate) bytes: u64,
    pub(crate) bytes_done: u64,
    /// The first failure.
    pub(crate) failure: Option<Failure>,
    is_canceled: bool,
    pub(crate) is_confirmed: bool,
}

impl Progress {
    pub(crate) fn new(jobs: usize, bytes: u64, cancels: Arc<AtomicU64>) -> Arc<Self> {
        let state = State {
            in_flight: jobs,
            bytes,
            bytes_done: 0,
            failure: None,
            is_canceled: false,
            is_confirmed: true,
        };
        Arc::new(Self {
            state: Mutex::new(state),
            ended: Signal::default(),
            cancels,
        })
    }

    /// Records transferred bytes.
    pub(crate) fn add_bytes(&self, bytes: u64) {
        lock(&self.state).bytes_done += bytes;
    }

    /// Records the end of a job. No device accesses memory for it anymore.
    pub(crate) fn end_job(&self, failure: Option<&Failure>) {
        let mut state = lock(&self.state);
        state.in_flight -= 1;
        if state.failure.is_none() {
            state.failure = failure.cloned();
        }
        if state.in_flight == 0 {
            self.ended.notify();
        }
    }

    /// Records that a job ends although the peer has not confirmed that no device of its side
    /// accesses memory for it.
    pub(crate) fn set_unconfirmed(&self) {
        lock(&self.state).is_confirmed = false;
    }

    /// Lets the jobs end early, unless the transfer has ended.
    pub(crate) fn cancel(&self, reason: &Failure) {
        let mut state = lock(&self.state);
        if state.in_flight > 0 {
            state.is_canceled = true;
            state.failure.get_or_insert_with(|| reason.clone());
            self.cancels.fetch_add(1, Ordering::AcqRel);
        }
    }

    pub(crate) fn is_canceled(&self) -> bool {
        lock(&self.state).is_canceled
    }
}
