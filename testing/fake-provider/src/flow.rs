//! Flow rules, which select the frames that a raw packet queue pair receives.

use std::ffi::c_int;

use rdma_sys::{IBV_FLOW_SPEC_ETH, ibv_flow, ibv_flow_attr, ibv_flow_spec_eth, ibv_qp};

use crate::device::FakeDevice;
use crate::fault::Verb;
use crate::null;
use crate::state::Flow;

/// `ibv_create_flow(3)`. Only the Ethernet specification is evaluated.
pub(crate) unsafe extern "C" fn create_flow(
    qp: *mut ibv_qp,
    attr: *mut ibv_flow_attr,
) -> *mut ibv_flow {
    // SAFETY: the caller passes a valid queue pair and readable attributes.
    let (context, slot, rule) = unsafe { ((*qp).context, crate::handle::qp(qp), &*attr) };
    // SAFETY: as above.
    let mut state = unsafe { FakeDevice::from_context(context) }.state();
    if !state.profile.more_verbs {
        return null(libc::EOPNOTSUPP);
    }
    if let Some(errno) = state.faults.take(Verb::CreateFlow) {
        return null(errno);
    }
    if rule.port != 1 || state.qps.get(slot).is_none_or(|pair| !pair.raw) {
        return null(libc::EINVAL);
    }
    let to = (rule.num_of_specs > 0).then(|| {
        // SAFETY: at least one specification follows the attributes, as `num_of_specs` says.
        let eth = unsafe { attr.add(1).cast::<ibv_flow_spec_eth>().read_unaligned() };
        (eth.type_ == IBV_FLOW_SPEC_ETH && eth.mask.dst_mac == [0xff; 6]).then_some(eth.val.dst_mac)
    });
    let index = state.flows.insert(Flow {
        qp: slot,
        to: to.flatten(),
    });
    let handle = u32::try_from(index).unwrap_or(u32::MAX);
    Box::into_raw(Box::new(ibv_flow {
        comp_mask: 0,
        context,
        handle,
    }))
}

/// `ibv_destroy_flow(3)`.
pub(crate) unsafe extern "C" fn destroy_flow(flow: *mut ibv_flow) -> c_int {
    // SAFETY: the caller passes a valid rule, and does not use it again if 0 is returned.
    unsafe {
        let mut state = FakeDevice::from_context((*flow).context).state();
        if let Some(errno) = state.faults.take(Verb::DestroyFlow) {
            return errno;
        }
        state.flows.remove((*flow).handle as usize);
        drop(state);
        drop(Box::from_raw(flow));
    }
    0
}
