//! The order in which the parts of a region are dropped.

use std::sync::OnceLock;
use std::sync::atomic::AtomicUsize;

use fake_provider::{Fake, Profile};

use super::*;
use crate::device::nic::Nic;
use crate::options::EngineOptions;

/// Bytes that record the number of users of their memory when they are dropped.
#[derive(Default)]
pub(crate) struct Watching {
    bytes: [u8; 8],
    pub(crate) uses: Arc<OnceLock<Arc<Uses>>>,
    pub(crate) seen: Arc<AtomicUsize>,
}

impl AsRef<[u8]> for Watching {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl AsMut<[u8]> for Watching {
    fn as_mut(&mut self) -> &mut [u8] {
        &mut self.bytes
    }
}

impl Drop for Watching {
    fn drop(&mut self) {
        let count = self.uses.get().map_or(0, |uses| *lock(&uses.count));
        self.seen.store(count, Ordering::Relaxed);
    }
}

#[test]
fn a_region_is_released_after_its_memory() {
    let fake = Fake::new(Profile::RXE);
    let nic = Nic::open(0, fake.name(), &EngineOptions::new()).expect("opened");
    let owner = Owner {
        id: 0,
        releases: Arc::default(),
    };
    for is_mut in [false, true] {
        let value = Watching::default();
        let (uses, seen) = (Arc::clone(&value.uses), Arc::clone(&value.seen));
        let domains = [nic.domain()];
        let region = if is_mut {
            Region::from_owner_mut(&owner, &domains, value)
        } else {
            Region::from_owner(&owner, &domains, value)
        };
        let region = region.expect("registered");
        assert!(lock(&owner.releases.registered).contains(&region.0.id));
        let uses = uses.get_or_init(|| region.0.uses());
        drop(region);
        assert_eq!((seen.load(Ordering::Relaxed), *lock(&uses.count)), (1, 0));
        assert!(lock(&owner.releases.registered).is_empty());
        assert_eq!(fake.live().mrs, 0);
    }
    assert_eq!(owner.releases.count.load(Ordering::Relaxed), 2);
}
