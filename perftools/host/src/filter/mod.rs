//! The rules of the packet filter, evaluated for one packet.
//!
//! `nft` and `iptables` convert the output of their commands to tables of `ruleset`, which
//! evaluates them in the order of the kernel's hooks. A condition is decided from the fields of the
//! [`Packet`]. If a condition that matters cannot be decided, the result is [`Verdict::Unknown`].

mod ipset;
mod iptables;
mod nft;
mod packet;
mod ruleset;

#[cfg(test)]
mod tests;

pub use packet::{Direction, Family, NeighborMessage, Packet, Protocol};
pub use ruleset::Verdict;

use super::probe::Firewall;
use ruleset::Table;

/// Removes comments and other free text from the output of `iptables-save`.
pub(crate) fn redacted_rules(saved: &str) -> String {
    iptables::redacted(saved)
}

/// The rules of a host.
#[derive(Clone, Debug)]
pub struct Ruleset {
    tables: Vec<Table>,
}

impl Ruleset {
    /// Converts the output of the commands.
    pub fn parse(firewall: &Firewall) -> Result<Self, String> {
        let sets = ipset::parse(firewall.ipsets.as_deref().unwrap_or_default());
        let mut tables = Vec::new();
        for (saved, family) in [
            (&firewall.iptables, Family::V4),
            (&firewall.iptables_legacy, Family::V4),
            (&firewall.ip6tables, Family::V6),
            (&firewall.ip6tables_legacy, Family::V6),
        ] {
            if let Some(saved) = saved {
                tables.extend(iptables::parse(saved, family, &sets));
            }
        }
        if let Some(json) = &firewall.nft_json {
            let text = firewall.nft.as_deref().unwrap_or_default();
            // nft cannot decode the rules that iptables-nft has written. iptables-save prints them.
            let is_read = |name: &str| {
                let (family, name) = name.split_once(' ').unwrap_or_default();
                let saved = match family {
                    "ip" => &firewall.iptables,
                    "ip6" => &firewall.ip6tables,
                    _ => return false,
                };
                saved.as_ref().is_some_and(|saved| {
                    saved.contains("(nf_tables)")
                        && saved
                            .lines()
                            .any(|line| line.strip_prefix('*') == Some(name))
                })
            };
            let nft = nft::parse(json, text)?;
            tables.extend(nft.into_iter().filter(|table| !is_read(&table.name)));
        }
        Ok(Self { tables })
    }

    /// Returns the result for a packet.
    pub fn verdict(&self, packet: &Packet) -> Verdict {
        ruleset::verdict(&self.tables, packet)
    }

    /// Returns `true` if a table or a chain has this name.
    pub fn has(&self, name: &str) -> bool {
        self.tables
            .iter()
            .any(|table| table.name.ends_with(name) || table.chains.contains_key(name))
    }
}
