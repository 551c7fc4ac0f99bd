//! The subnet administrator: paths between ports, and multicast groups.
//!
//! It keeps nothing, so each port is its own: a GID contains the LID, every path is the same, and
//! all groups exist. A group has the Q_Key that the member names, otherwise that of IPoIB.

use super::{CLASS_PORT_INFO, GET, SIZE, UNSUPPORTED, class_port_info};
use crate::addresses::{DEFAULT_PKEY, lid};
use crate::layout::structures;

structures! {
    path_record {
        DLID = 0x140, 16;
        SLID = 0x150, 16;
        HOP_LIMIT = 0x178, 8;
        REVERSIBLE = 0x188, 1;
        NUMB_PATH = 0x189, 7;
        PKEY = 0x190, 16;
        SL = 0x1ac, 4;
        MTU_SELECTOR = 0x1b0, 2;
        MTU = 0x1b2, 6;
        RATE_SELECTOR = 0x1b8, 2;
        RATE = 0x1ba, 6;
        LIFE_TIME_SELECTOR = 0x1c0, 2;
        LIFE_TIME = 0x1c2, 6;
    }

    member_record {
        Q_KEY = 0x100, 32;
        MLID = 0x120, 16;
        MTU_SELECTOR = 0x130, 2;
        MTU = 0x132, 6;
        RATE_SELECTOR = 0x150, 2;
        RATE = 0x152, 6;
        LIFE_TIME_SELECTOR = 0x158, 2;
        LIFE_TIME = 0x15a, 6;
    }
}

/// Byte offset of the record in a datagram.
const RECORD: usize = 56;
/// Byte ranges of addresses in records.
const PATH_DESTINATION: std::ops::Range<usize> = 8..24;
const PATH_SOURCE: std::ops::Range<usize> = 24..40;
const GROUP: std::ops::Range<usize> = 0..16;
/// Statuses of answers.
const INVALID: u64 = 0x200;
const NO_RECORDS: u64 = 0x300;
/// Selector of a value that is exact.
const EXACTLY: u64 = 2;
const MTU_4096: u64 = 5;
/// Code of the rate of the port: 100 Gb/s.
const RATE_100: u64 = 16;
/// Code of the time of a packet in the subnet, 67 ms.
const LIFE_TIME: u64 = 14;

/// Executes a request in the datagram. Returns the status if it fails.
pub(super) fn answer(attribute: u64, datagram: &mut [u8]) -> Result<(), u64> {
    const MEMBER_RECORD: u64 = 0x38;
    const PATH_RECORD: u64 = 0x35;
    const VERSION: u64 = 2;
    let is_get = super::mad::METHOD.get(datagram) == GET;
    let record = &mut datagram[RECORD..SIZE];
    match attribute {
        CLASS_PORT_INFO if is_get => {
            record.fill(0);
            class_port_info::BASE_VERSION.set(record, 1);
            class_port_info::CLASS_VERSION.set(record, VERSION);
            Ok(())
        }
        PATH_RECORD if is_get => find_path(record),
        MEMBER_RECORD => find_group(record),
        _ => Err(UNSUPPORTED),
    }
}

fn find_path(record: &mut [u8]) -> Result<(), u64> {
    let destination = lid(&record[PATH_DESTINATION]).ok_or(NO_RECORDS)?;
    let source = lid(&record[PATH_SOURCE]).ok_or(NO_RECORDS)?;
    for (field, value) in [
        (path_record::DLID, u64::from(destination)),
        (path_record::SLID, u64::from(source)),
        (path_record::HOP_LIMIT, 0),
        (path_record::REVERSIBLE, 1),
        (path_record::NUMB_PATH, 1),
        (path_record::PKEY, u64::from(DEFAULT_PKEY)),
        (path_record::SL, 0),
        (path_record::MTU_SELECTOR, EXACTLY),
        (path_record::MTU, MTU_4096),
        (path_record::RATE_SELECTOR, EXACTLY),
        (path_record::RATE, RATE_100),
        (path_record::LIFE_TIME_SELECTOR, EXACTLY),
        (path_record::LIFE_TIME, LIFE_TIME),
    ] {
        field.set(record, value);
    }
    Ok(())
}

/// Joins, leaves or reads a group. The network delivers its messages by the group's address.
fn find_group(record: &mut [u8]) -> Result<(), u64> {
    const MULTICAST: u8 = 0xff;
    const IPOIB_Q_KEY: u64 = 0x0b1b;
    const FIRST_LID: u64 = 0xc000;
    const LIDS: u64 = 0x3fff;
    let group = &record[GROUP];
    if group[0] != MULTICAST {
        return Err(INVALID);
    }
    let low = u64::from(group[14]) << 8 | u64::from(group[15]);
    if member_record::Q_KEY.get(record) == 0 {
        member_record::Q_KEY.set(record, IPOIB_Q_KEY);
    }
    for (field, value) in [
        (member_record::MLID, FIRST_LID + low % LIDS),
        (member_record::MTU_SELECTOR, EXACTLY),
        (member_record::MTU, MTU_4096),
        (member_record::RATE_SELECTOR, EXACTLY),
        (member_record::RATE, RATE_100),
        (member_record::LIFE_TIME_SELECTOR, EXACTLY),
        (member_record::LIFE_TIME, LIFE_TIME),
    ] {
        field.set(record, value);
    }
    Ok(())
}
