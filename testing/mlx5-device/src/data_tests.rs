//! Data moves between queue pairs whose contexts, queues and memory are those of a guest.

use nic_model::DeviceFault;

use crate::adapter::{Adapter, Phase};
use crate::commands;
use crate::device::Device;
use crate::layout::Field;

/// Places in the guest's memory.
const EVENTS: u64 = 0x1_0000;
const COMPLETIONS: u64 = 0x2_0000;
const COMPLETION_DOORBELL: u64 = 0x2_1040;
const QUEUES: [u64; 2] = [0x3_0000, 0x4_0000];
const QUEUE_DOORBELLS: [u64; 2] = [0x5_0000, 0x5_0100];
/// Pages of registered memory, in their order.
const DATA: [u64; 2] = [0x8_0000, 0x7_0000];
/// Address of the registered memory in the program: it begins inside a page.
const IOVA: u64 = 0x7f00_0000_0f00;
const UAR: u64 = 16;
const NUMBER: Field = Field::new(0x48, 24);
const SEND_SIZE: u64 = 64;
/// Kinds of completions, and the reason of a failed one.
const RESIZED: u8 = 5;
const REQUEST_ERROR: u8 = 13;
const LOCAL_OPERATION: u8 = 0x02;
const REMOTE_ACCESS: u8 = 0x13;
/// Statuses of commands.
const BAD_PARAMETER: u8 = 3;
const BAD_STATE: u8 = 4;
const BAD_RESOURCE: u8 = 5;

struct Guest {
    device: Device,
    cq: u32,
    qps: [u32; 2],
    key: u32,
}

impl Guest {
    /// Starts an adapter with a completion queue, two queue pairs and a memory key of two pages.
    fn new() -> Self {
        let file = tempfile::tempfile().unwrap();
        file.set_len(0x10_0000).unwrap();
        let mut device = Device::new(Adapter::alone());
        device.adapter.memory.map(0, 0x10_0000, Some(file), 0);
        device.adapter.objects.phase = Phase::Initialized;
        device.adapter.objects.doorbell_pages.insert(()).unwrap();
        let mut guest = Self {
            device,
            cq: 0,
            qps: [0; 2],
            key: 0,
        };
        let page = (Field::new(0x880, 64), EVENTS);
        let events = [(Field::new(0xe3, 5), 1), (Field::new(0xe8, 24), UAR), page];
        guest.command(0x301, 0x118, &events);
        let log_size = (Field::new(0xe3, 5), 2);
        let doorbell = (Field::new(0x240, 64), COMPLETION_DOORBELL);
        let page = (Field::new(0x880, 64), COMPLETIONS);
        guest.cq = guest.create(0x400, 0x118, &[log_size, doorbell, page]);
        guest.qps = [0, 1].map(|index| guest.create_qp(index));
        guest.key = guest.create_key(0);
        guest
    }

    /// Executes a command and returns its output.
    fn command(&mut self, opcode: u64, length: usize, fields: &[(Field, u64)]) -> Vec<u8> {
        let output = self.try_command(opcode, length, fields);
        assert_eq!(output[0], 0, "the command {opcode:#x} failed");
        output
    }

    fn try_command(&mut self, opcode: u64, length: usize, fields: &[(Field, u64)]) -> Vec<u8> {
        let mut input = vec![0; length];
        Field::new(0, 16).set(&mut input, opcode);
        for (field, value) in fields {
            field.set(&mut input, *value);
        }
        commands::execute(&mut self.device.adapter, &input, 0x210)
    }

    fn create(&mut self, opcode: u64, length: usize, fields: &[(Field, u64)]) -> u32 {
        NUMBER.get32(&self.command(opcode, length, fields))
    }

    /// Creates a reliable queue pair with four receive requests of 16 bytes and four send blocks.
    fn create_qp(&mut self, index: usize) -> u32 {
        self.create_qp_of_type(index, 0)
    }

