//! What a host is, as the test `conf` has it.

use super::VERSION;
use super::bytes::{Reader, Writer};
use crate::rperf::report::host_conf::HostConf;

/// Length of a configuration.
pub const LEN: usize = 256;

/// This end's configuration, as it is sent; as the version stands the qperf that this end speaks
/// as.
pub fn encode(conf: &HostConf) -> [u8; LEN] {
    let (major, minor, inc) = VERSION;
    let version = format!("{major}.{minor}.{inc} (rperf {})", conf.rperf);
    Writer::new()
        .text(&conf.node)
        .text(&conf.cpu)
        .text(&conf.os)
        .text(&version)
        .done()
}

/// The peer's configuration.
pub fn decode(bytes: &[u8; LEN]) -> HostConf {
    let mut r = Reader(bytes);
    let (node, cpu, os, version) = (r.text(), r.text(), r.text(), r.text());
    HostConf {
        node,
        cpu,
        os,
        rperf: format!("qperf {version}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_configuration_reads_back() {
        let host = HostConf {
            node: "n".into(),
            cpu: "2 Cores: C".into(),
            os: "Linux 6".into(),
            rperf: "0.1.0".into(),
        };
        let bytes = encode(&host);
        assert_eq!(
            (bytes[0], bytes[64], bytes[128], bytes[192]),
            (b'n', b'2', b'L', b'0')
        );
        let read = decode(&bytes);
        assert_eq!(
            (read.node, read.cpu, read.os),
            (host.node, host.cpu, host.os)
        );
        assert_eq!(read.rperf, "qperf 0.4.11 (rperf 0.1.0)");
    }

    #[test]
    fn what_is_no_text_does_no_harm_to_a_terminal() {
        let read = decode(&[0x1b; LEN]);
        assert_eq!(read.node, " ".repeat(64));
        assert_eq!(decode(&[0xff; LEN]).os.chars().next(), Some('\u{fffd}'));
    }
}
