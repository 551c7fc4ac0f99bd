use nic_model::engine::{Counters, Traffic};

use super::{SIZE, answer};

/// Answers a datagram with a class, a method, an attribute, and bytes at an offset.
fn ask(class: u8, method: u8, attribute: u8, at: usize, bytes: &[u8]) -> Option<Vec<u8>> {
    let counters = Counters {
        sent: Traffic {
            packets: 3,
            bytes: 0x400,
        },
        received_in_groups: Traffic {
            packets: 1,
            bytes: 8,
        },
        link_downed: 300,
        ..Counters::default()
    };
    let mut request = vec![0; SIZE];
    (request[1], request[3], request[17]) = (class, method, attribute);
    request[at..at + bytes.len()].copy_from_slice(bytes);
    answer(7, &counters, &request)
}

#[test]
fn counters_of_the_port_are_read() {
    let counters = ask(4, 1, 0x12, 65, &[1]).unwrap();
    assert_eq!((counters[3], &counters[4..6]), (0x81, &[0, 0][..]));
    assert_eq!(
        counters[64 + 7],
        255,
        "the counter stays at its largest value"
    );
    assert_eq!(counters[64 + 24..64 + 28], [0, 0, 1, 0]);
    assert_eq!(counters[64 + 28..64 + 32], [0, 0, 0, 2]);
    assert_eq!(counters[64 + 32..64 + 36], [0, 0, 0, 3]);
    let extended = ask(4, 1, 0x1d, 65, &[1]).unwrap();
    assert_eq!(extended[64 + 8..64 + 16], [0, 0, 0, 0, 0, 0, 1, 0]);
    assert_eq!(extended[64 + 71], 1);
    assert_eq!(ask(4, 1, 0x1, 64, &[]).unwrap()[64 + 2..64 + 4], [2, 0]);
    let reset = ask(4, 2, 0x12, 65, &[1]).unwrap();
    assert_eq!((reset[3], &reset[4..6]), (0x81, &[0, 0xc][..]));
}

#[test]
fn a_path_has_the_lids_of_its_addresses() {
    let gid = crate::addresses::gid;
    let gids = [gid(2), gid(7)].concat();
    let path = ask(3, 1, 0x35, 64, &gids).unwrap();
    assert_eq!((path[3], &path[4..6]), (0x81, &[0, 0][..]));
    assert_eq!(path[96..100], [0, 2, 0, 7]);
    let unknown = ask(3, 1, 0x35, 64, &[0; 32]).unwrap();
    assert_eq!(unknown[4..6], [3, 0]);
}

#[test]
fn a_group_is_joined_and_left() {
    let group = [0xff, 0x12, 0x40, 0x1b];
    for (method, response) in [(2, 0x81), (0x15, 0x95)] {
        let record = ask(3, method, 0x38, 56, &group).unwrap();
        assert_eq!((record[3], &record[4..6]), (response, &[0, 0][..]));
        assert_eq!(record[88..92], [0, 0, 0xb, 0x1b]);
        assert!(record[92] >= 0xc0);
    }
    let no_group = ask(3, 2, 0x38, 56, &[0xfe]).unwrap();
    assert_eq!(no_group[4..6], [2, 0]);
}

#[test]
fn other_datagrams_are_for_the_driver() {
    for (class, method) in [(3, 0x81), (4, 0x81), (7, 1), (0x81, 1), (0x32, 1)] {
        assert_eq!(ask(class, method, 0x35, 56, &[]), None);
    }
    assert_eq!(answer(7, &Counters::default(), &[0; 64]), None);
}
