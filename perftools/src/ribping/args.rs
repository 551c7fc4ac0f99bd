//! The command line of `ribping`: the options of ibping and additional ones.

use std::time::Duration;

use base::error::{Error, Result};
use base::ports;
use base::units::parse_time;
use clap::{Parser, ValueEnum};
use ibumad::mad::{OPENIB_OUI, Oui};

const AFTER_HELP: &str = "\
Examples:
  ribping -S                          run a server on all ports
  ribping 4                           ping LID 4, as ibping does
  ribping -c 5 -i 0.1 node1           ping a host over a connection, as rping does
  ribping --json -c 5 node1           print one JSON document";

const EXIT_STATUS: &str = "\
Exit status:
  0  a reply was received (with -c and -w: all replies)
  1  no reply was received
  2  the command line is invalid, or this host has no port for the target";

/// Transport of the pings.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum TransportArg {
    /// Choose by link layer and target.
    #[default]
    Auto,
    /// Management datagrams, like ibping.
    Umad,
    /// A connection made with rdma_cm, like rping.
    #[value(name = "rdma_cm", alias = "cm")]
    RdmaCm,
}

/// Tests reachability with management datagrams (InfiniBand, RoCE) or over a connection (RoCE,
/// iWARP).
///
/// The target is a LID (`4`), a port GUID (with -G), a GID (an IPv6 address as shown by `ribinfo
/// gids`), or a host name or address. LIDs, GUIDs and RoCE GIDs are pinged with management
/// datagrams, like with ibping. Hosts and GIDs that map an IPv4 address are pinged over a
/// connection, like with rping. The server also answers ibping and rping.
///
/// Errors do not end the client: it connects again, and prints the number and the reason of each
/// lost ping. SIGQUIT (`Ctrl-\`) and SIGUSR1 print statistics.
#[derive(Clone, Debug, Parser)]
#[command(name = "ribping", version, after_help = AFTER_HELP, after_long_help = format!("{AFTER_HELP}\n\n{EXIT_STATUS}"))]
#[allow(clippy::struct_excessive_bools, reason = "a command line has switches")]
pub struct PingArgs {
    /// LID, GUID, GID, host name or address
    #[arg(
        value_name = "TARGET",
        required_unless_present = "server",
        conflicts_with = "server"
    )]
    pub target: Option<String>,

    /// Run a server that answers pings, on all ports unless -C and -P select one
    #[arg(short = 'S', long = "Server", visible_alias = "server")]
    pub server: bool,

    /// Channel adapter to use
    #[arg(short = 'C', long = "Ca", visible_alias = "ca", value_name = "CA")]
    pub ca: Option<String>,

    /// Port of the channel adapter to use
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

    /// Send the next ping when a reply is received, and print only the summary
    #[arg(short = 'f', long)]
    pub flood: bool,

    /// Time between two pings, in seconds unless a unit follows
    #[arg(short = 'i', long, value_name = "TIME", default_value = "1", value_parser = parse_time)]
    pub interval: Duration,

    /// Stop after this time
    #[arg(short = 'w', long, value_name = "TIME", value_parser = parse_time)]
    pub deadline: Option<Duration>,

    /// Milliseconds to wait for a reply
    #[arg(short = 't', long, value_name = "MS", default_value = "1000", value_parser = number::<u32>)]
    pub timeout: u32,

    /// Send each ping up to N times until a reply is received
    ///
    /// ibping sends it up to 3 times. A ping answered after a resend does not count as lost.
    #[arg(long, value_name = "N", default_value = "1", value_parser = number::<u32>)]
    pub tries: u32,

    /// Size of a ping over a connection, 16 to 65536 bytes
    ///
    /// A management datagram always has 256 bytes.
    #[arg(long, value_name = "BYTES", value_parser = number::<u32>)]
    pub size: Option<u32>,

    /// OUI of the vendor class [default: 0x001405, OpenIB]
    #[arg(short = 'o', long, value_name = "OUI", value_parser = number::<u32>)]
    pub oui: Option<u32>,

    /// LID of the subnet manager to query for paths
    #[arg(short = 's', long = "sm_port", visible_alias = "sm-port", value_name = "LID", value_parser = number::<u16>)]
    pub sm_port: Option<u16>,

    /// Transport to use
    #[arg(long, value_enum, default_value_t, hide_default_value = true)]
    pub via: TransportArg,

    /// Port number for connections
    #[arg(long, value_name = "PORT", default_value_t = ports::RPING, value_parser = clap::value_parser!(u16).range(1..))]
    pub cm_port: u16,

    /// Print one JSON document instead of text
    #[arg(long, conflicts_with = "server")]
    pub json: bool,

    /// Show errors of sending and receiving
    #[arg(short = 'e', long)]
    pub errors: bool,

    /// Print more details; may be repeated
    #[arg(short = 'v', long, action = clap::ArgAction::Count)]
    pub verbose: u8,

    /// Same as -v, for compatibility with ibping
    #[arg(short = 'd', long, action = clap::ArgAction::Count)]
    pub debug: u8,
}

