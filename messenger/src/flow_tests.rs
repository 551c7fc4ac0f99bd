//! Two sides that exchange messages in every order that the network allows.

use std::collections::VecDeque;

use super::codec::{Greeting, Header, Kind};
use super::flow::{Counts, Flow, RESERVE};

/// A small generator of random numbers (xorshift), so that a failure can be repeated.
struct Random(u64);

impl Random {
    fn below(&mut self, end: u32) -> u32 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        u32::try_from(self.0 % u64::from(end)).expect("less than end")
    }
}

struct Side {
    flow: Flow,
    /// Messages of the peer that the library has not taken out of their receives.
    incoming: VecDeque<Header>,
    /// Receives posted, including those of `incoming`.
    receives: u32,
    /// Number of receives that can be posted, given the messages not consumed.
    buffers: u32,
    /// Data messages that the application has not consumed.
    unread: u32,
    data_sent: u32,
    data_read: u32,
}

impl Side {
    fn new(receives: u32) -> Self {
        let flow = Flow::new(receives);
        Self {
            receives: flow.receives_needed(),
            buffers: receives,
            flow,
            incoming: VecDeque::new(),
            unread: 0,
            data_sent: 0,
            data_read: 0,
        }
    }

    /// A message takes a receive.
    fn arrives(&mut self, header: Header) {
        self.incoming.push_back(header);
        let count = u32::try_from(self.incoming.len()).expect("few messages");
        assert!(
            count <= self.receives,
            "no receive is left: {:?}",
            self.flow
        );
    }

    /// Posts the receives that are needed.
    fn refill(&mut self) {
        self.receives = self.receives.max(self.flow.receives_needed());
        assert!(self.receives <= self.buffers, "{:?}", self.flow);
    }

    /// Sends control messages until none is due.
    fn send_controls(&mut self, peer: &mut Side) {
        while let Some(header) = self.flow.next_control() {
            peer.arrives(header);
        }
    }

    fn send_data(&mut self, peer: &mut Side) -> bool {
        if self.flow.data_credits() == 0 {
            return false;
        }
        self.flow.start_sending();
        self.refill();
        peer.arrives(self.flow.next_data(1, 0));
        self.data_sent += 1;
        true
    }

    /// The library takes a message out of its receive.
    fn receive(&mut self, peer: &mut Side) -> bool {
        let Some(header) = self.incoming.pop_front() else {
            return false;
        };
        self.receives -= 1;
        self.flow.receive(&header).expect("a valid header");
        if header.kind == Kind::Data {
            self.unread += 1;
            self.buffers -= 1;
        }
        self.refill();
        self.send_controls(peer);
        true
    }

    /// The application consumes messages.
    fn read(&mut self, count: u32, peer: &mut Side) {
        let count = count.min(self.unread);
        self.unread -= count;
        self.data_read += count;
        self.buffers += count;
        self.flow.grant(count);
        self.refill();
        self.send_controls(peer);
    }

    fn end(&mut self) {
        self.flow.start_sending();
        self.refill();
        self.flow.end();
    }

    fn is_flushed(&mut self, peer: &mut Side) -> bool {
        let is_flushed = self.flow.check_acked();
        self.send_controls(peer);
        is_flushed
    }
}

fn connected(receives: [u32; 2]) -> (Side, Side) {
    let [mut a, mut b] = receives.map(Side::new);
    let greeting = |receives| Greeting {
        receive_len: 64,
        receives,
        max_len: 1,
    };
    a.flow.greeting_sent();
    b.flow
        .receive_greeting(&greeting(receives[0]))
        .expect("greeting");
    b.flow.greeting_sent();
    a.flow
        .receive_greeting(&greeting(receives[1]))
        .expect("greeting");
    for side in [&mut a, &mut b] {
        side.receives -= 1;
        side.refill();
    }
    (a, b)
}

/// Lets the libraries of both sides exchange everything that is in flight.
fn settle(a: &mut Side, b: &mut Side) {
    let mut steps = 0;
    while a.receive(b) | b.receive(a) {
        steps += 1;
        assert!(steps < 1000, "the sides answer each other forever");
    }
}

/// Returns `true` if the second side only receives, so that it posts fewer receives.
fn is_one_way(seed: u64) -> bool {
    seed % 2 == 0
}

#[test]
fn no_receive_is_overrun_and_no_side_is_stuck() {
    for seed in 1..400 {
        let mut random = Random(0x9e37_79b9_7f4a_7c15_u64.wrapping_mul(seed));
        let receives = [0, 1].map(|_| RESERVE + 1 + random.below(9));
        let (mut a, mut b) = connected(receives);
        for _ in 0..2000 {
            let action = random.below(10);
            let is_a = random.below(2) == 0;
            let (side, peer) = if is_a {
                (&mut a, &mut b)
            } else {
                (&mut b, &mut a)
            };
            match action {
                0..=3 if !is_a && is_one_way(seed) => {}
                0..=3 => drop(side.send_data(peer)),
                4..=6 => drop(side.receive(peer)),
                7 | 8 => side.read(random.below(4), peer),
                _ => drop(side.is_flushed(peer)),
            }
        }
        // A flush needs only the peer's library: its application reads nothing.
        for _ in 0..3 {
            settle(&mut a, &mut b);
            let _ = (a.is_flushed(&mut b), b.is_flushed(&mut a));
        }
        settle(&mut a, &mut b);
        assert!(a.is_flushed(&mut b) && b.is_flushed(&mut a), "seed {seed}");
        // Once the applications read, both sides can send again.
        for _ in 0..3 * receives[0].max(receives[1]) {
            a.read(1, &mut b);
            b.read(1, &mut a);
            settle(&mut a, &mut b);
        }
        assert_eq!((a.unread, b.unread), (0, 0));
        let has_sent = a.send_data(&mut b) && (is_one_way(seed) || b.send_data(&mut a));
        assert!(has_sent, "seed {seed}");
        settle(&mut a, &mut b);
        // Data, a request for an acknowledgement and the end arrive together.
        while a.send_data(&mut b) {}
        let _ = a.is_flushed(&mut b);
        a.end();
        a.send_controls(&mut b);
        settle(&mut a, &mut b);
        assert!(a.flow.end_is_sent() && a.is_flushed(&mut b), "seed {seed}");
        assert!(b.flow.peer_has_ended() && !b.flow.has_ended());
        assert_eq!(a.data_sent, b.data_read + b.unread);
        assert_eq!(b.data_sent, a.data_read + a.unread);
    }
}

