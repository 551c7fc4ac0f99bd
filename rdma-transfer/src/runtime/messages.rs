//! The messages between two engines, and what each one changes.

use std::io;
use std::time::{Duration, Instant};

use ibverbs::{Error, ErrorKind, Result};

use crate::device::queue::Queue;
use crate::device::{Path, Waiting};
use crate::failure::{Failure, lock};
use crate::protocol::message::{MAX_NAME, MAX_REQUESTS, Message, VERSION, malformed};
use crate::protocol::path::Fate;
use crate::runtime::shared::Core;
use crate::runtime::state::State;

/// Maximum number of jobs, and of regions, in flight on a path. Over iWARP, those that the peer has
/// receives for can be complete and not acknowledged. One more job can be posted in part.
const MAX_UNKNOWN: usize = 2 * MAX_REQUESTS as usize + 1;
/// Maximum number of replaced keys for each region that a peer can offer: those of several devices,
/// of regions without a name, and of regions that exist no more.
const KEYS_PER_REGION: usize = 16;
/// Time that a peer must wait for each byte of a message, and the length of a message that takes as
/// long as handling an empty one. Decoding takes a tenth of it, so that a peer that sends without
/// pause occupies a small part of the thread of the control connections.
const TIME_PER_BYTE: Duration = Duration::from_nanos(50);
const OVERHEAD: usize = 64;
/// The part of that time for which a peer does not wait at first.
const BURST: Duration = Duration::from_millis(10);
impl State {
    pub(crate) fn send(&mut self, message: &Message) {
        let sent = message
            .to_bytes()
            .and_then(|bytes| self.control.send(bytes));
        if let Err(error) = sent {
            self.control_failed(&error);
        }
    }

    /// Returns `true` if messages of the peer are handled at this time.
    pub(crate) fn can_receive(&self, now: Instant) -> bool {
        let is_early = self.receives_at.is_some_and(|at| at > now + BURST);
        self.ended.is_none() && !is_early
    }

    pub(crate) fn receive(&mut self, now: Instant) -> Option<Message> {
        let received = self.control.receive();
        if let Ok(Some(bytes)) = &received {
            let len = u32::try_from(bytes.len() + OVERHEAD).unwrap_or(u32::MAX);
            let since = self.receives_at.map_or(now, |at| at.max(now));
            self.receives_at = since.checked_add(TIME_PER_BYTE * len);
        }
        let message =
            received.and_then(|bytes| bytes.as_deref().map(Message::from_bytes).transpose());
        message.unwrap_or_else(|error| {
            self.control_failed(&error);
            None
        })
    }

    fn control_failed(&mut self, error: &io::Error) {
        let what = format!("the control connection was lost: {error}");
        self.end(&Failure::new(ErrorKind::Disconnected, &what));
    }

    pub(crate) fn handle(&mut self, core: &Core, message: Message, now: Instant) {
        if let Err(error) = self.try_handle(core, message, now) {
            self.disconnect(&Failure::from(&error));
        }
    }

    fn try_handle(&mut self, core: &Core, message: Message, now: Instant) -> Result<()> {
        match message {
            Message::Hello {
                version,
                random,
                devices,
                queue_pairs,
            } => {
                self.accepts = self.random > random;
                return self.hello(core, version, devices, queue_pairs, now);
            }
            Message::Up {
                path,
                epoch,
                address,
            } => {
                if let Some(path) = self.path(path, epoch)? {
                    path.remote_up(address)?;
                }
            }
            Message::Ready { path, epoch } => {
                if let Some(path) = self.path(path, epoch)? {
                    path.remote_ready()?;
                }
            }
            Message::Down {
                path: number,
                epoch,
                unknown,
            } => {
                if unknown.jobs.len().max(unknown.regions.len()) > MAX_UNKNOWN {
                    return Err(malformed("more jobs than a path has"));
                }
                if let Some(path) = self.path(number, epoch)? {
                    path.remote_down(unknown)?;
                    self.settle(core, number);
                }
            }
            Message::Settled { path, epoch, known } => {
                if let Some(path) = self.path(path, epoch)? {
                    let jobs = path.settled(&known, now)?;
                    self.settled(jobs);
                }
            }
            Message::Received { path, epoch, count } => {
                self.received(core, path, epoch, count)?;
            }
            Message::Abandoned { transfer } => self.arrivals.abandon(transfer)?,
            Message::Key {
                region,
                device,
                key,
            } => {
                let limit = core.options.max_regions.saturating_mul(KEYS_PER_REGION);
                let is_full =
                    self.replaced.len() >= limit && !self.replaced.contains_key(&(region, device));
                if is_full || device >= self.remote_devices {
                    return Err(malformed("a key that this side cannot keep"));
                }
                self.replaced.insert((region, device), key);
            }
            Message::Offer { name, region } => {
                let is_full = self.offers.len() >= core.options.max_regions
                    && !self.offers.contains_key(&name);
                let has_keys = region.keys.len() == self.remote_devices;
                if is_full || !has_keys || name.len() > MAX_NAME {
                    return Err(malformed("a region that this side cannot keep"));
                }
                self.offers.insert(name, region);
            }
            Message::Bye => {
                let what = "the peer has disconnected";
                self.end(&Failure::new(ErrorKind::Disconnected, what));
            }
        }
        Ok(())
    }

