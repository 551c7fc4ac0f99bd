//! Tests of the formats.

use std::time::Duration;

use ibverbs::{AccessFlags, RemoteMemory};

use crate::wire::*;

/// Returns the bytes of a command that differ from 0, with their offsets.
fn set_bytes(command: &Command) -> Vec<(usize, u8)> {
    let bytes = command.as_bytes().iter().copied().enumerate();
    bytes.filter(|(_, byte)| *byte != 0).collect()
}

#[test]
fn connect_names_the_queue_its_size_and_the_keep_alive_timeout() {
    let command = Command::connect(0x0102, 33, Duration::from_millis(0x1234)).with_id(7);
    let fabrics = [(0, 0x7f), (1, 0x40), (2, 7), (4, 1), (39, 0x40)];
    let fields = [(42, 2), (43, 1), (44, 32), (48, 0x34), (49, 0x12)];
    assert_eq!(set_bytes(&command), [fabrics, fields].concat());
    assert_eq!(command.data_access(), AccessFlags::REMOTE_READ);
    assert_eq!(command.data_len(), 1024);
}

#[test]
fn connect_data_has_the_names_at_their_offsets() {
    let id = "00112233-4455-6677-8899-aabbccddeeff";
    let data = connect_data(id, 0xfffe, "nqn.a").expect("a short name");
    assert_eq!(data[..4], [0, 0x11, 0x22, 0x33]);
    assert_eq!(data[15..18], [0xff, 0xfe, 0xff]);
    assert_eq!(&data[256..262], b"nqn.a\0");
    let host = format!("nqn.2014-08.org.nvmexpress:uuid:{id}\0");
    assert_eq!(&data[512..][..host.len()], host.as_bytes());
    assert!(connect_data(id, 0, &"n".repeat(223)).is_ok());
    assert!(connect_data(id, 0, &"n".repeat(224)).is_err());
    assert!(connect_data("host", 0, "nqn.a").is_err());
}

#[test]
fn properties_have_offsets_and_sizes() {
    assert_eq!(
        set_bytes(&Command::property_get(Property::Cap)),
        [(0, 0x7f), (1, 0x40), (4, 4), (39, 0x40), (40, 1)]
    );
    let set = Command::property_set(Property::Cc, cc::ENABLED);
    let expected = [
        (0, 0x7f),
        (1, 0x40),
        (39, 0x40),
        (44, 0x14),
        (48, 1),
        (50, 0x46),
    ];
    assert_eq!(set_bytes(&set), expected);
}

#[test]
fn admin_commands_have_their_fields() {
    let expected = [(0, 6), (1, 0x40), (4, 9), (39, 0x40), (40, 2)];
    assert_eq!(
        set_bytes(&Command::identify(cns::ACTIVE_NAMESPACES, 9)),
        expected
    );
    let expected = [(0, 9), (1, 0x40), (39, 0x40), (40, 7), (44, 1), (46, 1)];
    assert_eq!(set_bytes(&Command::set_number_of_queues(2)), expected);
    assert_eq!(set_bytes(&Command::keep_alive())[0], (0, 0x18));
}

#[test]
fn block_commands_count_from_zero() {
    let command = Command::write(1, 0x0102_0304_0506, 8, 4096);
    let fields = [(0, 1), (1, 0x40), (4, 1), (39, 0x40), (48, 7)];
    let lba = [(40, 6), (41, 5), (42, 4), (43, 3), (44, 2), (45, 1)];
    let mut expected = [&fields[..], &lba[..]].concat();
    expected.sort_unstable();
    assert_eq!(set_bytes(&command), expected);
    assert_eq!(command.data_access(), AccessFlags::REMOTE_READ);
    let read = Command::read(1, 0, 1, 512);
    assert_eq!(read.data_access(), AccessFlags::REMOTE_WRITE);
}

#[test]
fn data_is_a_keyed_sgl() {
    let memory = RemoteMemory {
        addr: 0x1122_3344_5566_7788,
        len: 0x01_0203,
        rkey: 0xaabb_ccdd,
    };
    let command = Command::read(1, 0, 1, 0).with_data(memory, true);
    let address = [0x88, 0x77, 0x66, 0x55, 0x44, 0x33, 0x22, 0x11];
    assert_eq!(command.as_bytes()[24..32], address);
    let rest = [3, 2, 1, 0xdd, 0xcc, 0xbb, 0xaa, 0x4f];
    assert_eq!(command.as_bytes()[32..40], rest);
    let kept = Command::read(1, 0, 1, 0).with_data(memory, false);
    assert_eq!(kept.as_bytes()[39], 0x40);
    let in_capsule = Command::write(1, 0, 1, 0x1200).with_data_in_capsule();
    assert_eq!(in_capsule.as_bytes()[24..32], [0; 8], "the offset");
    let rest = [0, 0x12, 0, 0, 0, 0, 0, 0x01];
    assert_eq!(in_capsule.as_bytes()[32..40], rest);
}

