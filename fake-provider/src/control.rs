//! What a test sees of the provider.

use std::fmt;
use std::sync::MutexGuard;

use crate::device::FakeDevice;
use crate::fault::{PostFault, Verb};
use crate::profile::Profile;
use crate::world::World;

/// A fake device, and the test's hand on it. Each is a device of its own, so that tests run side by
/// side.
///
/// Dropping it takes the device off the list, and panics if a rule of verbs was broken on it.
///
/// # Example
/// ```
/// let fake = fake_provider::Fake::extended();
/// assert_eq!(fake.live(), fake_provider::Live::default());
/// ```
pub struct Fake {
    device: &'static FakeDevice,
}

/// How many objects of a device are alive.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs, reason = "each counts the objects of that name")]
pub struct Live {
    pub contexts: usize,
    pub pds: usize,
    pub mrs: usize,
    pub mws: usize,
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
    /// Adds a device with these manners.
    pub fn new(profile: Profile) -> Self {
        crate::keep_entry_points();
        Self {
            device: FakeDevice::add(profile),
        }
    }

    /// A device with the extended verbs, as Soft-RoCE.
    pub fn extended() -> Self {
        Self::new(Profile::RXE)
    }

    /// A device with the classic verbs only, as Soft-iWARP.
    pub fn classic() -> Self {
        Self::new(Profile::SIW)
    }

    /// The device's name.
    pub fn name(&self) -> &str {
        self.device.name()
    }

    /// Changes its manners from now on.
    pub fn set(&self, change: impl FnOnce(&mut Profile)) {
        change(&mut self.world().profile);
    }

    /// Executes nothing of what is posted from now on, until [`resume`](Self::resume).
    pub fn stall(&self) {
        self.world().stalled = true;
    }

    /// Executes what was posted meanwhile, queue pair by queue pair, and goes on.
    pub fn resume(&self) {
        let mut world = self.world();
        world.stalled = false;
        for qp in world.qp_numbers() {
            world.progress(qp);
        }
    }

    /// An asynchronous event of this type (`enum ibv_event_type`) happens to each object of the
    /// device that it can happen to: queues, or port 1.
    pub fn raise(&self, event_type: u32) {
        self.world().raise_all(event_type);
    }

    /// The next call of `verb` fails with this error number (positive, or 0 for a failure without a
    /// reason). Several add up. [`Verb::GetDeviceList`], which names no device, fails in this
    /// thread only.
    pub fn fail_next(&self, verb: Verb, errno: i32) {
        let mut world = self.world();
        match verb {
            Verb::PollCq => world.faults.add_poll(0, errno),
            verb => world.faults.add(verb, errno),
        }
    }

    /// A poll fails after so many more entries were handed out.
    pub fn fail_poll_after(&self, entries: usize, errno: i32) {
        self.world().faults.add_poll(entries, errno);
    }

    /// The next post to the queue fails in this way.
    pub fn fail_post(&self, fault: PostFault) {
        self.world().faults.add_post(fault);
    }

    /// What is alive now.
    pub fn live(&self) -> Live {
        let world = self.world();
        Live {
            contexts: world.contexts.len(),
            pds: world.pds.len(),
            mrs: world.mrs.len(),
            mws: world.mws.len(),
            channels: world.channels.len(),
            cqs: world.cqs.len(),
            qps: world.qps.len(),
            srqs: world.srqs.len(),
            ahs: world.ahs.len(),
            xrcds: world.xrcds.len(),
            tds: world.tds.len(),
            parents: world.parents.len(),
            flows: world.flows.len(),
        }
    }

    /// The rules of verbs that were broken so far; none of them is asked about again.
    pub fn take_violations(&self) -> Vec<String> {
        std::mem::take(&mut self.world().violations)
    }

    /// Whether every fault that was ordered has happened.
    pub fn all_faults_happened(&self) -> bool {
        self.world().faults.is_empty()
    }

    /// Panics if an object is alive or a rule was broken.
    ///
    /// # Panics
    /// It is an assertion.
    #[track_caller]
    pub fn assert_clean(&self) {
        assert_eq!(self.live(), Live::default(), "objects are left");
        assert_eq!(self.world().violations, Vec::<String>::new());
        assert!(
            self.all_faults_happened(),
            "a fault that was ordered did not happen"
        );
    }

    fn world(&self) -> MutexGuard<'static, World> {
        self.device.world()
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
        self.device.take_off_list();
        let violations = self.take_violations();
        assert!(
            violations.is_empty() || std::thread::panicking(),
            "rules of verbs were broken: {violations:#?}"
        );
    }
}
