//! Tests of connections on devices. `ci/guest/device-tests` runs each module alone.

mod lab;

mod channel;
mod completion_order;
mod connect;
mod datagram;
mod disconnect;
mod errors;
mod external_qp;
mod failures;
mod hostile;
mod iwarp_wire;
mod leak;
mod lists;
mod load;
mod lookup;
mod options;
mod release;
mod removal;
mod scope;
mod shared_channel;
#[cfg(feature = "tokio")]
mod tokio;
