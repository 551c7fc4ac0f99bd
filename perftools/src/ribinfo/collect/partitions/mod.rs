//! OpenSM's `partitions.conf`, read as OpenSM reads it.
//!
//! ```text
//! Default=0x7fff, ipoib, mtu=5 : ALL=full, SELF=full;
//! storage=0x8002, ipoib, rate=12, defmember=full :
//!     mgid=ff12:401b::707, sl=1
//!     0x0002c90300317851, 0x0002c90300317852=limited;
//! ```
//! A definition's head, up to the `:`, is on one line; members may go on over lines until the `;`;
//! an `mgid` takes its line. Keywords may be shortened, as OpenSM compares only as many letters as
//! it is given.

mod read;

use std::fmt;

pub use read::parse;

/// The key of the partition that all fabrics have, without the membership bit.
pub const DEFAULT_PKEY: u16 = 0x7fff;
/// The rate of a group where none is given: 10 Gbit/s.
pub const DEFAULT_RATE: u32 = 3;
/// The MTU of a group where none is given: 2048.
pub const DEFAULT_MTU: u32 = 4;

/// The whole file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Partitions {
    /// The definitions in their order; one key may have several.
    pub definitions: Vec<Definition>,
    /// What OpenSM would complain about.
    pub problems: Vec<Problem>,
}

/// A definition, up to its `;`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Definition {
    /// The line of its head.
    pub line: usize,
    /// May be empty, and need not be unique.
    pub name: String,
    /// The key without the membership bit; none: OpenSM makes one up.
    pub pkey: Option<u16>,
    /// An IPoIB broadcast group is made.
    pub ipoib: bool,
    /// The key goes to index 0.
    pub indx0: bool,
    /// What members are that do not say it.
    pub default_membership: Membership,
    /// The broadcast group's.
    pub flags: GroupFlags,
    /// Who is in.
    pub members: Vec<Member>,
    /// Multicast groups that are made.
    pub groups: Vec<Group>,
}

/// What a multicast group is made with; none: OpenSM's default.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GroupFlags {
    /// Code 1 to 5 for 256 to 4096.
    pub mtu: Option<u32>,
    /// Code of the static rate.
    pub rate: Option<u32>,
    /// Service level.
    pub sl: Option<u32>,
    /// One group for each scope.
    pub scopes: Vec<u32>,
    /// Queue key.
    pub q_key: Option<u32>,
    /// Traffic class.
    pub tclass: Option<u32>,
    /// Flow label.
    pub flow_label: Option<u32>,
}

/// How a port is in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Membership {
    /// Limited members cannot talk to each other.
    #[default]
    Limited,
    /// Full members talk to all.
    Full,
    /// Both keys are given.
    Both,
}

/// A member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Member {
    /// Which ports.
    pub who: MemberPorts,
    /// How.
    pub membership: Membership,
}

/// Which ports a member stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MemberPorts {
    /// All end ports.
    All,
    /// All channel adapters.
    AllCas,
    /// All switches.
    AllSwitches,
    /// All routers.
    AllRouters,
    /// The subnet manager's.
    SelfPort,
    /// The port of this GUID.
    Guid(u64),
}

/// A multicast group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Group {
    /// Its line.
    pub line: usize,
    /// Its GID.
    pub mgid: std::net::Ipv6Addr,
    /// What differs from the partition.
    pub flags: GroupFlags,
}

/// A complaint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// Where.
    pub line: usize,
    /// OpenSM stops reading there.
    pub fatal: bool,
    /// What.
    pub text: String,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}: {}", self.line, self.text)
    }
}

/// The bytes of an MTU code.
pub fn mtu_bytes(code: u32) -> Option<u32> {
    ibverbs::Mtu(code).bytes()
}

/// The Gbit/s of a rate code (IBA PathRecord:Rate), in text.
pub fn rate_gbps(code: u32) -> Option<&'static str> {
    const RATES: [&str; 21] = [
        "2.5", "10", "30", "5", "20", "40", "60", "80", "120", "14", "56", "112", "168", "25",
        "100", "200", "300", "28", "50", "400", "600",
    ];
    RATES
        .get(usize::try_from(code).ok()?.checked_sub(2)?)
        .copied()
}