    fn create_qp_of_type(&mut self, index: usize, kind: u64) -> u32 {
        let context = |offset, width| Field::new(offset, width).at(0x18);
        let fields = [
            (context(0x8, 8), kind),
            (context(0x49, 4), 2),
            (context(0x51, 4), 2),
            (context(0x3e8, 24), u64::from(self.cq)),
            (context(0x4e8, 24), u64::from(self.cq)),
            (context(0x88, 24), 0x70 + index as u64),
            (context(0x500, 64), QUEUE_DOORBELLS[index]),
            (Field::new(0x880, 64), QUEUES[index]),
        ];
        self.create(0x500, 0x118, &fields)
    }

    /// Creates a key for 0x200 bytes of two pages, with all rights.
    fn create_key(&mut self, variant: u32) -> u32 {
        let context = |offset, width| Field::new(offset, width).at(0x10);
        let fields = [
            (context(0x11, 5), 0x1f),
            (context(0x16, 2), 1),
            (context(0x38, 8), u64::from(variant)),
            (context(0x80, 64), IOVA),
            (context(0xc0, 64), 0x200),
            (context(0x1db, 5), 12),
            // The lowest bits are rights.
            (Field::new(0x880, 64), DATA[0] | 3),
            (Field::new(0x8c0, 64), DATA[1] | 3),
        ];
        self.create(0x200, 0x120, &fields) << 8 | variant
    }

    /// Changes both queue pairs to be able to send to each other.
    fn connect(&mut self) {
        let context = |offset, width| Field::new(offset, width).at(0x18);
        for (own, peer) in [(0, 1), (1, 0)] {
            let number = (NUMBER, u64::from(self.qps[own]));
            let peer = (context(0xa8, 24), u64::from(self.qps[peer]));
            self.command(0x502, 0x110, &[number, (context(0x491, 1), 1)]);
            self.command(0x503, 0x110, &[number, peer, (context(0x40, 3), 3)]);
            self.command(0x504, 0x110, &[number]);
        }
    }

    fn write(&self, address: u64, bytes: &[u8]) {
        self.device.adapter.memory.write(address, bytes).unwrap();
    }

    fn read(&self, address: u64, length: usize) -> Vec<u8> {
        let mut bytes = vec![0; length];
        self.device
            .adapter
            .memory
            .read(address, &mut bytes)
            .unwrap();
        bytes
    }

    fn segment(&self, length: u32, offset: u64) -> Vec<u8> {
        let address = (IOVA + offset).to_be_bytes();
        [&length.to_be_bytes()[..], &self.key.to_be_bytes(), &address].concat()
    }

    /// Posts the first request of the send queue of a queue pair, and rings its doorbell.
    fn post_send(&mut self, index: usize, opcode: u8, segments: &[Vec<u8>]) {
        let size = u32::try_from(segments.len() + 1).unwrap();
        let mut request = vec![0, 0, 0, opcode];
        request.extend((self.qps[index] << 8 | size).to_be_bytes());
        request.extend([0, 0, 0, 8, 0, 0, 0, 0]);
        let request = [request, segments.concat()].concat();
        self.write(QUEUES[index] + SEND_SIZE, &request);
        self.write(QUEUE_DOORBELLS[index] + 4, &1_u32.to_be_bytes());
        self.device.write(UAR * 4096 + 0x800, &request[..8]);
    }

    /// Returns the kind, the user index and the byte count of a completion.
    fn completion(&self, index: u64) -> (u8, u32, u32) {
        let entry = self.read(COMPLETIONS + index * 64, 64);
        let word = |at: usize| u32::from_be_bytes(entry[at..at + 4].try_into().unwrap());
        (entry[63], word(32), word(44))
    }
}

/// Returns the segment of a request that names memory of the peer.
fn remote(key: u32, offset: u64) -> Vec<u8> {
    let address = (IOVA + offset).to_be_bytes();
    [&address[..], &key.to_be_bytes(), &[0; 4]].concat()
}