#[test]
fn a_completion_is_read_without_the_phase_tag() {
    let mut bytes = [0; RESPONSE_LEN];
    bytes[0] = 5;
    bytes[12..].copy_from_slice(&[0x34, 0x12, 0x05, 0x00]);
    let completion = Completion::parse(&bytes);
    assert_eq!((completion.result, completion.command_id), (5, 0x1234));
    assert_eq!(completion.status, Status(2));
    assert!(!completion.status.is_success());
    // The bits above the code are More and Do Not Retry.
    assert!(Status(0x4000).is_success());
    let text = Status(0x4002).to_string();
    assert_eq!(text, "Invalid Field in Command (status 0x002)");
}

#[test]
fn granted_queues_are_the_smaller_number() {
    assert_eq!(granted_queues(0x0003_0001), 2);
    assert_eq!(granted_queues(0x0000_007f), 1);
}

#[test]
fn a_queue_has_room_for_a_command() {
    assert_eq!(max_commands(0x2_0000_007f), Ok(127));
    assert_eq!(max_commands(u64::MAX), Ok(u16::MAX));
    assert!(max_commands(0x2_0000_0000).is_err());
}

#[test]
fn identify_controller_is_read() {
    let mut data = [0; IDENTIFY_LEN];
    data[4..24].fill(b' ');
    data[4..8].copy_from_slice(b"abcd");
    data[24..29].copy_from_slice(b"Linux");
    data[64..68].copy_from_slice(b"6.12");
    data[77] = 8;
    assert!(ControllerData::parse(&data).is_err());
    data[536] = 5;
    data[1792..1794].copy_from_slice(&[4, 1]); // 260 units
    let parsed = ControllerData::parse(&data).expect("keyed SGLs");
    assert_eq!(parsed.max_capsule_data, 0, "no offsets");
    data[538] = 0x10;
    let parsed = ControllerData::parse(&data).expect("keyed SGLs");
    assert_eq!(parsed.max_capsule_data, 4096);
    data[1800] = 1;
    let parsed = ControllerData::parse(&data).expect("keyed SGLs");
    assert_eq!(parsed.max_capsule_data, 0, "another offset");
    assert_eq!(parsed.name, "Linux (firmware 6.12, serial abcd)");
    assert_eq!(parsed.max_transfer, 1 << 20);
    for exponent in [0, 200] {
        data[77] = exponent;
        let parsed = ControllerData::parse(&data).expect("keyed SGLs");
        assert_eq!(parsed.max_transfer, usize::MAX);
    }
}

#[test]
fn identify_namespace_selects_the_format() {
    let mut data = [0; IDENTIFY_LEN];
    data[1] = 2;
    data[26] = 0x11;
    data[128 + 2] = 9;
    data[132 + 2] = 12;
    assert_eq!(namespace_size(&data), Ok((512, 4096)));
    data[132] = 8;
    assert!(namespace_size(&data).is_err(), "metadata");
    data[132..136].fill(0);
    assert!(namespace_size(&data).is_err(), "no length");
    assert_eq!(first_namespace(&data), Some(512));
    assert_eq!(first_namespace(&[0; IDENTIFY_LEN]), None);
}

#[test]
fn a_connect_request_has_the_queue_and_its_sizes() {
    let data = connect_request(0x0102, 33);
    assert_eq!(data[..8], [0, 0, 0x02, 0x01, 33, 0, 32, 0]);
    assert_eq!(data[8..], [0; 24]);
}

#[test]
fn answers_are_read_with_their_padding() {
    let mut padded = [0; 196];
    padded[2] = 4;
    assert_eq!(receive_queue_size(&padded), Some(4));
    assert_eq!(reject_reason(&padded), Some("invalid HSQSIZE"));
    padded[0] = 1;
    assert_eq!(receive_queue_size(&padded), None);
    assert_eq!(receive_queue_size(&[0, 0, 33]), None);
    assert_eq!(reject_reason(&[0; 148]), None);
}