/// The Mbit/s of a rate code.
pub fn rate_mbps(code: u32) -> Option<u32> {
    let text = rate_gbps(code)?;
    if text == "2.5" {
        Some(2_500)
    } else {
        text.parse::<u32>().ok()?.checked_mul(1000)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The examples of OpenSM's own documentation.
    const DOCUMENTED: &str = "
 Default=0x7fff : ALL, SELF=full ;
 Default=0x7fff : ALL, ALL_SWITCHES=full, SELF=full ;

 NewPartition , ipoib : 0x123456=full, 0x3456789034=limi, 0x2134af2306 ;

 YetAnotherOne = 0x300 : SELF=full ;
 YetAnotherOne = 0x300 : ALL=limited ;

 ShareIO = 0x80 , defmember=full : 0x123451, 0x123452;
 # 0x123453, 0x123454 will be limited
 ShareIO = 0x80 : 0x123453, 0x123454, 0x123455=full;
 # 0x123456, 0x123457 will be limited
 ShareIO = 0x80 , defmember=limited : 0x123456, 0x123457, 0x123458=full;

 # multicast groups added to default
 Default=0x7fff,ipoib:
        mgid=ff12:401b::0707,sl=1 # random IPv4 group
        mgid=ff12:601b::16    # MLDv2-capable routers
        mgid=ff12::1,sl=1,Q_Key=0xDEADBEEF,rate=3,mtu=2 # random group
        ALL=full;
";

    #[test]
    fn the_documented_examples_are_read_without_complaint() {
        let read = parse(DOCUMENTED);
        assert_eq!(read.problems, []);
        let names: Vec<_> = read
            .definitions
            .iter()
            .map(|d| (d.name.as_str(), d.pkey))
            .collect();
        assert_eq!(names[0], ("Default", Some(0x7fff)));
        assert_eq!(names[2], ("NewPartition", None));
        assert!(read.definitions[2].ipoib);
        assert_eq!(
            read.definitions[2].members[1],
            Member {
                who: MemberPorts::Guid(0x34_5678_9034),
                membership: Membership::Limited
            }
        );
        assert_eq!(read.definitions[5].members[0].membership, Membership::Full);
        let last = read.definitions.last().unwrap();
        assert_eq!((last.groups.len(), last.members.len()), (3, 1));
        assert_eq!(last.groups[2].flags.q_key, Some(0xdead_beef));
        assert_eq!(last.groups[2].flags.mtu, Some(2));
    }

    #[test]
    fn the_guides_examples_are_read() {
        let read = parse(
            "Default=0xffff, ipoib, mtu=5 : ALL=full;\nkey2=0x8002, rate=12, scope=2, scope=5, defmember=full: 0x1;",
        );
        assert_eq!(read.problems, []);
        assert_eq!(read.definitions[0].pkey, Some(DEFAULT_PKEY));
        assert_eq!(read.definitions[0].flags.mtu, Some(5));
        assert_eq!(read.definitions[1].flags.scopes, [2, 5]);
        assert_eq!(
            (rate_gbps(12), rate_gbps(10), rate_gbps(2), rate_gbps(1)),
            (Some("56"), Some("120"), Some("2.5"), None)
        );
        assert_eq!(mtu_bytes(5), Some(4096));
    }

    #[test]
    fn what_stops_opensm_is_fatal_and_what_it_skips_is_not() {
        let fatal = |text: &str| {
            let read = parse(text);
            assert!(read.problems.last().unwrap().fatal, "{text}: {read:?}");
            read.problems.last().unwrap().to_string()
        };
        assert_eq!(
            fatal("Default=0x7fff, ipoib"),
            "line 1: no partition definition: there is no `:`"
        );
        assert_eq!(
            fatal("\nDefault=0x7ffg : ALL;"),
            "line 2: `0x7ffg` is no key"
        );
        assert!(
            fatal("Default=0x7fff : ALL=full\nb=0x8002 : ALL;").contains("`;` of line 1 missing")
        );
        assert!(fatal("a=2 : host1=full;").contains("`host1` is no port GUID"));
        for mild in [
            "a=2, speed=3 : ALL;",
            "a=2, mtu=x : ALL;",
            "a=2 : ALL=most;",
            "a=2, defmember=few : ALL;",
            "a=0x12345 : ALL;",
            "a=2, ipoib : ALL",
            "a=2 :\nmgid=fe80::1\nALL;",
        ] {
            let read = parse(mild);
            assert!(
                !read.problems.is_empty() && read.problems.iter().all(|p| !p.fatal),
                "{mild}: {read:?}"
            );
        }
        assert!(parse("").definitions.is_empty() && parse("# only\n\n").problems.is_empty());
    }
}
