//! The command line of `ribping`: ibping's options, and what it lacks.

use std::time::Duration;

use clap::{Parser, ValueEnum};
use ibumad::mad::{OPENIB_OUI, Oui};

use crate::common::error::{Error, Result};
use crate::common::units::parse_time;

/// rping's port (`PS_TCP`).
pub const CM_PORT: u16 = 7174;

/// Which way pings go.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum TransportArg {
    /// As the link layer and the target allow.
    #[default]
    Auto,
    /// Management datagrams, as ibping.
    Umad,
    /// A connection by rdma_cm, as rping.
    #[value(name = "rdma_cm", alias = "cm")]
    RdmaCm,
}

/// Is it reachable? Pings by management datagrams (InfiniBand, RoCE) or over a connection (RoCE,
/// iWARP).
///
/// The target is a LID (`4`), with -G a port GUID, a GID (an IPv6 address as in `ribinfo gids`), or
/// a host's name or address. LIDs and GUIDs are pinged as ibping does it, and GIDs of RoCE in the
/// same way; hosts, and GIDs that stand for an IPv4 address, as rping does it. The server answers
/// ibping and rping too. Exit status: 0 when an answer came (with -c and -w: all of them), 1 when
/// not, 2 for an error.
#[derive(Clone, Debug, Parser)]
#[command(name = "ribping", version)]
#[allow(clippy::struct_excessive_bools, reason = "a command line has switches")]
pub struct PingArgs {
    /// LID, GUID, GID, host name or address
    #[arg(
        value_name = "TARGET",
        required_unless_present = "server",
        conflicts_with = "server"
    )]
    pub target: Option<String>,

    /// Answer pings, on all ports unless -C and -P name one
    #[arg(short = 'S', long = "Server", visible_alias = "server")]
    pub server: bool,

    /// Channel adapter to use
    #[arg(short = 'C', long = "Ca", visible_alias = "ca", value_name = "CA")]
    pub ca: Option<String>,

    /// Its port to use
    #[arg(short = 'P', long = "Port", visible_alias = "port", value_name = "PORT", value_parser = number::<u8>)]
    pub port: Option<u8>,

    /// The target is a LID
    #[arg(
        short = 'L',
        long = "Lid",
        visible_alias = "lid",
        conflicts_with = "guid"
    )]
    pub lid: bool,

    /// The target is a port GUID
    #[arg(short = 'G', long = "Guid", visible_alias = "guid")]
    pub guid: bool,

    /// Stop after this many pings
    #[arg(short = 'c', long, value_name = "N", value_parser = number::<u64>)]
    pub count: Option<u64>,

    /// Send the next ping as soon as the answer is there, and print the summary only
    #[arg(short = 'f', long)]
    pub flood: bool,

    /// Time from one ping to the next, in seconds unless a unit follows
    #[arg(short = 'i', long, value_name = "TIME", default_value = "1", value_parser = parse_time)]
    pub interval: Duration,

    /// End after this time
    #[arg(short = 'w', long, value_name = "TIME", value_parser = parse_time)]
    pub deadline: Option<Duration>,

    /// Milliseconds to wait for an answer
    #[arg(short = 't', long, value_name = "MS", default_value = "1000", value_parser = number::<u32>)]
    pub timeout: u32,

    /// Send a ping this often until an answer comes (ibping: 3); one that a resend saved is no
    /// loss
    #[arg(long, value_name = "N", default_value = "1", value_parser = number::<u32>)]
    pub tries: u32,

    /// Bytes of a ping over a connection, 16 to 65536; a management datagram always has 256
    #[arg(long, value_name = "BYTES", value_parser = number::<u32>)]
    pub size: Option<u32>,

    /// OUI of the vendor class instead of OpenIB's 0x001405
    #[arg(short = 'o', long, value_name = "OUI", value_parser = number::<u32>)]
    pub oui: Option<u32>,

    /// LID of the subnet manager to ask for paths
    #[arg(short = 's', long = "sm_port", visible_alias = "sm-port", value_name = "LID", value_parser = number::<u16>)]
    pub sm_port: Option<u16>,

    /// Which way to go
    #[arg(long, value_enum, default_value_t, hide_default_value = true)]
    pub via: TransportArg,

    /// Port of connections
    #[arg(long, value_name = "PORT", default_value_t = CM_PORT)]
    pub cm_port: u16,

    /// Print one JSON document instead of lines
    #[arg(long, conflicts_with = "server")]
    pub json: bool,

    /// Show what could not be sent or received
    #[arg(short = 'e', long)]
    pub errors: bool,

    /// Say more; twice: even more
    #[arg(short = 'v', long, action = clap::ArgAction::Count)]
    pub verbose: u8,

    /// As -v, ibping's other spelling
    #[arg(short = 'd', long, action = clap::ArgAction::Count)]
    pub debug: u8,
}

