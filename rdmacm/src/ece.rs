//! Enhanced connection establishment: what the vendors' drivers of both ends tell each other.

/// Options of enhanced connection establishment (`struct ibv_ece`): a vendor and bits whose meaning
/// is the vendor's.
///
/// They travel in the messages of the handshake on InfiniBand and RoCE. What a provider makes of
/// them is asked of the queue pair (`ibv_query_ece`, `ibv_set_ece`, reachable through
/// [`AsRaw`](ibverbs::AsRaw)); Soft-RoCE and Soft-iWARP have none.
///
/// # Example
/// ```
/// use rdmacm::{ConnectParams, Ece};
/// let ours = Ece {
///     vendor_id: 0x15b3,
///     options: 1,
/// };
/// let params = ConnectParams {
///     ece: Some(ours),
///     ..ConnectParams::default()
/// };
/// ```
///
/// # References
/// [`rdma_set_local_ece(3)`](https://man7.org/linux/man-pages/man3/rdma_set_local_ece.3.html),
/// [`rdma_get_remote_ece(3)`](https://man7.org/linux/man-pages/man3/rdma_get_remote_ece.3.html)
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ece {
    /// Whose options they are; 0 for none.
    pub vendor_id: u32,
    /// The options.
    pub options: u32,
}
