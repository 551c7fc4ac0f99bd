//! The memory that a hostile peer can make an engine use has the limits of ARCHITECTURE.md.

#![allow(
    unsafe_code,
    reason = "implementing a global allocator is unsafe; this one counts bytes and forwards calls"
)]

mod common;

use std::alloc::{GlobalAlloc, Layout, System};
use std::io::{ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Instant;

use fake_provider::{Fake, Profile};
use rdma_transfer::{Engine, EngineOptions, Peer, StreamControl};

use common::{connect, imm};

static USED: AtomicUsize = AtomicUsize::new(0);
static PEAK: AtomicUsize = AtomicUsize::new(0);

/// Forwards to the system allocator and counts the bytes of the process.
struct CountingAllocator;

fn add(len: usize) {
    PEAK.fetch_max(USED.fetch_add(len, Relaxed) + len, Relaxed);
}

// SAFETY: all calls are forwarded to the system allocator. The default methods call these two.
unsafe impl GlobalAlloc for CountingAllocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        add(layout.size());
        // SAFETY: the caller upholds the contract of this function.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        USED.fetch_sub(layout.size(), Relaxed);
        // SAFETY: the caller upholds the contract of this function.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

/// Checks that an attack takes at most the memory in the row of the table that begins with `name`.
fn check(name: &str, attack: impl FnOnce()) {
    let table = include_str!("../ARCHITECTURE.md");
    let row = table
        .lines()
        .find(|line| line.starts_with(&format!("| {name} |")));
    let cells = row.expect(name).split(" | ");
    let limit = cells.last().and_then(|cell| cell.strip_suffix(" MB |"));
    let limit: usize = limit.and_then(|limit| limit.parse().ok()).expect(name);
    let before = USED.load(Relaxed);
    PEAK.store(before, Relaxed);
    attack();
    let taken = PEAK.load(Relaxed) - before;
    println!("{name}: {taken} bytes");
    assert!(
        (limit * 500_000..limit * 1_000_000).contains(&taken),
        "{name}: {taken} bytes, and the table has {limit} MB"
    );
}

/// The engine that is attacked, and its peer.
struct Target {
    engine: Engine,
    peer: Peer,
    stream: UnixStream,
}

impl Target {
    fn new(engine: &Engine) -> Self {
        let (stream, theirs) = UnixStream::pair().expect("sockets");
        stream.set_nonblocking(true).expect("non-blocking");
        let control = StreamControl::new(theirs).expect("non-blocking");
        Self {
            engine: engine.clone(),
            peer: engine.connect(control).expect("connects"),
            stream,
        }
    }

    /// Returns a target that has accepted the first message.
    fn connected(engine: &Engine) -> Self {
        let mut target = Self::new(engine);
        target.send(&hello(1));
        target
    }

    fn poll(&self) {
        self.engine.poll(Instant::now());
    }

    /// Sends bytes as fast as the engine reads them, until the peer is disconnected.
    fn send_bytes(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() && self.peer.is_connected() {
            match self.stream.write(bytes) {
                Ok(count) => bytes = &bytes[count..],
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                Err(_) => return,
            }
            self.poll();
            // The replies.
            let _ = self.stream.read(&mut [0; 4096]);
        }
    }

    fn send(&mut self, message: &str) {
        self.send_bytes(&frame(message));
    }

    /// Sends messages until the engine disconnects the peer.
    fn flood(mut self, message: impl Fn(usize) -> String) {
        for first in (0..1_000_000).step_by(100) {
            let messages = (first..first + 100).map(|number| frame(&message(number)));
            self.send_bytes(&messages.collect::<Vec<_>>().concat());
            if !self.peer.is_connected() {
                return;
            }
        }
        panic!("a million messages like {}", message(0));
    }
}

fn frame(message: &str) -> Vec<u8> {
    let len = u32::try_from(message.len()).expect("fits");
    [&len.to_le_bytes(), message.as_bytes()].concat()
}

fn hello(devices: usize) -> String {
    format!(r#"{{"Hello":{{"version":1,"random":0,"devices":{devices},"queue_pairs":1}}}}"#)
}

#[test]
fn the_memory_for_a_hostile_peer_is_limited() {
    const KEY: &str = r#"{"addr":0,"len":8,"rkey":1}"#;
    let fake = Fake::new(Profile::RXE);
    let options = EngineOptions::new().manual(true);
    let [engine, other] = [(); 2].map(|()| Engine::open(&[fake.name()], options).expect("engine"));
    let region = engine.alloc(64).expect("region");

    let start = r#"{"Settled":{"path":0,"epoch":0,"known":{"jobs":[],"regions":["#;
    let end = "1]}}}";
    let numbers = "1,".repeat(((512 << 10) - start.len() - end.len()) / 2);
    let message = [start, &numbers, end].concat();
    let frame = frame(&message);
    check("a message", || {
        let mut target = Target::connected(&engine);
        target.send_bytes(&frame);
        (0..20).for_each(|_| target.poll());
        // It answers no question.
        assert!(!target.peer.is_connected());
    });
    check("messages that it does not read", || {
        let target = Target::new(&engine);
        while target.peer.is_connected() {
            target.peer.offer("name", &region).expect("a short name");
            target.poll();
        }
    });
    check("jobs that have arrived", || {
        let abandoned = |number| format!(r#"{{"Abandoned":{{"transfer":{}}}}}"#, 2 * number);
        Target::connected(&engine).flood(abandoned);
    });
    check("regions that it offers", || {
        Target::connected(&engine).flood(|number| {
            let region = format!(r#"{{"id":{number},"keys":[{KEY}]}}"#);
            format!(r#"{{"Offer":{{"name":"{number:0256}","region":{region}}}}}"#)
        });
    });
    check("new keys of its regions", || {
        Target::connected(&engine)
            .flood(|number| format!(r#"{{"Key":{{"region":{number},"device":0,"key":{KEY}}}}}"#));
    });
    check("paths", || {
        let mut target = Target::new(&engine);
        target.send(&hello(options.max_paths));
        (0..20).for_each(|_| target.poll());
        assert_eq!(target.peer.paths().len(), options.max_paths);
    });
    let mut target = Target::new(&engine);
    target.send(&hello(options.max_paths + 1));
    (0..20).for_each(|_| target.poll());
    assert!(!target.peer.is_connected());

    let (of_engine, of_other) = connect(&engine, &other);
    let source = other.alloc(64).expect("region");
    let poll = || [&engine, &other].map(|engine| engine.poll(Instant::now()));
    while !of_other.paths().first().is_some_and(|path| path.is_ready) {
        poll();
    }
    check("values of immediates", || {
        for value in 0..100_000 {
            let sent = of_other.write(&source, &region.remote(), &[], imm(value));
            if sent.is_err() {
                return assert!(!of_engine.is_connected());
            }
            if value % 64 == 0 {
                poll();
            }
        }
        panic!("100,000 values");
    });
}
