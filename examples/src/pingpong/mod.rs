//! The `ibv_*_pingpong` programs: their options and what they print.
//!
//! A message goes to and fro: each side sends back what it receives. The client begins.

mod connected;
mod options;

pub use self::connected::{Options, run};
pub use self::options::{Common, fill, parse_mtu, print_address, require_gid};
