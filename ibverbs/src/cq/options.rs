//! What is asked of a completion queue.

use super::channel::CompletionChannel;

/// What a completion queue is made with.
///
/// # Example
/// ```no_run
/// # let context = ibverbs::Device::by_name("rxe0")?.open()?;
/// use ibverbs::CqOptions;
/// let channel = context.create_comp_channel()?;
/// let cq = context.create_cq(CqOptions {
///     depth: 512,
///     channel: Some(&channel),
///     ..CqOptions::default()
/// })?;
/// # Ok::<(), ibverbs::Error>(())
/// ```
///
/// # References
/// [`ibv_create_cq(3)`](https://man7.org/linux/man-pages/man3/ibv_create_cq.3.html)
#[derive(Clone, Copy, Debug)]
pub struct CqOptions<'a> {
    /// How many entries it must hold: at least as many as can be outstanding on all its queues.
    pub depth: u32,
    /// Where it reports when it was armed.
    pub channel: Option<&'a CompletionChannel>,
    /// Which completion vector (interrupt) it uses.
    pub comp_vector: u32,
    /// Polls by the extended verbs (`ibv_start_poll` …) if the provider has them. The fields of a
    /// [`Completion`](crate::Completion) need only the classic verb, which copies many entries
    /// by one call: it is the default.
    pub extended: bool,
}

impl Default for CqOptions<'_> {
    fn default() -> Self {
        Self {
            depth: 256,
            channel: None,
            comp_vector: 0,
            extended: false,
        }
    }
}
