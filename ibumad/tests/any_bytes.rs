//! Parsing never panics: tested with 20,000 random inputs for each type of datagram and record,
//! the same each time. `ci/stress fuzz` generates others.

use std::fmt::{self, Debug, Write};

use ibumad::Mad;
use ibumad::mad::{NodeDescription, NodeInfo, PathRecord, PortInfo, SaMad, SmInfo, Smp, VendorMad};
use test_support::random::Random;

const INPUTS: u32 = 20_000;

/// Returns random bytes: half of the inputs have `max_len` bytes, the others fewer. One input in
/// eight consists of only 0 or only 255.
fn random_bytes<'a>(random: &mut Random, bytes: &'a mut [u8; 300], max_len: usize) -> &'a [u8] {
    let shape = random.next_u64();
    let len = if shape & 8 == 0 {
        max_len
    } else {
        random.below(max_len + 1)
    };
    match shape % 8 {
        0 => bytes[..len].fill(u8::try_from(shape >> 8 & 1).unwrap_or(0) * 255),
        _ => {
            for chunk in bytes[..len].chunks_mut(8) {
                let number = random.next_u64().to_le_bytes();
                chunk.copy_from_slice(&number[..chunk.len()]);
            }
        }
    }
    &bytes[..len]
}

/// Discards all text.
struct NullWriter;

impl Write for NullWriter {
    fn write_str(&mut self, _: &str) -> fmt::Result {
        Ok(())
    }
}

/// Reads every field, by formatting the value with `Debug`.
fn read(value: &impl Debug) {
    write!(NullWriter, "{value:?}").expect("the writer cannot fail");
}

fn for_random_inputs(seed: u64, max_len: usize, mut parse: impl FnMut(&[u8])) {
    let mut random = Random::new(seed);
    let mut bytes = [0; 300];
    for _ in 0..INPUTS {
        parse(random_bytes(&mut random, &mut bytes, max_len));
    }
}

macro_rules! records {
    ($($test:ident: $record:ident, $seed:literal;)*) => { $(
        #[test]
        fn $test() {
            for_random_inputs($seed, $record::LEN + 4, |bytes| match $record::from_bytes(bytes) {
                Some(record) => read(&record),
                None => assert!(bytes.len() < $record::LEN),
            });
        }
    )* };
}

records! {
    node_info_parses_any_bytes: NodeInfo, 1;
    port_info_parses_any_bytes: PortInfo, 2;
    sm_info_parses_any_bytes: SmInfo, 3;
    path_record_parses_any_bytes: PathRecord, 4;
}

#[test]
fn node_description_is_printable_text() {
    for_random_inputs(5, 68, |bytes| {
        if let Some(name) = NodeDescription::from_bytes(bytes) {
            let text = name.text();
            assert!(!text.contains(char::is_control));
        }
    });
}

#[test]
fn datagram_header_parses_any_bytes() {
    for_random_inputs(6, 260, |bytes| {
        let Some(mad) = Mad::from_bytes(bytes) else {
            assert!(bytes.len() < 256);
            return;
        };
        read(&mad);
        read(&mad.response().status());
    });
}

#[test]
fn views_of_each_class_parse_any_bytes() {
    for_random_inputs(7, 260, |bytes| {
        let Some(mut mad) = Mad::from_bytes(bytes) else {
            return;
        };
        let class = mad.as_bytes()[1];
        mad.as_bytes_mut()[1] = [0x01, 0x81, 0x03, 0x32][usize::from(class % 4)];
        if let Some(smp) = Smp::from_mad(&mad) {
            let lengths = (
                smp.data().len(),
                smp.initial_path().len() <= usize::from(smp.hop_count()),
            );
            assert_eq!(lengths, (64, true));
            read(&(
                smp.is_returning(),
                smp.m_key(),
                smp.hop_pointer(),
                smp.directed_source(),
                smp.directed_destination(),
            ));
            read(&SmInfo::from_bytes(smp.data()).is_some());
        } else if let Some(sa) = SaMad::from_mad(&mad) {
            read(&(sa.sm_key(), sa.record_distance(), sa.component_mask()));
            assert!(PathRecord::from_bytes(sa.data()).is_some());
        } else {
            let vendor = VendorMad::from_mad(&mad).expect("a vendor class");
            read(&vendor.oui());
            assert!(!vendor.text().contains(char::is_control));
            read(&vendor.response(vendor.data()));
        }
    });
}