impl PingArgs {
    /// Returns the OUI of the vendor class.
    ///
    /// # Errors
    /// Returns [`Kind::Usage`](base::error::Kind::Usage) if the OUI is 0 or has more than
    /// 24 bits.
    pub(crate) fn oui(&self) -> Result<Oui> {
        match self.oui {
            None => Ok(OPENIB_OUI),
            Some(number) => Oui::new(number)
                .filter(|oui| oui.number() != 0)
                .ok_or_else(|| {
                    Error::usage(format!(
                        "--oui {number:#x}: expected a number from 1 to 0xffffff"
                    ))
                }),
        }
    }

    /// Returns the time to wait for a reply.
    pub(crate) fn reply_timeout(&self) -> Duration {
        Duration::from_millis(self.timeout.max(1).into())
    }

    /// Returns the verbosity: how often `-v` or `-d` was given.
    pub(crate) fn verbosity(&self) -> u8 {
        self.verbose.max(self.debug)
    }
}

/// Options of ping and rping, as clap names them in an error, and the equivalent.
const OTHER_TOOLS: &[(&str, &str)] = &[
    ("-a", "rping's -a HOST is `ribping HOST`"),
    (
        "--sm_port <LID>",
        "rping's -s is `ribping -S`, ping's -s BYTES is --size BYTES, and ibping's -s has a LID",
    ),
    ("-W", "ping's -W SECONDS is -t MILLISECONDS"),
];

/// Returns the equivalent of an option of ping or rping that is not known here or has another
/// value.
pub(super) fn other_tool(option: &str) -> Option<&'static str> {
    let found = OTHER_TOOLS.iter().find(|row| row.0 == option);
    found.map(|row| row.1)
}

/// Parses a decimal number or, after `0x`, a hexadecimal one, like ibping.
fn number<T: TryFrom<u64>>(text: &str) -> std::result::Result<T, String> {
    let value = match text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
        Some(hex) => u64::from_str_radix(hex, 16),
        None => text.parse(),
    };
    let value = value.map_err(|_| format!("`{text}` is not a number"))?;
    T::try_from(value).map_err(|_| format!("`{text}` is too large"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    fn parse(line: &str) -> std::result::Result<PingArgs, clap::Error> {
        PingArgs::try_parse_from(std::iter::once("ribping").chain(line.split_whitespace()))
    }

    #[test]
    fn the_command_is_valid_for_clap() {
        PingArgs::command().debug_assert();
    }

    #[test]
    fn command_lines_of_ibping_are_accepted() {
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
            (args.verbosity(), args.oui().expect("24 bits")),
            (2, OPENIB_OUI)
        );
        let args = parse(
            "--count 1 --flood --Ca a --Port 1 --Lid --timeout 9 --sm_port 2 --errors --verbose --debug 7",
        );
        assert!(args.expect("ibping's long options").lid);
        assert!(parse("--Server").expect("a server").server);
    }

    #[test]
    fn invalid_command_lines_are_rejected() {
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
    fn the_help_lists_every_option_of_ibping() {
        let help = PingArgs::command().render_long_help().to_string();
        for option in [
            "-c", "-f", "-o", "-S", "-C", "-P", "-L", "-G", "-t", "-s", "-e", "-v", "-d", "-h",
            "-V",
        ] {
            assert!(help.contains(&format!("  {option},")), "{option}");
        }
    }
}