#[test]
fn a_message_goes_to_the_pages_of_a_receive_request() {
    let mut guest = Guest::new();
    guest.connect();
    guest.write(DATA[0] + 0xf00, &[b'a'; 0x10]);
    let receive = guest.segment(0x40, 0xf8);
    guest.write(QUEUES[1], &receive);
    guest.write(QUEUE_DOORBELLS[1], &1_u32.to_be_bytes());
    let send = guest.segment(0x10, 0);
    guest.post_send(0, 0x0a, &[send]);
    // The message is in two pages that are not adjacent.
    assert_eq!(guest.read(DATA[0] + 0xff8, 8), [b'a'; 8]);
    assert_eq!(guest.read(DATA[1], 9), *b"aaaaaaaa\0");
    assert_eq!(guest.completion(0), (2 << 4, 0x71, 0x10));
    assert_eq!(guest.completion(1), (0, 0x70, 0x10));
}

#[test]
fn an_armed_completion_queue_reports_one_event() {
    let mut guest = Guest::new();
    guest.connect();
    let remote = remote(guest.key, 0x40);
    let data = guest.segment(8, 0);
    // Arms the queue after its creation, as `mlx5_arm_cq` of libmlx5 does.
    guest.write(COMPLETION_DOORBELL + 4, &[0; 4]);
    guest.device.write(UAR * 4096 + 0x20, &[0; 8]);
    guest.write(DATA[0] + 0xf00, b"12345678");
    guest.post_send(0, 0x08, &[remote, data]);
    assert_eq!(guest.read(DATA[0] + 0xf40, 8), b"12345678");
    let event = guest.read(EVENTS, 64);
    assert_eq!((event[1], &event[56..60]), (0, &guest.cq.to_be_bytes()[..]));
    assert_eq!(guest.read(EVENTS + 64, 64), [0; 64]);
}

#[test]
fn a_write_without_a_right_fails_and_both_sides_report_it() {
    let mut guest = Guest::new();
    guest.connect();
    let remote = remote(0x00de_ad00, 0);
    let data = guest.segment(8, 0);
    guest.post_send(0, 0x08, &[remote, data]);
    let (kind, index, _) = guest.completion(0);
    assert_eq!((kind >> 4, index), (REQUEST_ERROR, 0x70));
    assert_eq!(guest.read(COMPLETIONS + 55, 1), [REMOTE_ACCESS]);
    let state = guest.command(0x50b, 0x10, &[(NUMBER, u64::from(guest.qps[1]))]);
    assert_eq!(state[0x18] >> 4, 6);
}

#[test]
fn a_state_follows_only_the_one_before() {
    let mut guest = Guest::new();
    let number = (NUMBER, u64::from(guest.qps[0]));
    assert_eq!(guest.try_command(0x504, 0x110, &[number])[0], BAD_STATE);
    guest.connect();
    let context = guest.command(0x50b, 0x10, &[number]);
    assert_eq!(context[0x18] >> 4, 3);
    let peer = Field::new(0xa8, 24).at(0x18);
    assert_eq!(peer.get32(&context), guest.qps[1]);
}

#[test]
fn a_doorbell_record_that_is_not_aligned_is_refused() {
    let mut guest = Guest::new();
    let page = (Field::new(0x880, 64), COMPLETIONS);
    for (offset, status) in [(8, 0), (4, BAD_PARAMETER), (1, BAD_PARAMETER)] {
        let doorbell = (Field::new(0x240, 64), COMPLETION_DOORBELL + offset);
        let output = guest.try_command(0x400, 0x118, &[doorbell, page]);
        assert_eq!(output[0], status);
    }
}

