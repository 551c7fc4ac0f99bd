//! Default ports of the servers of this project.

/// TCP port of rperf's control protocol, the same as that of qperf.
pub const CONTROL: u16 = 19765;
/// Port of connections of ribping (`PS_TCP`), the same as that of rping.
pub const RPING: u16 = 7174;
