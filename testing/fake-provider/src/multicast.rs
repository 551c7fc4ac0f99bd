//! Multicast groups, which deliver a datagram to all members.

use std::ffi::c_int;
use std::net::Ipv6Addr;

use rdma_sys::{ibv_gid, ibv_qp};

use crate::device::FakeDevice;
use crate::state::{DeviceState, Group};

/// `ibv_attach_mcast(3)`.
#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_attach_mcast(qp: *mut ibv_qp, gid: *const ibv_gid, lid: u16) -> c_int {
    // SAFETY: the caller passes a valid queue pair and a readable GID.
    let (mut state, group) = unsafe { state_and_group(qp, gid, lid) };
    let is_datagram = state
        .qps
        .get(group.qp)
        .is_some_and(|pair| pair.qkey.is_some());
    if !is_datagram || !is_multicast(group.gid) {
        return libc::EINVAL;
    }
    if !state.groups.contains(&group) {
        state.groups.push(group);
    }
    0
}

/// `ibv_detach_mcast(3)`.
#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_detach_mcast(qp: *mut ibv_qp, gid: *const ibv_gid, lid: u16) -> c_int {
    // SAFETY: the caller passes a valid queue pair and a readable GID.
    let (mut state, group) = unsafe { state_and_group(qp, gid, lid) };
    let before = state.groups.len();
    state.groups.retain(|member| *member != group);
    if state.groups.len() == before {
        libc::EINVAL
    } else {
        0
    }
}

/// Locks the device of a queue pair, and returns its membership in a group.
///
/// # Safety
/// The queue pair is valid, and the GID readable.
unsafe fn state_and_group(
    qp: *mut ibv_qp,
    gid: *const ibv_gid,
    lid: u16,
) -> (std::sync::MutexGuard<'static, DeviceState>, Group) {
    // SAFETY: the caller's promise.
    unsafe {
        let group = Group {
            qp: crate::handle::qp(qp),
            gid: (*gid).raw,
            lid,
        };
        (FakeDevice::from_context((*qp).context).state(), group)
    }
}

/// Returns `true` if a GID is the address of a group, as the kernel decides it.
fn is_multicast(gid: [u8; 16]) -> bool {
    let address = Ipv6Addr::from(gid);
    address.is_multicast() || address.to_ipv4_mapped().is_some_and(|ip| ip.is_multicast())
}

pub(crate) const ENTRY_POINTS: &[*const ()] =
    &[ibv_attach_mcast as *const (), ibv_detach_mcast as *const ()];
