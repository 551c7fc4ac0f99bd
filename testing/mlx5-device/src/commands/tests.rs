use super::*;
use crate::capabilities;
use crate::layout::Field;

/// Sends a command of 16 bytes with some fields and returns its output.
fn send(adapter: &mut Adapter, opcode: u64, operation: u64, fields: &[(Field, u64)]) -> Vec<u8> {
    send_with(adapter, opcode, operation, fields, &[], 0x10)
}

fn send_with(
    adapter: &mut Adapter,
    opcode: u64,
    operation: u64,
    fields: &[(Field, u64)],
    body: &[u8],
    length: usize,
) -> Vec<u8> {
    let mut input = [&[0; 0x10], body].concat();
    header_in::OPCODE.set(&mut input, opcode);
    header_in::OP_MOD.set(&mut input, operation);
    for (field, value) in fields {
        field.set(&mut input, *value);
    }
    execute(adapter, &input, length)
}

fn status(output: &[u8]) -> u64 {
    header_out::STATUS.get(output)
}

const COUNT: Field = Field::new(0x60, 32);
const FIRST_PAGE: u64 = 0x1_0000;

/// Gives pages to the adapter.
fn give(adapter: &mut Adapter, pages: std::ops::Range<u64>) -> Vec<u8> {
    let count = pages.end - pages.start;
    let list: Vec<u8> = pages
        .flat_map(|page| (FIRST_PAGE + page * 4096).to_be_bytes())
        .collect();
    send_with(adapter, 0x108, 1, &[(COUNT, count)], &list, 0x10)
}

/// Starts the adapter as the driver does.
fn started() -> Adapter {
    let mut adapter = Adapter::alone();
    assert_eq!(status(&send(&mut adapter, 0x104, 0, &[])), 0);
    let mut given = 0;
    for kind in [1, 2] {
        let wanted = COUNT.get(&send(&mut adapter, 0x107, kind, &[]));
        assert_eq!(status(&give(&mut adapter, given..given + wanted)), 0);
        given += wanted;
    }
    assert_eq!(status(&send(&mut adapter, 0x102, 0, &[])), 0);
    adapter
}

#[test]
fn an_unknown_command_is_a_bad_operation() {
    let output = send(&mut started(), 0xfff, 0, &[]);
    assert_eq!(status(&output), Status::BadOperation as u64);
    assert_ne!(header_out::SYNDROME.get(&output), 0);
}

#[test]
fn the_table_has_each_opcode_once_in_order() {
    assert!(COMMANDS.is_sorted_by(|a, b| a.opcode < b.opcode));
}

#[test]
fn the_adapter_starts_only_with_the_pages_that_it_asked_for() {
    let mut adapter = Adapter::alone();
    assert_eq!(
        status(&send(&mut adapter, 0x107, 1, &[])),
        Status::BadSystemState as u64
    );
    send(&mut adapter, 0x104, 0, &[]);
    assert_eq!(status(&give(&mut adapter, 0..4)), 0);
    assert_eq!(
        status(&give(&mut adapter, 3..4)),
        Status::BadParameter as u64
    );
    assert_eq!(
        status(&send(&mut adapter, 0x102, 0, &[])),
        Status::BadSystemState as u64
    );
}

#[test]
fn all_pages_are_returned_before_the_adapter_is_disabled() {
    let mut adapter = started();
    assert_eq!(status(&send(&mut adapter, 0x103, 0, &[])), 0);
    assert_eq!(
        status(&send(&mut adapter, 0x105, 0, &[])),
        Status::BadResource as u64
    );
    let mut returned = Vec::new();
    loop {
        let output = send_with(&mut adapter, 0x108, 2, &[(COUNT, 7)], &[], 0x10 + 7 * 8);
        let count = Field::new(0x40, 32).get32(&output) as usize;
        returned.extend(pages(&output[0x10..]).take(count));
        if count == 0 {
            break;
        }
    }
    returned.sort_unstable();
    assert_eq!(
        returned,
        (0..20)
            .map(|page| FIRST_PAGE + page * 4096)
            .collect::<Vec<_>>()
    );
    assert_eq!(status(&send(&mut adapter, 0x105, 0, &[])), 0);
}

