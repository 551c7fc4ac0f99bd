//! The message of the `conf` test: a description of the host.

use host::host_conf::HostConf;

use super::VERSION;
use super::bytes::{Reader, Writer};

/// Length of the encoded configuration in bytes.
pub(crate) const LEN: usize = 256;

/// Encodes the configuration of this host. The version field names the implemented version of qperf
/// and, in parentheses, the version of rperf.
pub(crate) fn encode(conf: &HostConf) -> [u8; LEN] {
    let (major, minor, inc) = VERSION;
    let version = format!("{major}.{minor}.{inc} (rperf {})", conf.rperf);
    Writer::new()
        .text(&conf.node)
        .text(&conf.cpu)
        .text(&conf.os)
        .text(&version)
        .finish()
}

/// Decodes the configuration of the peer.
pub fn decode(bytes: &[u8; LEN]) -> HostConf {
    let mut r = Reader(bytes);
    let (node, cpu, os, version) = (r.text(), r.text(), r.text(), r.text());
    HostConf {
        node,
        cpu,
        os,
        rperf: format!("qperf {version}"),
        boot: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn configuration_survives_a_round_trip() {
        let host = HostConf {
            node: "n".into(),
            cpu: "2 Cores: C".into(),
            os: "Linux 6".into(),
            rperf: "0.1.0".into(),
            boot: None,
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
    fn control_characters_and_invalid_utf8_are_escaped() {
        let read = decode(&[0x1b; LEN]);
        assert_eq!(read.node, "\\u{1b}".repeat(64));
        assert_eq!(decode(&[0xff; LEN]).os.chars().next(), Some('\u{fffd}'));
    }
}