    fn hello(
        &mut self,
        core: &Core,
        version: u32,
        devices: usize,
        queue_pairs: usize,
        now: Instant,
    ) -> Result<()> {
        if version != VERSION {
            let what =
                format!("the peer has version {version} of the protocol, expected {VERSION}");
            return Err(Error::new(ErrorKind::Unsupported, "connect", what));
        }
        let here = core.nics.len();
        let count = devices.saturating_mul(queue_pairs);
        let count = count.max(here.saturating_mul(core.options.queue_pairs));
        if devices == 0 || queue_pairs == 0 || !self.paths.is_empty() {
            return Err(malformed("its first message"));
        }
        let max_paths = core.options.max_paths;
        if count > max_paths {
            let what = format!("the peer needs {count} paths; at most {max_paths} are allowed");
            return Err(Error::new(ErrorKind::LimitReached, "connect", what)
                .with_help("increase EngineOptions::max_paths, or use fewer queue pairs"));
        }
        self.remote_devices = devices;
        let paths = 0..count;
        self.paths = paths
            .map(|number| Path::new(number, number % here, &core.options, now))
            .collect();
        Ok(())
    }

    /// Returns a path that a message names, if the epoch is the current one.
    fn path(&mut self, number: usize, epoch: u64) -> Result<Option<&mut Path>> {
        let path = self.paths.get_mut(number);
        let path = path.ok_or_else(|| malformed("a path that does not exist"))?;
        Ok((path.epoch == epoch).then_some(path))
    }

    /// Answers the peer's `Down`, if both sides have closed the path.
    pub(crate) fn settle(&mut self, core: &Core, number: usize) {
        let path = &mut self.paths[number];
        let epoch = path.epoch;
        let Some(mut known) = path.question() else {
            return;
        };
        let arrivals = &self.arrivals;
        known
            .jobs
            .retain(|&(transfer, job)| arrivals.has(transfer, job));
        let registered = lock(&core.owner.releases.registered);
        known.regions.retain(|region| !registered.contains(region));
        drop(registered);
        self.send(&Message::Settled {
            path: number,
            epoch,
            known,
        });
    }

    /// Ends the jobs of an epoch that have arrived. The others continue on other paths.
    fn settled(&mut self, jobs: Vec<(Waiting, Fate)>) {
        for (waiting, fate) in jobs {
            let transfer = &waiting.job.transfer;
            match fate {
                Fate::Arrived => {
                    transfer.progress.add_bytes(waiting.bytes());
                    self.end_job(&waiting.job);
                    continue;
                }
                Fate::Released => {
                    let what = "the peer has released the region";
                    let _ = transfer
                        .failure
                        .set(Failure::new(ErrorKind::Completion, what));
                }
                Fate::Unknown => {}
            }
            self.assign(waiting);
        }
        self.post_all();
    }

    /// Tells the peer how many messages have arrived.
    pub(crate) fn report_received(&mut self, number: usize) {
        let path = &mut self.paths[number];
        let epoch = path.epoch;
        let count = path.queue().and_then(Queue::take_received);
        if let Some(count) = count {
            self.send(&Message::Received {
                path: number,
                epoch,
                count,
            });
        }
    }