#[test]
fn changed_capabilities_leave_the_largest_values() {
    const LOG_MAX_QP: Field = Field::new(0x9b, 5);
    let mut adapter = Adapter::alone();
    send(&mut adapter, 0x104, 0, &[]);
    let mut wanted = adapter
        .objects
        .capabilities
        .get(capabilities::GENERAL, true)
        .unwrap()
        .to_vec();
    LOG_MAX_QP.set(&mut wanted, 9);
    assert_eq!(
        status(&send_with(&mut adapter, 0x109, 0, &[], &wanted, 0x10)),
        0
    );
    let values = [1, 0].map(|current| {
        LOG_MAX_QP
            .at(0x10)
            .get(&send_with(&mut adapter, 0x100, current, &[], &[], 0x1010))
    });
    assert_eq!(values, [9, 18]);
    assert_eq!(
        status(&send_with(&mut adapter, 0x100, 0x7e, &[], &[], 0x1010)),
        3
    );
}

#[test]
fn the_driver_sets_only_the_order_of_bytes_of_atomic_operations() {
    const ORDER: Field = Field::new(0x40, 2);
    const OPERATIONS: Field = Field::new(0x90, 16);
    let mut adapter = Adapter::alone();
    send(&mut adapter, 0x104, 0, &[]);
    let mut wanted = vec![0; capabilities::SIZE];
    ORDER.set(&mut wanted, 1);
    let output = send_with(&mut adapter, 0x109, 3 << 1, &[], &wanted, 0x10);
    assert_eq!(status(&output), 0);
    let present = send_with(&mut adapter, 0x100, 3 << 1 | 1, &[], &[], 0x1010);
    assert_eq!(ORDER.at(0x10).get(&present), 1);
    assert_eq!(OPERATIONS.at(0x10).get(&present), 3);
}

#[test]
fn an_event_queue_needs_a_page_of_doorbells_and_keeps_it() {
    let mut adapter = started();
    let mut body = vec![0; 0x108];
    Field::new(0x68, 24).set(&mut body, 16);
    let create = |adapter: &mut Adapter| send_with(adapter, 0x301, 0, &[], &body, 0x10);
    assert_eq!(status(&create(&mut adapter)), Status::BadResource as u64);
    let page = Field::new(0x48, 24);
    assert_eq!(page.get(&send(&mut adapter, 0x802, 0, &[])), 16);
    let queue = Field::new(0x58, 8).get(&create(&mut adapter));
    let in_use = Status::BadResource as u64;
    assert_eq!(status(&send(&mut adapter, 0x803, 0, &[(page, 16)])), in_use);
    assert_eq!(status(&send(&mut adapter, 0x103, 0, &[])), in_use);
    assert_eq!(
        status(&send(
            &mut adapter,
            0x302,
            0,
            &[(Field::new(0x58, 8), queue)]
        )),
        0
    );
    assert_eq!(status(&send(&mut adapter, 0x803, 0, &[(page, 16)])), 0);
    assert_eq!(status(&send(&mut adapter, 0x103, 0, &[])), 0);
}

#[test]
fn the_version_of_the_firmware_is_found_through_registers() {
    const REGISTER: Field = Field::new(0x50, 16);
    let mut adapter = started();
    let mut read = |register, body: &[u8], length: usize| {
        send_with(
            &mut adapter,
            0x805,
            1,
            &[(REGISTER, register)],
            body,
            0x10 + length,
        )
    };
    let state = read(0x9060, &[0; 0x10], 0x10);
    assert_eq!((state[0x10] >> 7, state[0x17]), (1, 1));
    let mut wanted = [0; 0x18];
    Field::new(0x5b, 5).set(&mut wanted, 1);
    let version = read(0x9061, &wanted, 0x18 + 0x7c);
    assert_eq!(version[0x2c..0x30], [16, 35, 0x03, 0xf4]);
    assert_eq!(
        status(&read(0x9061, &[0; 0x18], 0x18 + 0x7c)),
        Status::BadParameter as u64
    );
    assert_eq!(
        status(&read(0xffff, &[0; 0x18], 0x18)),
        Status::BadParameter as u64
    );
}

#[test]
fn the_port_has_one_address_in_the_subnet() {
    let mut adapter = started();
    let gids = send_with(
        &mut adapter,
        0x764,
        0,
        &[(Field::new(0x70, 16), 0xffff)],
        &[],
        0x10 + 8 * 16,
    );
    let prefixes = gids[0x10..]
        .chunks_exact(16)
        .filter(|gid| gid[..2] == [0xfe, 0xc0])
        .count();
    let interfaces = gids[0x10..]
        .chunks_exact(16)
        .filter(|gid| gid[8..] != [0; 8])
        .count();
    assert_eq!((prefixes, interfaces), (8, 1));
}

