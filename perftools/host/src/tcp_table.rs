//! The tables of TCP sockets, `/proc/net/tcp` and `/proc/net/tcp6`.

/// The state `LISTEN`.
const LISTEN: &str = "0A";

/// Returns the local address and the inode of each listening socket in the text of a table.
pub fn listening(table: &str) -> impl Iterator<Item = (&str, &str)> {
    table.lines().skip(1).filter_map(|line| {
        let mut words = line.split_whitespace();
        let address = words.nth(1)?;
        let is_listening = words.nth(1)? == LISTEN;
        is_listening.then(|| (address, words.nth(5).unwrap_or_default()))
    })
}
