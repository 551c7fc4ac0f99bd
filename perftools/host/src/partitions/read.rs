//! The parser. It reads line by line, like `osm_prtn_config.c` in OpenSM.

use std::net::Ipv6Addr;

use super::{Definition, Group, GroupFlags, Member, MemberPorts, Membership, Partitions, Problem};

/// Parses the text of `partitions.conf`.
///
/// Parsing stops at a problem at which OpenSM stops. All other problems are recorded and parsing
/// continues.
pub fn parse(text: &str) -> Partitions {
    let mut parser = Parser {
        partitions: Partitions::default(),
        open: None,
        line: 0,
    };
    'lines: for (at, line) in text.lines().enumerate() {
        parser.line = at + 1;
        let mut rest = line.split('#').next().unwrap_or("");
        while !rest.trim().is_empty() {
            let (part, after) = rest
                .split_once(';')
                .map_or((rest, None), |(part, after)| (part, Some(after)));
            if parser.parse_part(part).is_err() {
                parser.finish_definition();
                break 'lines;
            }
            let Some(after) = after else { break };
            parser.finish_definition();
            rest = after;
        }
    }
    if let Some(line) = parser.open.as_ref().map(|definition| definition.line) {
        parser.warn(format!(
            "the definition that begins on line {line} does not end with `;`"
        ));
        parser.finish_definition();
    }
    parser.partitions
}

struct Parser {
    partitions: Partitions,
    open: Option<Definition>,
    line: usize,
}

/// A problem at which OpenSM stops parsing.
struct Fatal;

impl Parser {
    fn warn(&mut self, text: String) {
        self.partitions.problems.push(Problem {
            line: self.line,
            fatal: false,
            text,
        });
    }

    fn fatal(&mut self, text: String) -> Fatal {
        self.partitions.problems.push(Problem {
            line: self.line,
            fatal: true,
            text,
        });
        Fatal
    }

    fn finish_definition(&mut self) {
        self.partitions.definitions.extend(self.open.take());
    }

    /// Parses a part of a line that ends at a `;` or at the end of the line.
    fn parse_part(&mut self, part: &str) -> Result<(), Fatal> {
        if self.open.is_some() {
            return self.parse_members(part);
        }
        let Some((head, members)) = part.split_once(':') else {
            return Err(self.fatal("not a partition definition, because it has no `:`".into()));
        };
        let definition = self.parse_head(head)?;
        self.open = Some(definition);
        self.parse_members(members)
    }

    /// Parses the head of a definition, `NAME=KEY, flag, flag=value`.
    fn parse_head(&mut self, head: &str) -> Result<Definition, Fatal> {
        let mut definition = Definition {
            line: self.line,
            ..Definition::default()
        };
        let mut tokens = head.split(',').map(token);
        let (name, mut key) = tokens.next().unwrap_or_default();
        let mut name = Some(name).filter(|name| !name.is_empty());
        if key.is_none() && name.is_some_and(|name| name.starts_with(|c: char| c.is_ascii_digit()))
        {
            key = name.take();
        }
        name.unwrap_or_default().clone_into(&mut definition.name);
        if let Some(key) = key {
            let Some(number) = c_number(key) else {
                return Err(self.fatal("the partition key is not a number".into()));
            };
            if number > 0xffff {
                self.warn(format!(
                    "key {key} has more than 16 bits; OpenSM truncates it"
                ));
            }
            definition.pkey =
                Some(u16::try_from(number & 0x7fff).unwrap_or_default()).filter(|key| *key != 0);
        }
        for (flag, value) in tokens {
            self.parse_flag(&mut definition, flag, value);
        }
        Ok(definition)
    }

    fn parse_flag(&mut self, definition: &mut Definition, flag: &str, value: Option<&str>) {
        if flag.is_empty() {
            return self.warn("empty flag between two commas".into());
        }
        if self.parse_group_flag(&mut definition.flags, flag, value) {
            return;
        }
        if "ipoib".starts_with(flag) {
            definition.ipoib = true;
        } else if "defmember".starts_with(flag) {
            match value.filter(|v| !v.is_empty()).and_then(membership) {
                Some(membership) => definition.default_membership = membership,
                None => self.warn("defmember: expected full, limited or both".into()),
            }
        } else if flag == "indx0" {
            definition.indx0 = true;
        } else {
            self.warn(format!("unknown flag `{flag}`, ignored by OpenSM"));
        }
    }