#[test]
fn the_driver_changes_only_capabilities_that_the_port_permits() {
    const SELECT: Field = Field::new(0x220, 32);
    const VALUE: Field = Field::new(0x200, 32);
    let mut adapter = started();
    let query = |adapter: &mut Adapter| {
        VALUE
            .at(0x10)
            .get(&send_with(adapter, 0x762, 0, &[], &[], 0x210))
    };
    let modify = |adapter: &mut Adapter, select, value| {
        let mut context = vec![0; 0x200];
        SELECT.set(&mut context, select);
        VALUE.set(&mut context, value);
        status(&send_with(adapter, 0x763, 0, &[], &context, 0x10))
    };
    assert_eq!(
        (
            modify(&mut adapter, 1 << 16, 0xffff_ffff),
            query(&mut adapter)
        ),
        (0, 1 << 16)
    );
    assert_eq!(modify(&mut adapter, 1 << 16, 0), 0);
    assert_eq!(
        modify(&mut adapter, 1 << 2, 1 << 2),
        Status::BadParameter as u64
    );
    assert_eq!(query(&mut adapter), 0);
}

#[test]
fn datagrams_for_the_port_are_answered() {
    const STATUS: Field = Field::new(0xa0, 16);
    const METHOD: Field = Field::new(0x98, 8);
    const ATTRIBUTE: Field = Field::new(0x100, 16);
    let mut adapter = started();
    let mut ask = |method, attribute| {
        let fields = [(METHOD, method), (ATTRIBUTE, attribute)];
        send_with(&mut adapter, 0x50d, 0, &fields, &[0; 0x100], 0x110)
    };
    let port = ask(1, 0x15);
    let data = 0x10 + 64;
    assert_eq!((METHOD.get(&port), STATUS.get(&port)), (0x81, 0));
    // The port is active, its physical link is up, and it has the LID 1.
    assert_eq!((port[data + 32], port[data + 33] >> 4), (0x44, 5));
    assert_eq!(port[data + 16..data + 18], [0, 1]);
    assert_eq!(STATUS.get(&ask(1, 0x20)), 0xc);
    assert_eq!(STATUS.get(&ask(2, 0x15)), 0xc);
}

/// Random numbers (xorshift), the same in each run.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn below(&mut self, limit: u64) -> u64 {
        (self.next() >> 16) % limit
    }

    /// Returns an input: words that are zero, small, random, or addresses in the guest's memory.
    fn input(&mut self, length: usize) -> Vec<u8> {
        let mut input = vec![0; length];
        for word in input.chunks_mut(8) {
            let value = match self.below(5) {
                0 => 0,
                1 => self.next(),
                2 => self.below(MEMORY / 8) * 8,
                3 => self.below(MEMORY / 4096) * 4096,
                _ => self.below(64) << (8 * self.below(8)),
            };
            word.copy_from_slice(&value.to_be_bytes()[..word.len()]);
        }
        input
    }
}

/// Bytes of the guest's memory.
const MEMORY: u64 = 0x10_0000;

#[test]
fn no_input_of_a_command_ends_the_adapter() {
    let mut random = Random(0x0123_4567_89ab_cdef);
    let file = tempfile::tempfile().unwrap();
    file.set_len(MEMORY).unwrap();
    let mut adapter = started();
    adapter.memory.map(0, MEMORY, Some(file), 0);
    let mut succeeded = std::collections::BTreeSet::new();
    // Numbers of objects, at the same offset in outputs and inputs.
    let mut numbers = vec![[0; 3]];
    for _ in 0..1000 {
        for entry in COMMANDS {
            let (least_input, least_output) = entry.lengths;
            let more = usize::try_from(random.below(0x80)).unwrap();
            let mut input = random.input(least_input + more);
            header_in::OPCODE.set(&mut input, u64::from(entry.opcode));
            header_in::OP_MOD.set(&mut input, random.below(4));
            let number = usize::try_from(random.next() >> 1).unwrap() % numbers.len();
            input[9..12].copy_from_slice(&numbers[number]);
            // The event queue of a completion queue.
            if entry.opcode == 0x400
                && let Some((events, _)) = adapter.objects.event_queues.iter().next()
            {
                input[0x27] = u8::try_from(events).unwrap();
            }
            let output = execute(&mut adapter, &input, least_output + more);
            if status(&output) == 0 {
                succeeded.insert(entry.opcode);
                numbers.insert(0, output[9..12].try_into().unwrap());
                numbers.truncate(64);
            }
            adapter.step();
            adapter.objects.phase = Phase::Initialized;
        }
    }
    // The inputs reach more than the checks of lengths and numbers.
    for opcode in [0x200, 0x301, 0x400, 0x500, 0x502, 0x705, 0x90c] {
        assert!(succeeded.contains(&opcode), "{opcode:#x} never succeeded");
    }
}