#[test]
fn objects_of_pages_outside_of_the_memory_are_refused() {
    let mut guest = Guest::new();
    let doorbell = (Field::new(0x240, 64), COMPLETION_DOORBELL);
    let page = (Field::new(0x880, 64), 0x10_0000);
    let output = guest.try_command(0x400, 0x118, &[doorbell, page]);
    assert_eq!(output[0], BAD_PARAMETER);
    // The length of a key, and the size of its pages, are too large.
    let context = |offset, width| Field::new(offset, width).at(0x10);
    let mode = (context(0x16, 2), 1);
    for (length, log_page) in [(u64::MAX, 12), (0x200, 31)] {
        let fields = [
            mode,
            (context(0x80, 64), IOVA),
            (context(0xc0, 64), length),
            (context(0x1db, 5), log_page),
            (Field::new(0x880, 64), DATA[0]),
        ];
        assert_eq!(guest.try_command(0x200, 0x120, &fields)[0], BAD_PARAMETER);
    }
    guest.command(0x501, 0x10, &[(NUMBER, u64::from(guest.qps[0]))]);
    let again = guest.try_command(0x501, 0x10, &[(NUMBER, u64::from(guest.qps[0]))]);
    assert_eq!(again[0], BAD_RESOURCE);
}

#[test]
fn a_completion_queue_continues_in_its_new_memory() {
    const LARGER: u64 = 0x6_0000;
    let mut guest = Guest::new();
    guest.connect();
    let number = (NUMBER, u64::from(guest.cq));
    let resize = (Field::new(0x30, 16), 1);
    let size = (Field::new(0xe3, 5), 4);
    let page = (Field::new(0x880, 64), LARGER);
    guest.command(0x403, 0x118, &[number, resize, size, page]);
    // The old memory ends with an entry that tells the driver to continue in the new one.
    assert_eq!(guest.completion(0).0 >> 4, RESIZED);
    let key = guest.key;
    let data = guest.segment(8, 0);
    guest.post_send(0, 0x08, &[remote(key, 0x40), data]);
    let entry = guest.read(LARGER + 64, 64);
    assert_eq!((entry[63], entry[35]), (0, 0x70));
    let other = (Field::new(0x30, 16), 2);
    let output = guest.try_command(0x403, 0x118, &[number, other]);
    assert_eq!(output[0], BAD_PARAMETER);
}

#[test]
fn a_key_of_physical_addresses_reaches_all_memory() {
    let mut guest = Guest::new();
    guest.connect();
    let context = |offset, width| Field::new(offset, width).at(0x10);
    let fields = [
        (context(0x60, 1), 1),
        (context(0x14, 2), 3),
        (context(0x12, 1), 1),
    ];
    let key = guest.create(0x200, 0x110, &fields) << 8;
    guest.write(DATA[0] + 0xf00, b"physical");
    let data = guest.segment(8, 0);
    let address = (DATA[1] + 0x800).to_be_bytes();
    let target = [&address[..], &key.to_be_bytes(), &[0; 4]].concat();
    guest.post_send(0, 0x08, &[target, data]);
    assert_eq!(guest.read(DATA[1] + 0x800, 8), b"physical");
}

#[test]
fn a_queue_pair_leaves_only_a_group_that_it_is_in() {
    let mut guest = Guest::new();
    let number = (NUMBER, u64::from(guest.qps[0]));
    let group = (Field::new(0x80, 64), 0xff12);
    guest.command(0x806, 0x20, &[number, group]);
    guest.command(0x807, 0x20, &[number, group]);
    assert_eq!(
        guest.try_command(0x807, 0x20, &[number, group])[0],
        BAD_RESOURCE
    );
}

