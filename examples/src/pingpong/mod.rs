//! Code shared by the ping-pong programs: options, output, and the loop over one connection.
//!
//! The client sends the first message, and each side sends back every message that it receives.
//! Options and output are those of `ibv_*_pingpong`.

mod connected;
mod options;

pub use self::connected::{Options, run};
pub use self::options::{Common, fill, parse_mtu, print_address, require_gid};
