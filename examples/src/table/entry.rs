//! The byte format of an entry, its slot in the table, and how the server writes it.

use ibverbs::SharedRegion;

use crate::Result;

/// Length of an entry in bytes.
///
/// An entry consists of checksum (8 bytes), version (8), length of the key (1), length of the value
/// (1), key (46) and value (192). Numbers are little-endian.
pub const ENTRY_LEN: usize = 256;
const VERSION: usize = 8;
const KEY_LEN: usize = 16;
const VALUE_LEN: usize = 17;
const KEY: usize = 18;
const VALUE: usize = 64;
const MAX_KEY: usize = VALUE - KEY;
const MAX_VALUE: usize = ENTRY_LEN - VALUE;

/// Contents of a slot as read by a client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Slot {
    /// The slot has never been written.
    Empty,
    /// The slot was read during a write; the read must be repeated.
    Torn,
    /// The slot holds a consistent entry.
    Valid(Entry),
}

/// A key with its value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Number of times that the entry has been written.
    pub version: u64,
    /// Key.
    pub key: Vec<u8>,
    /// Value.
    pub value: Vec<u8>,
}

/// Decodes the bytes of a slot and verifies the checksum.
pub(super) fn parse(bytes: &[u8; ENTRY_LEN]) -> Slot {
    if bytes.iter().all(|byte| *byte == 0) {
        return Slot::Empty;
    }
    let (sum, payload) = bytes.split_at(VERSION);
    let (key_len, value_len) = (usize::from(bytes[KEY_LEN]), usize::from(bytes[VALUE_LEN]));
    if sum != checksum(payload).to_le_bytes() || key_len > MAX_KEY || value_len > MAX_VALUE {
        return Slot::Torn;
    }
    Slot::Valid(Entry {
        version: payload
            .iter()
            .take(8)
            .rev()
            .fold(0, |number, byte| number << 8 | u64::from(*byte)),
        key: bytes[KEY..KEY + key_len].to_vec(),
        value: bytes[VALUE..VALUE + value_len].to_vec(),
    })
}

/// Returns the byte offsets of the slots to search for a key, in order (linear probing). The search
/// ends at the key or at an empty slot.
pub(super) fn probe_offsets(len: u64, key: &[u8]) -> impl Iterator<Item = u64> {
    let count = len / ENTRY_LEN as u64;
    let first = checksum(key);
    (0..count).map(move |step| first.wrapping_add(step) % count * ENTRY_LEN as u64)
}

/// Inserts or updates an entry, and calls `pause` after half of the bytes. Only one thread may
/// write.
///
/// # Errors
/// The key or the value is too long, or the table is full.
pub fn put(table: &SharedRegion, key: &[u8], value: &[u8], pause: impl FnOnce()) -> Result<()> {
    let (offset, version) = find(table, key)?;
    let entry = encode(version + 1, key, value).ok_or_else(|| {
        format!(
            "write an entry: expected a key of at most {MAX_KEY} bytes \
             and a value of at most {MAX_VALUE} bytes"
        )
    })?;
    let (first, second) = entry.split_at(VALUE + value.len() / 2);
    table.write(offset, first)?;
    pause();
    Ok(table.write(offset + first.len(), second)?)
}

fn encode(version: u64, key: &[u8], value: &[u8]) -> Option<[u8; ENTRY_LEN]> {
    let mut entry = [0; ENTRY_LEN];
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

/// Returns the offset of the slot that holds a key or is free for it, and the current version.
///
/// The calling thread is the only writer, so no slot can be torn.
fn find(table: &SharedRegion, key: &[u8]) -> Result<(usize, u64)> {
    for offset in probe_offsets(table.len() as u64, key) {
        let offset = usize::try_from(offset)?;
        let mut bytes = [0; ENTRY_LEN];
        table.read(offset, &mut bytes)?;
        match parse(&bytes) {
            Slot::Empty => return Ok((offset, 0)),
            Slot::Valid(entry) if entry.key == key => return Ok((offset, entry.version)),
            Slot::Valid(_) => {}
            Slot::Torn => return Err("search the table: another thread is writing it".into()),
        }
    }
    Err("write an entry: the table is full".into())
}

/// Returns the 64-bit FNV-1a hash.
fn checksum(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |sum, byte| {
        (sum ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entry_round_trip() {
        let bytes = encode(3, b"colour", b"blue").expect("short enough");
        let entry = Entry {
            version: 3,
            key: b"colour".to_vec(),
            value: b"blue".to_vec(),
        };
        assert_eq!(parse(&bytes), Slot::Valid(entry));
        assert_eq!(parse(&[0; ENTRY_LEN]), Slot::Empty);
    }

    #[test]
    fn mixture_of_two_versions_is_torn() {
        let (old, new) = (
            encode(1, b"key", &[b'a'; 100]),
            encode(2, b"key", &[b'b'; 192]),
        );
        let (old, new) = (old.expect("short enough"), new.expect("short enough"));
        for cut in 0..=ENTRY_LEN {
            for (head, tail) in [(&old, &new), (&new, &old)] {
                let mut mixed = *tail;
                mixed[..cut].copy_from_slice(&head[..cut]);
                let consistent = mixed == old || mixed == new;
                assert_eq!(parse(&mixed) != Slot::Torn, consistent, "cut at {cut}");
            }
        }
    }

    #[test]
    fn long_key_or_value_is_rejected() {
        assert!(encode(1, &[1; MAX_KEY], &[1; MAX_VALUE]).is_some());
        assert!(encode(1, &[1; MAX_KEY + 1], b"").is_none());
        assert!(encode(1, b"", &[1; MAX_VALUE + 1]).is_none());
    }

    #[test]
    fn probing_visits_each_slot_once() {
        let mut all: Vec<u64> = probe_offsets(8 * ENTRY_LEN as u64, b"key").collect();
        all.sort_unstable();
        assert_eq!(
            all,
            (0..8)
                .map(|index| index * ENTRY_LEN as u64)
                .collect::<Vec<_>>()
        );
    }
}
