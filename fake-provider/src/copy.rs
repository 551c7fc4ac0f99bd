//! Moving bytes between memory that is known by number alone.

use std::ptr;

use rdma_sys::ibv_sge;

fn address(sge: &ibv_sge) -> usize {
    usize::try_from(sge.addr).unwrap_or(0)
}

/// Copies one list of entries into another, which has room for it.
pub(crate) fn gather(from: &[ibv_sge], into: &[ibv_sge]) {
    copy(
        from.iter().map(|sge| {
            (
                ptr::with_exposed_provenance(address(sge)),
                sge.length as usize,
            )
        }),
        into,
    );
}

/// Copies bytes into entries, which have room for them.
pub(crate) fn scatter_bytes(bytes: &[u8], into: &[ibv_sge]) {
    copy(std::iter::once((bytes.as_ptr(), bytes.len())), into);
}

/// Copies bytes, and after them a list of entries, into entries, which have room for both.
pub(crate) fn gather_after(bytes: &[u8], from: &[ibv_sge], into: &[ibv_sge]) {
    let entries = from.iter().map(|sge| {
        (
            ptr::with_exposed_provenance(address(sge)),
            sge.length as usize,
        )
    });
    copy(
        std::iter::once((bytes.as_ptr(), bytes.len())).chain(entries),
        into,
    );
}

/// Copies bytes, and after them others, into entries, which have room for both.
pub(crate) fn scatter_both(first: &[u8], then: &[u8], into: &[ibv_sge]) {
    copy(
        [(first.as_ptr(), first.len()), (then.as_ptr(), then.len())].into_iter(),
        into,
    );
}

/// Copies the first bytes of entries, which have so many.
pub(crate) fn peek(from: &[ibv_sge], into: &mut [u8]) {
    let mut left = into;
    for sge in from {
        let (here, rest) = left.split_at_mut(left.len().min(sge.length as usize));
        // SAFETY: the entry was held against a live region, as in `copy`.
        unsafe {
            ptr::copy(
                ptr::with_exposed_provenance(address(sge)),
                here.as_mut_ptr(),
                here.len(),
            );
        };
        left = rest;
    }
}

/// The number that these 8 bytes are.
pub(crate) fn fetch(from: &[ibv_sge; 1]) -> u64 {
    let start: *const u64 = ptr::with_exposed_provenance(address(&from[0]));
    // SAFETY: the entry was held against a live region and covers 8 bytes.
    unsafe { start.read_unaligned() }
}

fn copy(sources: impl Iterator<Item = (*const u8, usize)>, into: &[ibv_sge]) {
    let mut targets = into.iter().map(|sge| {
        (
            ptr::with_exposed_provenance_mut::<u8>(address(sge)),
            sge.length as usize,
        )
    });
    let (mut target, mut room) = (ptr::null_mut::<u8>(), 0);
    for (mut from, mut left) in sources {
        while left > 0 {
            if room == 0 {
                match targets.next() {
                    Some(next) => (target, room) = next,
                    None => return,
                }
                continue;
            }
            let step = left.min(room);
            // SAFETY: the entries were held against live regions, so both ranges are memory that
            // the program gave to this device; they may overlap. That it stays so while
            // requests are in flight is what the tests on this crate are there to prove.
            unsafe {
                ptr::copy(from, target, step);
                (from, target) = (from.add(step), target.add(step));
            }
            (left, room) = (left - step, room - step);
        }
    }
}
