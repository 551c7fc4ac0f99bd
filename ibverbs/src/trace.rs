//! Events of the feature `tracing`. They compile to nothing without the feature.

use rdma_types::Errno;

macro_rules! event {
    ($level:ident, $($what:tt)*) => {
        // A subscriber is code of the caller. If it panics, the operation must still complete.
        #[cfg(feature = "tracing")]
        crate::unwind::contain(|| tracing::$level!(target: "ibverbs", $($what)*));
    };
}

/// Emitted after a device was opened.
#[cfg_attr(not(feature = "tracing"), allow(unused_variables))]
pub(crate) fn opened(device: &str) {
    event!(debug, device, "opened");
}

/// Emitted before a queue pair is modified, with the attribute mask (`enum ibv_qp_attr_mask`).
#[cfg_attr(not(feature = "tracing"), allow(unused_variables))]
pub(crate) fn stepped(qp_num: u32, state: &str, attributes: u32) {
    event!(debug, qp_num, state, attributes, "modify");
}

/// Emitted when a verb failed.
#[cfg_attr(not(feature = "tracing"), allow(unused_variables))]
pub(crate) fn failed(verb: &str, errno: Errno, what: &str) {
    event!(debug, verb, errno = errno.0, what, "failed");
}

/// Emitted when an object could not be destroyed.
pub(crate) fn leaked() {
    event!(
        error,
        "an object could not be destroyed and was leaked with its memory"
    );
}
