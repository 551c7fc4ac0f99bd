//! The framing of the control protocol: the greeting ([`hello`]) and length-prefixed JSON messages
//! ([`frame`]). `rperf` runs tests over it, and `ribinfo` requests the facts of another host. The
//! messages themselves belong to those tools.

pub mod frame;
pub mod hello;

/// Default TCP port of a server. It is the port of qperf.
pub const DEFAULT_PORT: u16 = 19765;

/// Returns the text of a peer without control characters, fit for a terminal.
pub(crate) fn printable(text: &str) -> String {
    text.chars()
        .take(2000)
        .map(|c| if c.is_control() { ' ' } else { c })
        .collect()
}
