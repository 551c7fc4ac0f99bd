//! The targets of `testing/fuzz` for the messages of a peer. They panic if an input reveals a
//! fault.

use super::codec::{GREETING_LEN, Greeting, HEADER_LEN, Header};
use super::exploration_tests::{State, Step};
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

/// Two messengers, in a sequence of steps whose order the input selects. It also changes, repeats,
/// omits and reorders messages. Without such a change, no step fails.
pub fn messenger_sequence(data: &[u8]) {
    let Some((first, mut rest)) = data.split_first() else {
        return;
    };
    let windows = [first & 3, first >> 2 & 3].map(|window| 1 + u32::from(window));
    let mut state = State::new(windows, 3);
    let mut is_hostile = false;
    while let Some((action, after)) = rest.split_first() {
        rest = after;
        let side = usize::from(action & 1);
        let step = match action >> 1 & 15 {
            12 if action >> 5 == 0 => Step::End,
            0..=2 | 12 => Step::Receive,
            3 | 4 => Step::Pump,
            5 | 6 => Step::Send {
                fragments: 1 + u32::from(action >> 5) % 3,
            },
            7 | 8 => Step::SendFragment,
            9 | 10 => Step::Read,
            11 => Step::Flush,
            change => {
                let (argument, after) = rest.split_first().unwrap_or((&0, &[]));
                rest = after;
                is_hostile |= interfere(&mut state, side, (change, *argument));
                continue;
            }
        };
        if let Err(error) = state.step(side, step) {
            assert!(is_hostile, "{error}");
            return;
        }
    }
}

/// Changes the messages that have arrived at a side. Returns `false` if there are none.
fn interfere(state: &mut State, side: usize, (change, argument): (u8, u8)) -> bool {
    let incoming = &mut state.0[side].incoming;
    let Some(mut message) = incoming.pop_front() else {
        return false;
    };
    match change {
        13 => {
            let at = usize::from(argument >> 3) % message.len();
            message[at] ^= 1 << (argument & 7);
            incoming.push_front(message);
        }
        14 => {
            // The repetition takes the receive of the next message.
            if let Some(next) = incoming.front_mut() {
                next.clone_from(&message);
            }
            incoming.push_front(message);
        }
        _ if argument & 1 == 0 => incoming.push_back(message),
        _ => {}
    }
    true
}

#[cfg(test)]
mod tests {
    use test_support::random::Random;

    #[test]
    fn random_sequences_fail_only_when_they_are_changed() {
        let mut random = Random::new(1);
        for number in 0..20_000 {
            let len = random.below(200);
            // Without this bit, no action changes a message.
            let mask = if number % 2 == 0 { 0xef } else { 0xff };
            let byte = |random: &mut Random| random.next_u64().to_le_bytes()[3] & mask;
            let input: Vec<_> = (0..len).map(|_| byte(&mut random)).collect();
            super::messenger_sequence(&input);
        }
        test_support::corpus::replay("messenger_sequence", super::messenger_sequence);
    }

    #[test]
    fn corpus_is_replayed() {
        test_support::corpus::replay("messenger", super::messenger);
    }
}
