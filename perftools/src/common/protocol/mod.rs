//! Framing of the control protocol: the greeting ([`hello`]) and length-prefixed JSON messages
//! ([`frame`]). `rperf` controls tests with it, and `ribinfo` requests the facts of another host.
//! Each tool defines its own messages.

pub mod frame;
pub mod hello;

/// Default TCP port of a server, the same as that of qperf.
pub const DEFAULT_PORT: u16 = 19765;

/// Replaces control characters in a peer's text with spaces, so that it is safe to print on a
/// terminal. Truncates the text to 2000 characters.
pub(crate) fn printable(text: &str) -> String {
    text.chars()
        .take(2000)
        .map(|c| if c.is_control() { ' ' } else { c })
        .collect()
}