#[test]
fn only_the_driver_changes_the_rights_of_registered_memory() {
    const UMR: u8 = 0x25;
    const REMOTE_WRITE: u64 = 1 << 20;
    const REQUESTER: u64 = 0xc;
    for (kind, result) in [(REQUESTER, 0), (0, REQUEST_ERROR)] {
        let mut guest = Guest::new();
        guest.qps[0] = guest.create_qp_of_type(0, kind);
        guest.connect();
        let mut control = vec![0; 48];
        control[8..16].copy_from_slice(&REMOTE_WRITE.to_be_bytes());
        let request = [
            vec![0, 0, 0, UMR],
            (guest.qps[0] << 8 | 8).to_be_bytes().to_vec(),
        ];
        let key = guest.key.to_be_bytes();
        let rest = [&[0, 0, 0, 8][..], &key, &control, &[0; 64]].concat();
        guest.write(QUEUES[0] + SEND_SIZE, &[request.concat(), rest].concat());
        guest.write(QUEUE_DOORBELLS[0] + 4, &2_u32.to_be_bytes());
        guest.device.write(UAR * 4096 + 0x800, &[0; 8]);
        assert_eq!(guest.completion(0).0 >> 4, result);
        if result == 0 {
            // The right was taken away.
            let (key, data) = (guest.key, guest.segment(8, 0));
            guest.post_send(1, 0x08, &[remote(key, 0x40), data]);
            assert_eq!(guest.completion(1).0 >> 4, REQUEST_ERROR);
        }
    }
}

#[test]
fn a_malformed_request_stops_only_its_queue_pair() {
    const UNKNOWN_OPERATION: u8 = 0x3f;
    let mut guest = Guest::new();
    guest.connect();
    let qp = guest.qps[0];
    let write = [remote(guest.key, 0x40), guest.segment(8, 0)].concat();
    // The second request has an unknown operation and claims to be longer than the queue.
    for (index, opcode, segments) in [(0, 0x08, 3), (1, UNKNOWN_OPERATION, 0x3f)] {
        let size = (qp << 8 | segments).to_be_bytes();
        let request = [
            &[0, 0, index, opcode][..],
            &size,
            &[0, 0, 0, 8, 0, 0, 0, 0],
            &write,
        ];
        guest.write(
            QUEUES[0] + SEND_SIZE * (1 + u64::from(index)),
            &request.concat(),
        );
    }
    guest.write(QUEUE_DOORBELLS[0] + 4, &2_u32.to_be_bytes());
    guest.device.write(UAR * 4096 + 0x800, &[0; 8]);
    assert_eq!(guest.completion(0).0 >> 4, 0);
    assert_eq!(guest.completion(1).0 >> 4, REQUEST_ERROR);
    assert_eq!(guest.read(COMPLETIONS + 64 + 55, 1), [LOCAL_OPERATION]);
    let state = guest.command(0x50b, 0x10, &[(NUMBER, u64::from(qp))]);
    assert_eq!(state[0x18] >> 4, 6);
    let other = guest.command(0x50b, 0x10, &[(NUMBER, u64::from(guest.qps[1]))]);
    assert_eq!(other[0x18] >> 4, 3);
}

#[test]
fn a_fatal_error_is_reported_until_the_driver_resets_it() {
    const HEALTH: u64 = 0x200 + 0x38;
    const INTERFACE: u64 = 0x14;
    let mut guest = Guest::new();
    guest.connect();
    guest.device.adapter.engine.fail(DeviceFault::Fatal);
    let data = guest.segment(8, 0);
    guest.post_send(0, 0x08, &[remote(guest.key, 0x40), data]);
    assert_eq!(guest.read(COMPLETIONS, 64), [0; 64]);
    let mut health = [0; 8];
    guest.device.read(HEALTH, &mut health);
    // A request for a reset, and an error of the firmware.
    assert_eq!(health, [0x80, 0, 0, 0, 0, 1, 0, 0]);
    guest
        .device
        .write(INTERFACE, &0x0000_0700_u32.to_be_bytes());
    assert_eq!(guest.device.adapter.count(), 0);
    let mut interface = [0; 4];
    guest.device.read(INTERFACE, &mut interface);
    assert_eq!(interface[2] & 7, 1);
    guest.device.read(HEALTH, &mut health);
    assert_eq!(health, [0; 8]);
}

