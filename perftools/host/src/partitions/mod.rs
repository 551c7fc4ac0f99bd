//! The parser for `partitions.conf`. It accepts what OpenSM accepts.
//!
//! ```text
//! Default=0x7fff, ipoib, mtu=5 : ALL=full, SELF=full;
//! storage=0x8002, ipoib, rate=12, defmember=full :
//!     mgid=ff12:401b::707, sl=1
//!     0x0002c90300317851, 0x0002c90300317852=limited;
//! ```
//!
//! The head of a definition, up to the `:`, is on one line. Its members can continue on further
//! lines until the `;`. Everything after an `mgid` on the same line belongs to that group. Keywords
//! can be abbreviated, because OpenSM compares only the letters that are present.

mod read;

use std::fmt;

use crate::opensm::{DIRECTORIES, Files};
use crate::root::Root;

pub use read::parse;

/// Key of the default partition, without the membership bit.
pub const DEFAULT_PKEY: u16 = 0x7fff;
/// Default rate code of a group, 10 Gbit/s.
pub const DEFAULT_RATE: u32 = 3;
/// Default MTU code of a group, 2048 bytes.
pub const DEFAULT_MTU: u32 = 4;

/// A file that opensm can read its partitions from.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PartitionFile {
    /// The path.
    pub path: String,
    /// The file exists.
    pub exists: bool,
    /// The configuration of opensm names the file, or names none and this is a default file.
    pub is_used: bool,
    /// The contents. `None` if the file cannot be read.
    pub partitions: Option<Partitions>,
}

/// Reads the default files and those that opensm's configuration names.
pub(crate) fn files(root: &Root, opensm: &Files) -> Vec<PartitionFile> {
    let named = opensm.partition_files();
    let mut paths = named.clone();
    paths.extend(DIRECTORIES.map(|directory| format!("{directory}/partitions.conf")));
    paths.sort();
    paths.dedup();
    let read = |path: String| PartitionFile {
        exists: root.exists(&path),
        is_used: named.is_empty() || named.contains(&path),
        partitions: root.text(&path).map(|text| parse(&text)),
        path,
    };
    paths.into_iter().map(read).collect()
}

/// The contents of `partitions.conf`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Partitions {
    /// The definitions in order. Several definitions can have the same key.
    pub definitions: Vec<Definition>,
    /// The problems that OpenSM would report.
    pub problems: Vec<Problem>,
}

/// A partition definition.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Definition {
    /// The line number of the head.
    pub line: usize,
    /// The name. It can be empty and is not necessarily unique.
    pub name: String,
    /// The key without the membership bit. If it is `None`, OpenSM generates one.
    pub pkey: Option<u16>,
    /// OpenSM creates an IPoIB broadcast group.
    pub ipoib: bool,
    /// The key is stored at index 0 of the P_Key table.
    pub indx0: bool,
    /// The membership of members that do not specify one.
    pub default_membership: Membership,
    /// The parameters of the broadcast group.
    pub flags: GroupFlags,
    /// The members.
    pub members: Vec<Member>,
    /// The multicast groups that OpenSM creates.
    pub groups: Vec<Group>,
}

/// The parameters of a multicast group. OpenSM has a default for each one that is `None`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GroupFlags {
    /// The MTU code, 1 to 5 for 256 to 4096 bytes.
    pub mtu: Option<u32>,
    /// The code of the static rate.
    pub rate: Option<u32>,
    /// The service level.
    pub sl: Option<u32>,
    /// The scopes. OpenSM creates a group for each.
    pub scopes: Vec<u32>,
    /// The queue key.
    pub q_key: Option<u32>,
    /// The traffic class.
    pub tclass: Option<u32>,
    /// The flow label.
    pub flow_label: Option<u32>,
}

/// The membership of a port in a partition.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Membership {
    /// Limited members can communicate only with full members.
    #[default]
    Limited,
    /// Full members can communicate with all members.
    Full,
    /// The port has both the limited and the full key.
    Both,
}

/// A member of a partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Member {
    /// The ports.
    pub ports: MemberPorts,
    /// Their membership.
    pub membership: Membership,
}

/// The ports that a member entry refers to.
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
    /// The port of the subnet manager.
    SelfPort,
    /// The port with this GUID.
    Guid(u64),
}

/// A multicast group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Group {
    /// The line number.
    pub line: usize,
    /// The multicast GID.
    pub mgid: std::net::Ipv6Addr,
    /// The parameters that differ from those of the partition.
    pub flags: GroupFlags,
}

/// A problem in `partitions.conf`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// The line number.
    pub line: usize,
    /// OpenSM stops parsing at this line.
    pub fatal: bool,
    /// The description.
    pub text: String,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}: {}", self.line, self.text)
    }
}

/// Returns the MTU of a code, in bytes.
pub fn mtu_bytes(code: u32) -> Option<u32> {
    ibverbs::Mtu(code).bytes()
}

/// Returns the rate of a code (IBA PathRecord:Rate) in Gbit/s, as text.
pub fn rate_gbps(code: u32) -> Option<&'static str> {
    const RATES: [&str; 21] = [
        "2.5", "10", "30", "5", "20", "40", "60", "80", "120", "14", "56", "112", "168", "25",
        "100", "200", "300", "28", "50", "400", "600",
    ];
    RATES
        .get(usize::try_from(code).ok()?.checked_sub(2)?)
        .copied()
}

/// Returns the rate of a code in Mbit/s.
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

    /// The examples in the documentation of OpenSM.
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
    fn examples_of_opensm_have_no_problems() {
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
                ports: MemberPorts::Guid(0x34_5678_9034),
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
    fn examples_of_the_rhel_guide_have_no_problems() {
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
    fn only_problems_that_stop_opensm_are_fatal() {
        let fatal = |text: &str| {
            let read = parse(text);
            assert!(read.problems.last().unwrap().fatal, "{text}: {read:?}");
            read.problems.last().unwrap().to_string()
        };
        assert_eq!(
            fatal("Default=0x7fff, ipoib"),
            "line 1: not a partition definition, because it has no `:`"
        );
        assert_eq!(
            fatal("\nDefault=0x7ffg : ALL;"),
            "line 2: the partition key is not a number"
        );
        assert!(
            fatal("Default=0x7fff : ALL=full\nb=0x8002 : ALL;").contains("`;` of line 1 missing")
        );
        assert!(fatal("a=2 : host1=full;").contains("a member is not a port GUID"));
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