    /// Processes the report of the peer about messages that have arrived.
    fn received(&mut self, core: &Core, number: usize, epoch: u64, count: u64) -> Result<()> {
        // The queue pair can be closing.
        let Some(queue) = self.path(number, epoch)?.and_then(Path::queue) else {
            return Ok(());
        };
        let mut events = Vec::new();
        queue.acknowledge(count, |event| events.push(event))?;
        self.process(core, number, events);
        self.post(number);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use fake_provider::{Fake, Profile};
    use ibverbs::RemoteMemory;

    use super::*;
    use crate::device::nic::Nic;
    use crate::memory::region::Owner;
    use crate::options::EngineOptions;
    use crate::protocol::arrivals::Notice;
    use crate::protocol::control::Control;
    use crate::protocol::message::{Address, MAX_LEN, MAX_PATHS, Unknown};
    use crate::protocol::remote_region::RemoteRegion;
    use crate::waker::Waker;

    const KEY: RemoteMemory = RemoteMemory {
        addr: 0,
        len: 8,
        rkey: 1,
    };

    #[derive(Default)]
    struct Sent(Arc<Mutex<Vec<Message>>>);

    impl Control for Sent {
        fn send(&mut self, message: Vec<u8>) -> io::Result<()> {
            lock(&self.0).push(Message::from_bytes(&message)?);
            Ok(())
        }

        fn receive(&mut self) -> io::Result<Option<Vec<u8>>> {
            Ok(None)
        }
    }

    /// Runs a function with the state of a peer that has one device and one path.
    fn with_path(check: impl Fn(&Core, &mut State, &Mutex<Vec<Message>>)) {
        let fake = Fake::new(Profile::RXE);
        let options = EngineOptions::new();
        let owner = Owner {
            id: 0,
            releases: Arc::default(),
        };
        let nic = Nic::open(0, fake.name(), &options).expect("opened");
        let waker = Waker::new().expect("a descriptor");
        let core = Core::new(owner, vec![Arc::new(nic)], options, waker);
        let sent = Sent::default();
        let messages = Arc::clone(&sent.0);
        let mut state = State::new(Box::new(sent), &core.immediates);
        state.handle(&core, hello(VERSION, 1), Instant::now());
        assert!(state.ended.is_none() && state.paths.len() == 1);
        check(&core, &mut state, &messages);
    }

    fn hello(version: u32, devices: usize) -> Message {
        Message::Hello {
            version,
            random: 0,
            devices,
            queue_pairs: 1,
        }
    }

    /// Returns the messages about a path.
    fn of_path(path: usize, epoch: u64) -> [Message; 5] {
        let address = Address::Cm {
            listener: None,
            secret: 1,
            receives: 1,
        };
        let (unknown, known) = <(Unknown, Unknown)>::default();
        [
            Message::Up {
                path,
                epoch,
                address,
            },
            Message::Ready { path, epoch },
            Message::Down {
                path,
                epoch,
                unknown,
            },
            Message::Settled { path, epoch, known },
            Message::Received {
                path,
                epoch,
                count: 0,
            },
        ]
    }

    /// Gives up creating a queue pair.
    fn close(core: &Core, state: &mut State) {
        state.closed(core, 0, Instant::now());
    }

    #[test]
    fn messages_of_other_epochs_change_nothing() {
        with_path(|core, state, sent| {
            let now = Instant::now();
            close(core, state);
            let [_, _, down, settled, _] = of_path(0, 0);
            for message in [down, settled] {
                state.handle(core, message, now);
            }
            assert_eq!((state.paths[0].epoch, lock(sent).len()), (1, 2));
            for closed in [false, true] {
                if closed {
                    close(core, state);
                }
                let count = lock(sent).len();
                for message in [of_path(0, 0), of_path(0, 2)].concat() {
                    state.handle(core, message, now);
                }
                assert_eq!((state.paths[0].epoch, lock(sent).len()), (1, count));
            }
            assert!(state.ended.is_none(), "{:?}", state.ended);
        });
    }

    #[test]
    fn the_side_with_the_larger_number_accepts() {
        with_path(|core, state, _| {
            assert!(state.accepts && state.random > 0);
            state.paths.clear();
            state.random = 0;
            state.handle(core, hello(VERSION, 1), Instant::now());
            assert!(!state.accepts);
        });
    }

    #[test]
    fn the_answer_names_what_has_arrived_and_what_was_released() {
        with_path(|core, state, sent| {
            let notice = Notice {
                transfer: 3,
                job: 0,
                jobs: 2,
                value: 1,
            };
            state.arrivals.add(&notice).expect("few transfers");
            lock(&core.owner.releases.registered).insert(5);
            close(core, state);
            lock(sent).clear();
            let down = |jobs, regions| Message::Down {
                path: 0,
                epoch: 0,
                unknown: Unknown { jobs, regions },
            };
            let asked = down(vec![(3, 0), (3, 1), (4, 0)], vec![5, 6]);
            state.handle(core, asked, Instant::now());
            let known = Unknown {
                jobs: vec![(3, 0)],
                regions: vec![6],
            };
            let answer = Message::Settled {
                path: 0,
                epoch: 0,
                known,
            };
            assert_eq!(*lock(sent), [answer]);
        });
    }

    #[test]
    fn a_peer_with_wrong_messages_is_disconnected() {
        let key = |device| Message::Key {
            region: 0,
            device,
            key: KEY,
        };
        let offer = |name: &str, keys| Message::Offer {
            name: name.to_owned(),
            region: RemoteRegion {
                id: 0,
                keys: vec![KEY; keys],
            },
        };
        let others = [
            hello(VERSION, 1),
            key(1),
            offer("two keys", 2),
            offer(&"n".repeat(MAX_NAME + 1), 1),
        ];
        // The path is idle, so only the first and the third message of a peer are in order.
        let [_, ready, _, settled, _] = of_path(0, 0);
        let wrong = of_path(1, 0).into_iter().chain([ready, settled]);
        for wrong in wrong.chain(others) {
            with_path(|core, state, sent| {
                let now = Instant::now();
                state.handle(core, key(0), now);
                state.handle(core, offer(&"n".repeat(MAX_NAME), 1), now);
                assert!(state.ended.is_none(), "{:?}", state.ended);
                state.handle(core, wrong.clone(), now);
                assert!(state.ended.is_some(), "{wrong:?}");
                assert_eq!(*lock(sent), [Message::Bye], "{wrong:?}");
            });
        }
        with_path(|core, state, _| {
            for name in 0..core.options.max_regions {
                state.handle(core, offer(&name.to_string(), 1), Instant::now());
            }
            state.handle(core, offer("1", 1), Instant::now());
            assert!(state.ended.is_none(), "{:?}", state.ended);
            state.handle(core, offer("one more", 1), Instant::now());
            assert!(state.ended.is_some());
        });
        with_path(|core, state, _| {
            let max = (core.options.max_regions * KEYS_PER_REGION) as u64;
            state
                .replaced
                .extend((1..max).map(|region| ((region, 0), KEY)));
            for (region, is_full) in [(0, false), (1, false), (u64::MAX, true)] {
                let key = Message::Key {
                    region,
                    device: 0,
                    key: KEY,
                };
                state.handle(core, key, Instant::now());
                assert_eq!(state.ended.is_some(), is_full);
            }
        });
        let max_paths = EngineOptions::new().max_paths;
        let first = [
            (hello(VERSION + 1, 1), false),
            (hello(VERSION, 0), false),
            (hello(VERSION, max_paths + 1), false),
            (hello(VERSION, max_paths), true),
        ];
        for (first, is_valid) in first {
            with_path(|core, state, _| {
                state.paths.clear();
                state.handle(core, first.clone(), Instant::now());
                assert_eq!(state.ended.is_none(), is_valid, "{first:?}");
            });
        }
    }

    #[test]
    fn the_longest_messages_can_be_sent() {
        let key = RemoteMemory {
            addr: u64::MAX,
            len: u64::MAX,
            rkey: u32::MAX,
        };
        let region = RemoteRegion {
            id: u64::MAX,
            keys: vec![key; MAX_PATHS],
        };
        let offer = Message::Offer {
            name: "\u{1}".repeat(MAX_NAME),
            region,
        };
        let down = |count| Message::Down {
            path: 0,
            epoch: 0,
            unknown: Unknown {
                jobs: vec![(u64::MAX, u32::MAX); count],
                regions: vec![u64::MAX; count],
            },
        };
        for message in [offer, down(MAX_UNKNOWN)] {
            assert!(message.to_bytes().expect("encoded").len() < MAX_LEN - 64);
        }
        with_path(|core, state, _| {
            state.handle(core, down(MAX_UNKNOWN), Instant::now());
            assert!(state.ended.is_none());
            state.handle(core, down(MAX_UNKNOWN + 1), Instant::now());
            assert!(state.ended.is_some());
        });
    }
}