#[test]
fn a_change_of_the_link_is_an_event_of_the_port() {
    const PORT_CHANGE: u8 = 9;
    let mut guest = Guest::new();
    let page = (Field::new(0x880, 64), 0x6_0000);
    let mask = (Field::new(0x2c0, 64), 1 << PORT_CHANGE);
    let fields = [
        (Field::new(0xe3, 5), 1),
        (Field::new(0xe8, 24), UAR),
        page,
        mask,
    ];
    guest.command(0x301, 0x118, &fields);
    let state = |guest: &mut Guest| guest.command(0x762, 0x10, &[])[0x10 + 0x23] >> 4;
    let event = |guest: &mut Guest, index: u64| {
        guest.device.adapter.step();
        let event = guest.read(0x6_0000 + index * 64, 64);
        (event[1], event[3], event[32 + 8])
    };
    assert_eq!(state(&mut guest), 4);
    guest.device.adapter.engine.fail(DeviceFault::LinkDown);
    assert_eq!(event(&mut guest, 0), (PORT_CHANGE, 1, 0x10));
    assert_eq!(state(&mut guest), 1);
    guest.device.adapter.engine.repair();
    assert_eq!(event(&mut guest, 1), (PORT_CHANGE, 4, 0x10));
    assert_eq!(state(&mut guest), 4);
}

#[test]
fn no_key_is_the_one_that_ends_a_list_of_memory() {
    const END_OF_LIST: u32 = 0x100;
    let mut guest = Guest::new();
    // The driver chooses the low byte.
    assert_eq!(guest.key & 0xff, 0);
    assert!(guest.key > END_OF_LIST);
    assert!(guest.create_key(0x5a) > guest.key);
}

#[test]
fn traffic_and_failed_links_are_counted() {
    let mut guest = Guest::new();
    guest.connect();
    let remote = remote(guest.key, 0x40);
    let data = guest.segment(8, 0);
    guest.post_send(0, 0x08, &[remote, data]);
    let counters = guest.command(0x770, 0x20, &[]);
    // One request with data, and its acknowledgement: packets and bytes.
    let traffic = [2_u64.to_be_bytes(), 8_u64.to_be_bytes()].concat();
    assert_eq!(counters[0x30..0x50], [&traffic[..], &traffic].concat());
    guest.device.adapter.engine.fail(DeviceFault::LinkDown);
    guest.device.work();
    let register = (Field::new(0x50, 16), 0x5008);
    let mut read = guest.try_command(0x805, 0x110, &[register, (Field::new(0x30, 16), 1)]);
    assert_eq!((read[0], read.remove(0x10 + 8 + 3)), (0, 1));
}

#[test]
fn a_whole_request_in_a_page_of_doorbells_is_executed() {
    let mut guest = Guest::new();
    let context = |offset, width| Field::new(offset, width).at(0x20);
    let cq = (context(0x48, 24), u64::from(guest.cq));
    let queue = guest.create(0x904, 0x1b0, &[cq, (context(0x28, 24), 0x55)]);
    let state = [(NUMBER, u64::from(queue))];
    guest.command(0x905, 0x1a0, &state);
    let mut request = [0; 64];
    request[2] = 7;
    request[4..8].copy_from_slice(&(queue << 8 | 1).to_be_bytes());
    request[11] = 8;
    let empty = guest.completion(0);
    for (number, part) in request.chunks(8).enumerate() {
        assert_eq!(guest.completion(0), empty, "the request is not whole");
        let offset = UAR * 4096 + 0x900 + number as u64 * 8;
        guest.device.write(offset, part);
    }
    assert_eq!(guest.completion(0), (0, 0x55, 0));
    assert_eq!(guest.read(COMPLETIONS + 60, 2), [0, 7]);
    guest.command(0x906, 0x10, &state);
    assert_eq!(guest.try_command(0x905, 0x1a0, &state)[0], BAD_RESOURCE);
}
