//! The target of `testing/fuzz` for the messages of a peer. It panics if an input reveals a fault.

use super::codec::{GREETING_LEN, Greeting, HEADER_LEN, Header};
use super::flow::{Flow, RESERVE};

/// Number of receives of this side.
const RECEIVES: u32 = 16;

/// Reads a greeting, then messages. The two bytes before a header select what this side does before
/// it arrives.
pub fn messenger(data: &[u8]) {
    let Ok(greeting) = Greeting::decode(data) else {
        // Most inputs are no greeting.
        let _ = Header::decode(data).map(assert_encodes);
        return;
    };
    assert_eq!(Greeting::decode(&greeting.encode()), Ok(greeting));
    let mut flow = Flow::new(RECEIVES);
    flow.greeting_sent();
    if flow.receive_greeting(&greeting).is_err() {
        return;
    }
    assert!(flow.greeting_is_sent());
    let window = greeting.receives - RESERVE;
    for step in data[GREETING_LEN..].chunks_exact(2 + HEADER_LEN) {
        let (actions, header) = step.split_at(2);
        act(&mut flow, actions[0], actions[1]);
        // The payload has the announced length, within the length of a receive.
        let len = u32::from_be_bytes([header[16], header[17], header[18], header[19]]) as usize;
        let mut message = header.to_vec();
        message.resize(HEADER_LEN + len.min(64), 0);
        let Ok(header) = Header::decode(&message) else {
            return;
        };
        assert_encodes(header);
        if flow.receive(&header).is_err() {
            return;
        }
        assert!(flow.data_credits() <= window, "{flow:?}");
    }
}

fn act(flow: &mut Flow, actions: u8, count: u8) {
    flow.grant(u32::from(count) % RECEIVES);
    if actions & 1 != 0 {
        flow.check_acked();
    }
    if actions & 2 != 0 && !flow.has_ended() && flow.data_credits() > 0 {
        assert_encodes(flow.next_data(1, 0));
    }
    if actions & 4 != 0 {
        flow.end();
    }
    if actions & 8 != 0 {
        // Each control message takes one of the reserved receives until it is acknowledged.
        let sent = std::iter::from_fn(|| flow.next_control()).map(assert_encodes);
        assert!(sent.count() <= RESERVE as usize);
    }
    assert!(!flow.end_is_sent() || flow.has_ended());
}

/// Asserts that an encoded header is decoded to the same header.
fn assert_encodes(header: Header) {
    let mut message = header.encode().to_vec();
    message.resize(HEADER_LEN + header.len as usize, 0);
    assert_eq!(Header::decode(&message), Ok(header));
}

#[cfg(test)]
mod tests {
    #[test]
    fn corpus_is_replayed() {
        test_support::corpus::replay("messenger", super::messenger);
    }
}