#[test]
fn a_stalled_application_stops_only_data() {
    let (mut a, mut b) = connected([RESERVE + 4; 2]);
    while a.send_data(&mut b) {}
    settle(&mut a, &mut b);
    while b.send_data(&mut a) {}
    settle(&mut a, &mut b);
    assert_eq!((a.data_sent, b.data_sent), (4, 4));
    // Any number of flushes succeeds while both applications read nothing.
    for _ in 0..100 {
        let _ = (a.is_flushed(&mut b), b.is_flushed(&mut a));
        settle(&mut a, &mut b);
        assert!(a.is_flushed(&mut b) && b.is_flushed(&mut a));
    }
    b.read(4, &mut a);
    settle(&mut a, &mut b);
    assert!(a.send_data(&mut b));
}

#[test]
fn counts_wrap_around() {
    let (mut a, mut b) = connected([RESERVE + 2; 2]);
    // Both sides have exchanged almost 2^32 messages.
    let counts = Counts {
        messages: u32::MAX - 5,
        data: u32::MAX - 5,
    };
    a.flow.advance(counts, counts);
    b.flow.advance(counts, counts);
    for _ in 0..20 {
        assert!(a.send_data(&mut b));
        settle(&mut a, &mut b);
        b.read(1, &mut a);
        settle(&mut a, &mut b);
        let _ = a.is_flushed(&mut b);
        settle(&mut a, &mut b);
        assert!(a.is_flushed(&mut b));
    }
}

#[test]
fn hostile_headers_are_violations() {
    let valid = |a: &mut Side| a.flow.next_data(1, 0);
    let check = |change: fn(&mut Header), expected: &str| {
        let (mut a, mut b) = connected([RESERVE + 4; 2]);
        let mut header = valid(&mut a);
        change(&mut header);
        let violation = b.flow.receive(&header).expect_err(expected);
        assert!(violation.contains(expected), "{violation}");
    };
    check(|header| header.number += 1, "instead of message 1");
    check(|header| header.number -= 1, "instead of message 1");
    check(|header| header.received += 1, "acknowledges");
    check(|header| header.received = u32::MAX, "acknowledges");
    check(|header| header.limit += 1, "credits");
    check(|header| header.limit = u32::MAX, "credits");
    check(|header| header.limit -= 1, "credits");
    check(|header| header.limit = 0, "credits");

    let (mut a, mut b) = connected([RESERVE + 1; 2]);
    let first = valid(&mut a);
    b.flow.receive(&first).expect("a valid message");
    let uncredited = valid(&mut a);
    let violation = b.flow.receive(&uncredited).expect_err("no credit");
    assert!(violation.contains("exceeds"), "{violation}");

    let (mut a, mut b) = connected([RESERVE + 4; 2]);
    a.flow.end();
    let end = a.flow.next_control().expect("the end");
    b.flow.receive(&end).expect("a valid end");
    let late = valid(&mut a);
    let violation = b.flow.receive(&late).expect_err("data after the end");
    assert!(violation.contains("follows the end"), "{violation}");
}

/// A peer of this library acknowledges before it causes a seventh control message, which the
/// explorations show: without the limit, each message still finds a receive.
#[test]
fn control_messages_without_acknowledgement_are_limited() {
    let (mut a, mut b) = connected([RESERVE + 4; 2]);
    let mut count = 0;
    for _ in 0..=RESERVE {
        let mut request = a.flow.next_data(1, 0);
        (request.kind, request.wants_ack) = (Kind::Control, true);
        request.received = 1; // the greeting
        b.flow.receive(&request).expect("a valid message");
        count += u32::from(b.flow.next_control().is_some());
    }
    assert_eq!(count, RESERVE);
}

#[test]
fn hostile_greetings_are_violations() {
    let greeting = Greeting {
        receive_len: 64,
        receives: RESERVE + 1,
        max_len: 1,
    };
    let changes: [fn(&mut Greeting); 5] = [
        |greeting| greeting.receives = RESERVE,
        |greeting| greeting.receives = u32::MAX,
        |greeting| greeting.receive_len = 63,
        |greeting| greeting.receive_len = 0,
        |greeting| greeting.max_len = 0,
    ];
    for change in changes {
        let mut hostile = greeting;
        change(&mut hostile);
        let mut flow = Flow::new(RESERVE + 1);
        assert!(flow.receive_greeting(&hostile).is_err(), "{hostile:?}");
    }
    Flow::new(RESERVE + 1)
        .receive_greeting(&greeting)
        .expect("valid");
}
