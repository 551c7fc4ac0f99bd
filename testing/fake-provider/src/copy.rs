//! Copies of bytes between memory ranges that are known only by address.

use std::ptr;

use rdma_sys::ibv_sge;

fn address(sge: &ibv_sge) -> usize {
    usize::try_from(sge.addr).unwrap_or(0)
}

/// Copies a gather list to a scatter list of at least the same length.
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

/// Copies bytes to a scatter list of at least the same length.
pub(crate) fn scatter_bytes(bytes: &[u8], into: &[ibv_sge]) {
    copy(std::iter::once((bytes.as_ptr(), bytes.len())), into);
}

/// Copies a header followed by a gather list to a scatter list with enough space for both.
pub(crate) fn gather_with_header(bytes: &[u8], from: &[ibv_sge], into: &[ibv_sge]) {
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

/// Copies a header followed by other bytes to a scatter list with enough space for both.
pub(crate) fn scatter_with_header(first: &[u8], then: &[u8], into: &[ibv_sge]) {
    copy(
        [(first.as_ptr(), first.len()), (then.as_ptr(), then.len())].into_iter(),
        into,
    );
}

/// Copies the first bytes of a gather list, which must not be shorter than `into`.
pub(crate) fn peek(from: &[ibv_sge], into: &mut [u8]) {
    let mut left = into;
    for sge in from {
        let (here, rest) = left.split_at_mut(left.len().min(sge.length as usize));
        // SAFETY: the entry lies within a valid region, which the caller checked, as in `copy`.
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

/// Reads an 8-byte integer.
pub(crate) fn fetch(from: &[ibv_sge; 1]) -> u64 {
    let start: *const u64 = ptr::with_exposed_provenance(address(&from[0]));
    // SAFETY: the caller checked that the entry lies within a valid region and has 8 bytes.
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
            // SAFETY: the caller checked all entries against live regions, so both ranges are
            // memory that the program registered. They may overlap. The program must
            // keep the memory valid while requests are in flight; the tests that use
            // this crate verify that under Miri.
            unsafe {
                ptr::copy(from, target, step);
                (from, target) = (from.add(step), target.add(step));
            }
            (left, room) = (left - step, room - step);
        }
    }
}
