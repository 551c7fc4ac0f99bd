//! Lists of CPUs as the kernel and users write them.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};

/// Parses a list of CPU numbers in the kernel's format, such as `0-3,8`.
///
/// Returns `None` if `text` has another format or names far more CPUs than a host can have.
pub fn parse_list(text: &str) -> Option<Vec<usize>> {
    let mut all = Vec::new();
    for part in text.trim().split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last): (u16, u16) = (first.parse().ok()?, last.parse().ok()?);
        if first > last || all.len() > u16::MAX.into() {
            return None;
        }
        all.extend((first..=last).map(usize::from));
    }
    Some(all)
}

/// A set of CPUs as written on the command line: `3`, `0-3,8`, `node1` or `any`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "testing"), derive(schemars::JsonSchema))]
#[serde(transparent)]
pub struct CpuList(String);

impl FromStr for CpuList {
    type Err = String;

    fn from_str(text: &str) -> std::result::Result<Self, String> {
        let node = text
            .strip_prefix("node")
            .is_some_and(|n| n.parse::<u16>().is_ok());
        if text == "any" || node || parse_list(text).is_some() {
            return Ok(Self(text.to_owned()));
        }
        Err(format!(
            "`{text}` is not a list of CPUs; expected 3, 0-3,8, node1 or any"
        ))
    }
}

impl fmt::Display for CpuList {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl CpuList {
    /// Creates a list of one CPU.
    pub fn single(cpu: usize) -> Self {
        Self(cpu.to_string())
    }

    /// Returns the CPU numbers; `None` for `any`.
    pub fn numbers(&self) -> Result<Option<Vec<usize>>> {
        let cpus = match self.0.strip_prefix("node") {
            _ if self.0 == "any" => return Ok(None),
            Some(node) => {
                let path = format!("/sys/devices/system/node/node{node}/cpulist");
                std::fs::read_to_string(path)
                    .map_err(|e| Error::system(format!("read the CPUs of NUMA node {node}"), &e))?
            }
            None => self.0.clone(),
        };
        Ok(Some(parse_list(&cpus).unwrap_or_default()))
    }
}

#[cfg(test)]
mod tests {
    use super::CpuList;

    #[test]
    fn invalid_cpu_lists_are_rejected() {
        for bad in ["", "3-1", "nodeX"] {
            assert!(bad.parse::<CpuList>().is_err(), "{bad}");
        }
        assert!("node0".parse::<CpuList>().is_ok() && "any".parse::<CpuList>().is_ok());
    }

    #[test]
    fn lists_follow_the_kernels_format() {
        assert_eq!(super::parse_list("0-3,8\n"), Some(vec![0, 1, 2, 3, 8]));
        for bad in ["", "3-1", "a", "1,,2", "-1", "99999999"] {
            assert_eq!(super::parse_list(bad), None, "{bad}");
        }
        // A client sends this text, so its length must not decide how much memory is used.
        assert_eq!(super::parse_list(&vec!["0-65535"; 8000].join(",")), None);
    }
}
