//! Checks that a test leaves no RDMA objects behind.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::thread;
use std::time::{Duration, Instant};
use std::{fs, process};

use crate::process::run_line;

/// Number of objects of each kind (`pd`, `cq`, `qp`, `cm_id`, `mr`, `ctx`, `srq`).
pub type ObjectCounts = BTreeMap<String, u64>;

/// Objects of the model of an adapter (`nic-model`), in the format of `rdma resource show`.
const MODEL_OBJECTS: &str = "/dev/infiniband/nic-model/objects";

/// Number of file descriptors that only the model uses.
const MODEL_DESCRIPTORS: &str = "/dev/infiniband/nic-model/descriptors";

/// Returns the number of RDMA objects on each device, as counted by `rdma resource show`, or by the
/// model of an adapter if this process has one.
///
/// # Panics
/// Panics if the command fails or names no device.
pub fn objects() -> BTreeMap<String, ObjectCounts> {
    let text = fs::read_to_string(MODEL_OBJECTS).unwrap_or_else(|_| run_line("rdma resource show"));
    let all: BTreeMap<String, ObjectCounts> = text.lines().filter_map(parse).collect();
    assert!(
        !all.is_empty(),
        "rdma resource show names no device: {text}"
    );
    all
}

/// Returns the number of file descriptors of this process, without those that the model of an
/// adapter uses.
///
/// # Panics
/// Panics if the descriptors cannot be listed.
pub fn descriptors() -> usize {
    let all = || {
        let list = fs::read_dir("/proc/self/fd").expect("descriptors of this process");
        list.count()
    };
    loop {
        let Ok(before) = fs::read_to_string(MODEL_DESCRIPTORS) else {
            return all();
        };
        let count = all();
        // The model may open or close some meanwhile.
        if fs::read_to_string(MODEL_DESCRIPTORS).is_ok_and(|after| after == before) {
            return count - before.trim().parse::<usize>().expect("a number");
        }
    }
}

/// Returns the number of RDMA objects on one device.
///
/// # Panics
/// Panics if the device does not exist.
pub fn objects_of(device: &str) -> ObjectCounts {
    objects()
        .remove(device)
        .unwrap_or_else(|| panic!("rdma resource show does not list {device}"))
}

/// Parses a line such as `2: rxe0: pd 1 cq 1 qp 1 cm_id 0 mr 0 ctx 0 srq 0`.
fn parse(line: &str) -> Option<(String, ObjectCounts)> {
    let (_index, rest) = line.split_once(": ")?;
    let (device, counts) = rest.split_once(": ")?;
    let words: Vec<&str> = counts.split_whitespace().collect();
    let count = |pair: &[&str]| (pair[0].to_owned(), pair[1].parse().expect("a count"));
    Some((
        device.to_owned(),
        words.chunks_exact(2).map(count).collect(),
    ))
}

/// A check that a test leaves no object behind. It counts the objects when it is created and again
/// when it is dropped, so declare it before the objects under test.
///
/// With the feature `verbs`, it also checks that `ibverbs` could destroy each object.
#[derive(Debug)]
pub struct LeakCheck {
    device: Option<String>,
    timeout: Duration,
    before: BTreeMap<String, ObjectCounts>,
}

impl LeakCheck {
    /// Counts the objects of all devices.
    pub fn new() -> Self {
        Self::start(None)
    }

    /// Counts the objects of one device and the file descriptors of this process. Objects of
    /// earlier tests on other devices may still be disappearing.
    pub fn on_device(device: &str) -> Self {
        Self::start(Some(device.to_owned()))
    }

    /// Sets the time that the kernel has to destroy the last objects. The default is 0.
    #[must_use]
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    fn start(device: Option<String>) -> Self {
        Self {
            before: count(device.as_deref()),
            device,
            timeout: Duration::ZERO,
        }
    }
}

fn count(device: Option<&str>) -> BTreeMap<String, ObjectCounts> {
    let Some(device) = device else {
        return objects();
    };
    let descriptors = u64::try_from(descriptors()).expect("few");
    BTreeMap::from([
        (device.to_owned(), objects_of(device)),
        (
            format!("process {}", process::id()),
            ObjectCounts::from([("descriptors".to_owned(), descriptors)]),
        ),
    ])
}

impl Default for LeakCheck {
    fn default() -> Self {
        Self::new()
    }
}

impl Drop for LeakCheck {
    fn drop(&mut self) {
        if thread::panicking() {
            return;
        }
        let deadline = Instant::now() + self.timeout;
        loop {
            let after = count(self.device.as_deref());
            if after == self.before {
                break;
            }
            assert!(
                Instant::now() < deadline,
                "objects left behind: before {:?}, after {after:?}",
                self.before
            );
            thread::sleep(Duration::from_millis(20));
        }
        #[cfg(feature = "verbs")]
        assert_eq!(ibverbs::leaked_objects(), 0, "objects not destroyed");
    }
}

/// Leaks a value, as [`mem::forget`](std::mem::forget) does, but keeps a pointer to it, so that
/// LeakSanitizer does not report it.
///
/// # Panics
/// Panics if another thread panicked in this function.
pub fn forget<T>(value: T) {
    static LEAKED: Mutex<Vec<usize>> = Mutex::new(Vec::new());
    let address = Box::into_raw(Box::new(value)).expose_provenance();
    LEAKED.lock().expect("not poisoned").push(address);
}
