//! Changes of memory keys by requests: binding and invalidating windows.

use super::qp::Qp;
use super::wqe::{DataSegment, Umr, Work};
use crate::abi::core::access;
use crate::keys::{Binding, Keys, Target, index};

/// Flag of a key that is free after the change.
const FREE: u8 = 1 << 6;
/// Access rights in the key context.
const LOCAL_WRITE: u8 = 1 << 3;
const REMOTE_READ: u8 = 1 << 4;
const REMOTE_WRITE: u8 = 1 << 5;
const ATOMIC: u8 = 1 << 6;

/// Executes a change. Returns `false` if it is not allowed.
pub(super) fn execute(
    keys: &mut Keys,
    qp: &Qp,
    work: &Work,
    umr: &Umr,
    segment: Option<&DataSegment>,
) -> bool {
    // The immediate data names the key that changes, and the context the low byte of its new value.
    let key = u32::from_be_bytes(work.immediate);
    let Some(pd) = qp.pd else {
        return false;
    };
    let target = keys.by_index(index(key)).map(|key| key.target);
    if matches!(target, Some(Target::Region(_))) {
        return qp.changes_regions && change_region(keys, key, umr);
    }
    let Some(Target::Window { kind, .. }) = target else {
        return false;
    };
    if umr.free & FREE != 0 {
        // A window of type 1 is unbound by binding it with length 0.
        if kind == 1 {
            return unbind_type_1(keys, key, umr.qpn_mkey.get());
        }
        return keys.unbind(key, pd, qp.number);
    }
    let Some(segment) = segment else {
        return false;
    };
    let granted = granted(umr);
    let value = index(key) << 8 | umr.qpn_mkey.get() & 0xff;
    let binding = Binding {
        region: segment.lkey(),
        address: umr.start.get(),
        length: umr.length.get(),
        access: granted,
        qpn: (kind == 2).then_some(qp.number),
    };
    keys.bind(index(key), value, pd, binding)
}

/// Returns the access rights in the key context.
fn granted(umr: &Umr) -> u32 {
    let rights = [
        (LOCAL_WRITE, access::LOCAL_WRITE),
        (REMOTE_READ, access::REMOTE_READ),
        (REMOTE_WRITE, access::REMOTE_WRITE),
        (ATOMIC, access::REMOTE_ATOMIC),
    ];
    rights
        .iter()
        .filter(|(bit, _)| umr.access_flags & bit != 0)
        .fold(0, |all, (_, right)| all | right)
}

/// Changes the rights and the protection domain of registered memory, as the kernel's driver does
/// when a program registers it again (`mlx5r_umr_rereg_pd_access`). Its pages stay.
fn change_region(keys: &mut Keys, key: u32, umr: &Umr) -> bool {
    const PD: u64 = 1 << 7;
    const RIGHTS: u64 = 1 << 18 | 1 << 19 | 1 << 20 | 1 << 21;
    const OTHER_RIGHTS: u64 = 1 << 17 | 1 << 23 | 1 << 25;
    const KEPT: u32 = access::MW_BIND;
    let mask = umr.mask.get();
    // Lengths, addresses and lists of pages do not change.
    let known = PD | RIGHTS | OTHER_RIGHTS | 1 << 13 | 1 << 14 | 1 << 29;
    let Some(entry) = keys.by_index(index(key)).filter(|_| mask & !known == 0) else {
        return false;
    };
    if mask & PD != 0 {
        entry.pd = umr.pd();
    }
    if let Target::Region(region) = &mut entry.target {
        if mask & RIGHTS != 0 {
            region.access = region.access & KEPT | granted(umr);
        }
        if umr.free & FREE != 0 {
            region.access = 0;
        }
    }
    true
}

fn unbind_type_1(keys: &mut Keys, key: u32, qpn_mkey: u32) -> bool {
    if let Some(entry) = keys.by_index(index(key)) {
        entry.value = index(key) << 8 | qpn_mkey & 0xff;
        if let Target::Window { bound, .. } = &mut entry.target {
            *bound = None;
            return true;
        }
    }
    false
}
