//! The interface for tests.

use std::fmt;
use std::sync::MutexGuard;

use crate::device::FakeDevice;
use crate::fault::{PostFault, Verb};
use crate::profile::Profile;
use crate::state::DeviceState;

/// A fake device and the controls of a test over it. Each `Fake` is a separate device, so tests can
/// run in parallel.
///
/// Dropping it removes the device from the device list. The drop panics if the program under test
/// violated a rule of the verbs API.
///
/// # Example
/// ```
/// let fake = fake_provider::Fake::extended();
/// assert_eq!(fake.live(), fake_provider::Live::default());
/// ```
pub struct Fake {
    device: &'static FakeDevice,
}

/// Number of live objects of a device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[allow(
    missing_docs,
    reason = "each field counts the objects it is named after"
)]
pub struct Live {
    pub contexts: usize,
    pub pds: usize,
    pub mrs: usize,
    pub mws: usize,
    pub dms: usize,
    pub channels: usize,
    pub cqs: usize,
    pub qps: usize,
    pub srqs: usize,
    pub ahs: usize,
    pub xrcds: usize,
    pub tds: usize,
    pub parents: usize,
    pub flows: usize,
}

impl Fake {
    /// Adds a device with this behavior.
    pub fn new(profile: Profile) -> Self {
        crate::keep_entry_points();
        Self {
            device: FakeDevice::add(profile),
        }
    }

    /// Adds a device with the extended verbs, similar to Soft-RoCE.
    pub fn extended() -> Self {
        Self::new(Profile::RXE)
    }

    /// Adds a device with only the classic verbs, similar to Soft-iWARP.
    pub fn classic() -> Self {
        Self::new(Profile::SIW)
    }

    /// Returns the name of the device.
    pub fn name(&self) -> &str {
        self.device.name()
    }

    /// Changes the behavior of the device.
    pub fn set(&self, change: impl FnOnce(&mut Profile)) {
        change(&mut self.state().profile);
    }

    /// Stops the execution of requests until [`resume`](Self::resume) is called.
    pub fn stall(&self) {
        self.state().stalled = true;
    }

    /// Executes the requests posted since [`stall`](Self::stall), one queue pair after another, and
    /// continues normally.
    pub fn resume(&self) {
        let mut state = self.state();
        state.stalled = false;
        for qp in state.qp_indices() {
            state.resume_late(qp);
            state.progress(qp);
        }
    }

    /// Ends the transmission of all requests and responses whose memory the device still reads.
    /// Records a violation if the memory of an unsignaled request was changed since its post.
    pub fn finish_transmissions(&self) {
        self.state().finish_transmissions();
    }

    /// Keeps the memory of the contexts, extended completion queues and queue pairs that are
    /// destroyed from now on.
    pub fn keep_destroyed(&self) {
        self.state().destroyed = Some(Vec::new());
    }

    /// Returns `true` if the memory of a [kept](Self::keep_destroyed) object was written to.
    pub fn destroyed_were_changed(&self) -> bool {
        self.state().destroyed_were_changed()
    }

    /// Raises an asynchronous event of this type (`enum ibv_event_type`) for each object of the
    /// device that it applies to. Port events are raised for port 1.
    pub fn raise(&self, event_type: u32) {
        self.state().raise_all(event_type);
    }

    /// Makes the next call of `verb` fail with this error number: positive, or 0 for a failure that
    /// sets no `errno`. Faults of several calls are queued. [`Verb::GetDeviceList`] takes no
    /// device, so it fails only on the calling thread.
    pub fn fail_next(&self, verb: Verb, errno: i32) {
        let mut state = self.state();
        match verb {
            Verb::PollCq => state.faults.add_poll(0, errno),
            verb => state.faults.add(verb, errno),
        }
    }

    /// Makes a poll fail after the next `entries` completions.
    pub fn fail_poll_after(&self, entries: usize, errno: i32) {
        self.state().faults.add_poll(entries, errno);
    }

    /// Makes the next post to a queue fail.
    pub fn fail_post(&self, fault: PostFault) {
        self.state().faults.add_post(fault);
    }

    /// Returns the number of live objects.
    pub fn live(&self) -> Live {
        let state = self.state();
        Live {
            contexts: state.contexts.len(),
            pds: state.pds.len(),
            mrs: state.mrs.len(),
            mws: state.mws.len(),
            dms: state.dms.len(),
            channels: state.channels.len(),
            cqs: state.cqs.len(),
            qps: state.qps.len(),
            srqs: state.srqs.len(),
            ahs: state.ahs.len(),
            xrcds: state.xrcds.len(),
            tds: state.tds.len(),
            parents: state.parents.len(),
            flows: state.flows.len(),
        }
    }

    /// Returns the violations of the verbs API so far and clears them.
    pub fn take_violations(&self) -> Vec<String> {
        std::mem::take(&mut self.state().violations)
    }

    /// Returns `true` if every injected fault has occurred.
    pub fn all_faults_happened(&self) -> bool {
        self.state().faults.is_empty()
    }

    /// Checks that no object is alive, no rule was violated, and every injected fault has occurred.
    ///
    /// # Panics
    /// Panics if one of these conditions is false.
    #[track_caller]
    pub fn assert_clean(&self) {
        assert_eq!(self.live(), Live::default(), "live objects");
        assert_eq!(self.state().violations, Vec::<String>::new());
        assert!(
            self.all_faults_happened(),
            "an injected fault has not occurred"
        );
    }

    fn state(&self) -> MutexGuard<'static, DeviceState> {
        self.device.state()
    }
}

impl fmt::Debug for Fake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Fake")
            .field("name", &self.name())
            .field("live", &self.live())
            .finish()
    }
}

impl Drop for Fake {
    fn drop(&mut self) {
        self.device.unlist();
        let violations = self.take_violations();
        assert!(
            violations.is_empty() || std::thread::panicking(),
            "rules of the verbs API were violated: {violations:#?}"
        );
    }
}