impl PingArgs {
    /// The OUI to use.
    ///
    /// # Errors
    /// It has more than 24 bits, or is 0.
    pub fn oui(&self) -> Result<Oui> {
        match self.oui {
            None => Ok(OPENIB_OUI),
            Some(number) => Oui::new(number)
                .filter(|oui| oui.number() != 0)
                .ok_or_else(|| {
                    Error::usage(format!(
                        "--oui {number:#x}: an OUI is a number of 24 bits, not 0"
                    ))
                }),
        }
    }

    /// How long to wait for an answer.
    pub fn patience(&self) -> Duration {
        Duration::from_millis(self.timeout.max(1).into())
    }

    /// How much to say.
    pub fn level(&self) -> u8 {
        self.verbose.max(self.debug)
    }
}

/// A number as C's strtoul with base 0 reads it: decimal, or hexadecimal behind `0x`.
fn number<T: TryFrom<u64>>(text: &str) -> std::result::Result<T, String> {
    let value = match text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
        Some(hex) => u64::from_str_radix(hex, 16),
        None => text.parse(),
    };
    let value = value.map_err(|_| format!("`{text}` is not a number"))?;
    T::try_from(value).map_err(|_| format!("{text} is too large"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    fn parse(line: &str) -> std::result::Result<PingArgs, clap::Error> {
        PingArgs::try_parse_from(std::iter::once("ribping").chain(line.split_whitespace()))
    }

    #[test]
    fn the_command_is_sound() {
        PingArgs::command().debug_assert();
    }

    #[test]
    fn ibpings_lines_are_understood() {
        let args = parse("-c 5 -L 4").expect("ibping's");
        assert_eq!(
            (args.count, args.lid, args.target.as_deref()),
            (Some(5), true, Some("4"))
        );
        let args = parse(
            "-f -c 0x10 -C mlx4_0 -P 2 -G 0x0002c90300a01b2d -t 500 -s 1 -e -v -v -d -o 5125",
        )
        .expect("ibping's");
        assert_eq!(
            (args.count, args.port, args.timeout, args.sm_port),
            (Some(16), Some(2), 500, Some(1))
        );
        assert_eq!(
            (args.level(), args.oui().expect("24 bits")),
            (2, OPENIB_OUI)
        );
        let args = parse(
            "--count 1 --flood --Ca a --Port 1 --Lid --timeout 9 --sm_port 2 --errors --verbose --debug 7",
        );
        assert!(args.expect("ibping's long options").lid);
        assert!(parse("--Server").expect("a server").server);
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        for line in [
            "",
            "-L -G 4",
            "-S 4",
            "4 -c x",
            "4 -P 256",
            "4 --interval 1x",
            "4 5",
            "-S --json",
        ] {
            assert!(parse(line).is_err(), "{line}");
        }
        assert!(parse("4 -o 0x1000000").expect("a number").oui().is_err());
    }

    #[test]
    fn the_help_names_every_option_of_ibping() {
        let help = PingArgs::command().render_long_help().to_string();
        for option in [
            "-c", "-f", "-o", "-S", "-C", "-P", "-L", "-G", "-t", "-s", "-e", "-v", "-d", "-h",
            "-V",
        ] {
            assert!(help.contains(&format!("  {option},")), "{option}");
        }
    }
}
