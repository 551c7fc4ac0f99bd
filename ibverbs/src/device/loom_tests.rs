//! Every interleaving of a poll with the creation and destruction of queue pairs, with loom, on a
//! provider that finds the queue pair of a completion by number when it polls.

mod sync {
    pub(super) use std::sync::PoisonError;

    pub(super) use loom::sync::{RwLock, RwLockReadGuard, RwLockWriteGuard};
}

#[path = "qp_numbers.rs"]
mod qp_numbers;

use std::any::Any;
use std::collections::BTreeMap;

use loom::sync::{Arc, Mutex};
use loom::thread;

use self::qp_numbers::QpNumbers;
use crate::numbers::Qpn;

/// A device whose kernel assigns the lowest free number.
#[derive(Default)]
struct Device {
    /// Identities of the queue pairs, by number.
    qps: BTreeMap<u32, u32>,
    /// Completions that were not polled: the number and the identity of their queue pair.
    completions: Vec<(u32, u32)>,
}

#[derive(Default)]
struct Model {
    numbers: QpNumbers,
    device: Mutex<Device>,
}

impl Model {
    fn create_once(&self, id: u32) -> u32 {
        let mut device = self.device.lock().expect("lock");
        let mut number = 1;
        while device.qps.contains_key(&number) {
            number += 1;
        }
        device.qps.insert(number, id);
        number
    }

    fn remove(&self, number: u32) {
        self.device.lock().expect("lock").qps.remove(&number);
    }

    /// Does what `QueuePair::create` does.
    fn create(&self, id: u32) {
        let mut numbers = self.numbers.write();
        let mut replaced = Vec::new();
        loop {
            let number = self.create_once(id);
            if !numbers.contains(Qpn(number)) {
                break;
            }
            replaced.push(number);
        }
        for number in replaced {
            self.remove(number);
        }
    }

    /// Does what `QueuePair::destroy_raw` does, with a request in flight.
    fn destroy(&self, number: u32, cq: &std::sync::Arc<dyn Any + Send + Sync>) {
        let mut numbers = self.numbers.write();
        self.remove(number);
        numbers.add(Qpn(number), [std::sync::Arc::downgrade(cq)]);
    }

    /// Does what `strict::poll` does. The provider looks the queue pair up.
    fn poll(&self) {
        let numbers = self.numbers.read();
        let completion = self.device.lock().expect("lock").completions.pop();
        if let Some((number, id)) = completion {
            let found = self.device.lock().expect("lock").qps.get(&number).copied();
            assert!(
                found.is_none_or(|found| found == id),
                "of queue pair {found:?}"
            );
        }
        drop(numbers);
    }
}

#[test]
fn no_completion_is_that_of_a_later_queue_pair() {
    loom::model(|| {
        let model = Arc::new(Model::default());
        let cq: std::sync::Arc<dyn Any + Send + Sync> = std::sync::Arc::new(());
        let number = model.create_once(1);
        model
            .device
            .lock()
            .expect("lock")
            .completions
            .push((number, 1));
        let polling = {
            let model = Arc::clone(&model);
            thread::spawn(move || model.poll())
        };
        model.destroy(number, &cq);
        model.create(2);
        polling.join().expect("thread");
        model.poll();
    });
}