    /// Parses a parameter of a multicast group. Returns `false` if the flag is not one.
    fn parse_group_flag(
        &mut self,
        flags: &mut GroupFlags,
        flag: &str,
        value: Option<&str>,
    ) -> bool {
        const NAMES: [&str; 7] = ["mtu", "rate", "scope", "Q_Key", "TClass", "sl", "FlowLabel"];
        const LARGEST: [u64; 7] = [5, 22, 15, u32::MAX as u64, 255, 15, 0xf_ffff];
        let Some(at) = NAMES.iter().position(|name| name.starts_with(flag)) else {
            return false;
        };
        let (name, largest) = (NAMES[at], LARGEST[at]);
        let number = value.and_then(c_number).filter(|number| *number <= largest);
        let Some(number) = number.and_then(|number| u32::try_from(number).ok()) else {
            self.warn(format!("{name}: expected a number from 0 to {largest}"));
            return true;
        };
        match name {
            // These are codes, not bytes or Gbit/s.
            "mtu" if number == 0 => self.warn("mtu=0: expected a code from 1 to 5".into()),
            "mtu" => flags.mtu = Some(number),
            "rate" if number < 2 => {
                self.warn(format!("rate={number}: expected a code from 2 to 22"));
            }
            "rate" => flags.rate = Some(number),
            "scope" if number == 0 => self.warn("scope=0: expected 1 to 15".into()),
            "scope" => flags.scopes.push(number),
            "Q_Key" => flags.q_key = Some(number),
            "TClass" => flags.tclass = Some(number),
            "sl" => flags.sl = Some(number),
            _ => flags.flow_label = Some(number),
        }
        true
    }

    /// Parses `MEMBER[=membership], …` or a multicast group.
    fn parse_members(&mut self, part: &str) -> Result<(), Fatal> {
        let mut tokens = part.split(',').map(token);
        while let Some((name, value)) = tokens.next() {
            if name == "mgid" {
                let rest: Vec<_> = tokens.collect();
                self.parse_group(value.unwrap_or_default(), &rest);
                return Ok(());
            }
            self.parse_member(name, value)?;
        }
        Ok(())
    }

    fn parse_member(&mut self, name: &str, value: Option<&str>) -> Result<(), Fatal> {
        const KEYWORDS: [(&str, MemberPorts); 5] = [
            ("ALL", MemberPorts::All),
            ("ALL_CAS", MemberPorts::AllCas),
            ("ALL_SWITCHES", MemberPorts::AllSwitches),
            ("ALL_ROUTERS", MemberPorts::AllRouters),
            ("SELF", MemberPorts::SelfPort),
        ];
        let (head_line, default) = self
            .open
            .as_ref()
            .map_or((0, Membership::Limited), |d| (d.line, d.default_membership));
        if name.is_empty() || "NONE".starts_with(name) {
            return Ok(());
        }
        let keyword = KEYWORDS
            .iter()
            .find(|(keyword, _)| keyword.starts_with(name))
            .map(|(_, ports)| *ports);
        let Some(ports) = keyword.or_else(|| {
            c_number(name)
                .filter(|guid| *guid != 0)
                .map(MemberPorts::Guid)
        }) else {
            let hint = if head_line != 0 && head_line < self.line {
                format!("; is the `;` of line {head_line} missing?")
            } else {
                String::new()
            };
            return Err(self.fatal(format!("a member is not a port GUID{hint}")));
        };
        let membership = match value {
            None => default,
            Some(value) => membership(value).unwrap_or_else(|| {
                self.warn(format!(
                    "membership of {name}: expected full, limited or both; OpenSM uses limited"
                ));
                Membership::Limited
            }),
        };
        if let Some(definition) = &mut self.open {
            definition.members.push(Member { ports, membership });
        }
        Ok(())
    }

    fn parse_group(&mut self, mgid: &str, flags: &[(&str, Option<&str>)]) {
        let Some(mgid) = mgid.parse::<Ipv6Addr>().ok().filter(Ipv6Addr::is_multicast) else {
            return self.warn("mgid: not a multicast GID".into());
        };
        let mut group = Group {
            line: self.line,
            mgid,
            flags: GroupFlags::default(),
        };
        for (flag, value) in flags {
            if flag.is_empty() || !self.parse_group_flag(&mut group.flags, flag, *value) {
                self.warn(format!(
                    "unknown flag `{flag}` of a multicast group, ignored by OpenSM"
                ));
            }
        }
        if let Some(definition) = &mut self.open {
            definition.groups.push(group);
        }
    }
}

/// Splits `NAME=VALUE` or `NAME`.
fn token(text: &str) -> (&str, Option<&str>) {
    text.split_once('=')
        .map_or((text.trim(), None), |(name, value)| {
            (name.trim(), Some(value.trim()))
        })
}

/// Parses a membership. Like OpenSM, it accepts any prefix of a name, and an empty text means full.
fn membership(text: &str) -> Option<Membership> {
    [
        ("full", Membership::Full),
        ("both", Membership::Both),
        ("limited", Membership::Limited),
    ]
    .into_iter()
    .find(|(name, _)| name.starts_with(text))
    .map(|(_, membership)| membership)
}

/// Parses a number as `strtoull(…, 0)` does.
fn c_number(text: &str) -> Option<u64> {
    let (digits, radix) = match text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
        Some(hex) => (hex, 16),
        None if text.len() > 1 && text.starts_with('0') => (&text[1..], 8),
        None => (text, 10),
    };
    if digits.starts_with('+') {
        return None;
    }
    u64::from_str_radix(digits, radix).ok()
}
