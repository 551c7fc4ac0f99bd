//! Options for creating a completion queue.

use rdma_types::setters;

use super::channel::CompletionChannel;

/// Options for creating a completion queue with [`Context::create_cq`](crate::Context::create_cq).
///
/// # Example
/// ```no_run
/// # let context = ibverbs::Device::by_name("rxe0")?.open()?;
/// use ibverbs::CqOptions;
/// let channel = context.create_comp_channel()?;
/// let cq = context.create_cq(CqOptions::new().depth(512).channel(&channel))?;
/// # Ok::<(), ibverbs::Error>(())
/// ```
#[doc(alias = "ibv_create_cq")]
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct CqOptions<'a> {
    /// Minimum number of entries. The queue overflows if more requests than that can be
    /// outstanding on all work queues that complete on it. Default: `256`.
    pub depth: u32,
    /// Channel for the events of the queue. Without one, the queue causes no events. Default:
    /// `None`.
    pub channel: Option<&'a CompletionChannel>,
    /// Completion vector, which selects the interrupt of the events: less than
    /// [`Context::num_comp_vectors`](crate::Context::num_comp_vectors). Default: `0`.
    pub comp_vector: u32,
}

impl CqOptions<'_> {
    /// Returns the default options.
    pub const fn new() -> Self {
        Self {
            depth: 256,
            channel: None,
            comp_vector: 0,
        }
    }
}

impl Default for CqOptions<'_> {
    fn default() -> Self {
        Self::new()
    }
}

setters! {
    CqOptions<'a> {
        depth: u32,
        channel: Option<&'a CompletionChannel>,
        comp_vector: u32,
    }
}
