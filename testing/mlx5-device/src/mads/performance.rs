//! Performance management: the counters of the port.

use nic_model::engine::Counters;

use super::{CLASS_PORT_INFO, GET, UNSUPPORTED, class_port_info};
use crate::layout::structures;

structures! {
    /// Counters of the port. Those of errors other than of the link are always zero.
    port_counters {
        LINK_DOWNED = 0x38, 8;
        XMIT_DATA = 0xc0, 32;
        RCV_DATA = 0xe0, 32;
        XMIT_PACKETS = 0x100, 32;
        RCV_PACKETS = 0x120, 32;
    }

    /// Counters of 64 bits.
    port_counters_ext {
        XMIT_DATA = 0x40, 64;
        RCV_DATA = 0x80, 64;
        XMIT_PACKETS = 0xc0, 64;
        RCV_PACKETS = 0x100, 64;
        UNICAST_XMIT_PACKETS = 0x140, 64;
        UNICAST_RCV_PACKETS = 0x180, 64;
        MULTICAST_XMIT_PACKETS = 0x1c0, 64;
        MULTICAST_RCV_PACKETS = 0x200, 64;
    }
}

/// Byte offset of the attribute in a datagram.
const DATA: usize = 64;
/// Bytes of the unit of data.
const WORD: u64 = 4;

/// Sets the attribute. Returns the status if it cannot be read: counters cannot be reset.
pub(super) fn answer(
    method: u64,
    attribute: u64,
    counters: &Counters,
    answer: &mut [u8],
) -> Result<(), u64> {
    const PORT_COUNTERS: u64 = 0x12;
    const PORT_COUNTERS_EXTENDED: u64 = 0x1d;
    const HAS_EXTENDED: u64 = 1 << 9;
    let data = &mut answer[DATA..];
    let data_words = |unicast: u64, multicast: u64| (unicast + multicast) / WORD;
    let sent = data_words(counters.sent.bytes, counters.sent_to_groups.bytes);
    let received = data_words(counters.received.bytes, counters.received_in_groups.bytes);
    let packets_sent = counters.sent.packets + counters.sent_to_groups.packets;
    let packets_received = counters.received.packets + counters.received_in_groups.packets;
    match (method, attribute) {
        (GET, CLASS_PORT_INFO) => {
            class_port_info::BASE_VERSION.set(data, 1);
            class_port_info::CLASS_VERSION.set(data, 1);
            class_port_info::CAPABILITY_MASK.set(data, HAS_EXTENDED);
        }
        (GET, PORT_COUNTERS) => {
            let most = |value: u64, largest: u32| value.min(u64::from(largest));
            for (field, value, largest) in [
                (port_counters::LINK_DOWNED, counters.link_downed, 0xff),
                (port_counters::XMIT_DATA, sent, u32::MAX),
                (port_counters::RCV_DATA, received, u32::MAX),
                (port_counters::XMIT_PACKETS, packets_sent, u32::MAX),
                (port_counters::RCV_PACKETS, packets_received, u32::MAX),
            ] {
                field.set(data, most(value, largest));
            }
        }
        (GET, PORT_COUNTERS_EXTENDED) => {
            use port_counters_ext as ext;
            for (field, value) in [
                (ext::XMIT_DATA, sent),
                (ext::RCV_DATA, received),
                (ext::XMIT_PACKETS, packets_sent),
                (ext::RCV_PACKETS, packets_received),
                (ext::UNICAST_XMIT_PACKETS, counters.sent.packets),
                (ext::UNICAST_RCV_PACKETS, counters.received.packets),
                (ext::MULTICAST_XMIT_PACKETS, counters.sent_to_groups.packets),
                (
                    ext::MULTICAST_RCV_PACKETS,
                    counters.received_in_groups.packets,
                ),
            ] {
                field.set(data, value);
            }
        }
        _ => return Err(UNSUPPORTED),
    }
    Ok(())
}
