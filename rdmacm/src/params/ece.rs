//! Enhanced connection establishment (ECE): options that the drivers of both ends exchange.

/// Options of enhanced connection establishment (`struct ibv_ece`): a vendor ID and vendor-specific
/// bits.
///
/// They are part of the handshake messages on InfiniBand and RoCE. Apply them to a queue pair with
/// `ibv_query_ece` and `ibv_set_ece`, through [`AsRaw`](ibverbs::AsRaw). Soft-RoCE and Soft-iWARP
/// have no options.
///
/// # Example
/// ```
/// use rdmacm::{ConnectParams, params::Ece};
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
    /// The vendor that defines the options; 0 for none.
    pub vendor_id: u32,
    /// Vendor-specific option bits.
    pub options: u32,
}
