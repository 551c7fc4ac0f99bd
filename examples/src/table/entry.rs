//! An entry as bytes, where it is, and how the server writes it.

use ibverbs::SharedRegion;

use crate::Result;

/// Bytes of an entry: checksum 8, version 8, length of the key 1, of the value 1, key 46, value
/// 192. Numbers are little-endian.
pub const ENTRY: usize = 256;
const VERSION: usize = 8;
const KEY_LEN: usize = 16;
const VALUE_LEN: usize = 17;
const KEY: usize = 18;
const VALUE: usize = 64;
const MAX_KEY: usize = VALUE - KEY;
const MAX_VALUE: usize = ENTRY - VALUE;

/// An entry as it was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Read {
    /// The place was never written.
    Empty,
    /// The server was writing: read again.
    Torn,
    /// All of one time.
    Whole(Entry),
}

/// What an entry says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// How often it was written.
    pub version: u64,
    /// Its key.
    pub key: Vec<u8>,
    /// Its value.
    pub value: Vec<u8>,
}

/// What a client makes of the bytes of an entry.
pub(super) fn parse(bytes: &[u8; ENTRY]) -> Read {
    if bytes.iter().all(|byte| *byte == 0) {
        return Read::Empty;
    }
    let (sum, rest) = bytes.split_at(VERSION);
    let (key_len, value_len) = (usize::from(bytes[KEY_LEN]), usize::from(bytes[VALUE_LEN]));
    if sum != checksum(rest).to_le_bytes() || key_len > MAX_KEY || value_len > MAX_VALUE {
        return Read::Torn;
    }
    Read::Whole(Entry {
        version: rest
            .iter()
            .take(8)
            .rev()
            .fold(0, |number, byte| number << 8 | u64::from(*byte)),
        key: bytes[KEY..KEY + key_len].to_vec(),
        value: bytes[VALUE..VALUE + value_len].to_vec(),
    })
}

/// Where a key can be: at these offsets, one after the other, until it or an empty place is found.
pub(super) fn places(len: u64, key: &[u8]) -> impl Iterator<Item = u64> {
    let count = len / ENTRY as u64;
    let first = checksum(key);
    (0..count).map(move |step| first.wrapping_add(step) % count * ENTRY as u64)
}

/// Writes an entry, new or once more. One thread of the server writes; `pause` is called when it is
/// half done.
///
/// # Errors
/// When key or value are too long, or the table is full.
pub fn put(table: &SharedRegion, key: &[u8], value: &[u8], pause: impl FnOnce()) -> Result<()> {
    let (place, version) = find(table, key)?;
    let entry = encode(version + 1, key, value)
        .ok_or_else(|| format!("a key has at most {MAX_KEY} bytes, a value {MAX_VALUE}"))?;
    let (first, second) = entry.split_at(VALUE + value.len() / 2);
    table.write(place, first)?;
    pause();
    Ok(table.write(place + first.len(), second)?)
}

fn encode(version: u64, key: &[u8], value: &[u8]) -> Option<[u8; ENTRY]> {
    let mut entry = [0; ENTRY];
    entry[VERSION..KEY_LEN].copy_from_slice(&version.to_le_bytes());
    entry[KEY_LEN] = u8::try_from(key.len()).ok()?;
    entry[VALUE_LEN] = u8::try_from(value.len()).ok()?;
    entry[KEY..VALUE].get_mut(..key.len())?.copy_from_slice(key);
    entry[VALUE..]
        .get_mut(..value.len())?
        .copy_from_slice(value);
    let sum = checksum(&entry[VERSION..]);
    entry[..VERSION].copy_from_slice(&sum.to_le_bytes());
    Some(entry)
}

/// The place of a key, or for it, and the version there. Nobody else writes, so what is read here
/// is whole.
fn find(table: &SharedRegion, key: &[u8]) -> Result<(usize, u64)> {
    for place in places(table.len() as u64, key) {
        let place = usize::try_from(place)?;
        let mut bytes = [0; ENTRY];
        table.read(place, &mut bytes)?;
        match parse(&bytes) {
            Read::Empty => return Ok((place, 0)),
            Read::Whole(entry) if entry.key == key => return Ok((place, entry.version)),
            Read::Whole(_) => {}
            Read::Torn => return Err("the table is written by another thread".into()),
        }
    }
    Err("the table is full".into())
}

/// FNV-1a, 64 bits.
fn checksum(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |sum, byte| {
        (sum ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_is_read_as_it_was_written() {
        let bytes = encode(3, b"colour", b"blue").expect("short enough");
        let entry = Entry {
            version: 3,
            key: b"colour".to_vec(),
            value: b"blue".to_vec(),
        };
        assert_eq!(parse(&bytes), Read::Whole(entry));
        assert_eq!(parse(&[0; ENTRY]), Read::Empty);
    }

    #[test]
    fn any_mixture_of_two_versions_is_torn() {
        let (old, new) = (
            encode(1, b"key", &[b'a'; 100]),
            encode(2, b"key", &[b'b'; 192]),
        );
        let (old, new) = (old.expect("short enough"), new.expect("short enough"));
        for cut in 0..=ENTRY {
            for (head, tail) in [(&old, &new), (&new, &old)] {
                let mut mixed = *tail;
                mixed[..cut].copy_from_slice(&head[..cut]);
                let whole = mixed == old || mixed == new;
                assert_eq!(parse(&mixed) != Read::Torn, whole, "cut at {cut}");
            }
        }
    }

    #[test]
    fn what_is_too_long_is_refused() {
        assert!(encode(1, &[1; MAX_KEY], &[1; MAX_VALUE]).is_some());
        assert!(encode(1, &[1; MAX_KEY + 1], b"").is_none());
        assert!(encode(1, b"", &[1; MAX_VALUE + 1]).is_none());
    }

    #[test]
    fn every_place_is_tried_once() {
        let mut all: Vec<u64> = places(8 * ENTRY as u64, b"key").collect();
        all.sort_unstable();
        assert_eq!(
            all,
            (0..8).map(|index| index * ENTRY as u64).collect::<Vec<_>>()
        );
    }
}
