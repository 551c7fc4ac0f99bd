//! Flow rules: which frames a raw queue pair receives.

use std::ffi::c_int;

use rdma_sys::{IBV_FLOW_SPEC_ETH, ibv_flow, ibv_flow_attr, ibv_flow_spec_eth, ibv_qp};

use crate::device::FakeDevice;
use crate::fault::Verb;
use crate::null;
use crate::world::Flow;

/// `ibv_create_flow(3)`: of the headers only the Ethernet one is looked at.
pub(crate) unsafe extern "C" fn create_flow(
    qp: *mut ibv_qp,
    attr: *mut ibv_flow_attr,
) -> *mut ibv_flow {
    // SAFETY: the caller gives a live queue pair and readable attributes.
    let (context, place, rule) = unsafe { ((*qp).context, crate::handle::qp(qp), &*attr) };
    // SAFETY: as above.
    let mut world = unsafe { FakeDevice::of_context(context) }.world();
    if !world.profile.more_verbs {
        return null(libc::EOPNOTSUPP);
    }
    if let Some(errno) = world.faults.take(Verb::CreateFlow) {
        return null(errno);
    }
    if rule.port != 1 || world.qps.get(place).is_none_or(|pair| !pair.raw) {
        return null(libc::EINVAL);
    }
    let to = (rule.num_of_specs > 0).then(|| {
        // SAFETY: the attributes are followed by the specifications that they count.
        let eth = unsafe { attr.add(1).cast::<ibv_flow_spec_eth>().read_unaligned() };
        (eth.type_ == IBV_FLOW_SPEC_ETH && eth.mask.dst_mac == [0xff; 6]).then_some(eth.val.dst_mac)
    });
    let number = world.flows.insert(Flow {
        qp: place,
        to: to.flatten(),
    });
    let handle = u32::try_from(number).unwrap_or(u32::MAX);
    Box::into_raw(Box::new(ibv_flow {
        comp_mask: 0,
        context,
        handle,
    }))
}

/// `ibv_destroy_flow(3)`.
pub(crate) unsafe extern "C" fn destroy_flow(flow: *mut ibv_flow) -> c_int {
    // SAFETY: the caller gives a live rule, and gives it up if the answer is 0.
    unsafe {
        let mut world = FakeDevice::of_context((*flow).context).world();
        if let Some(errno) = world.faults.take(Verb::DestroyFlow) {
            return errno;
        }
        world.flows.remove((*flow).handle as usize);
        drop(world);
        drop(Box::from_raw(flow));
    }
    0
}
