//! Lists of CPUs as the kernel and users write them.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use super::error::{Error, Result};

/// The numbers of a list, `0-3,8` as the kernel and its users write it; none where it is no list,
/// or one of more processors than there are numbers for.
pub fn list(text: &str) -> Option<Vec<usize>> {
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

/// Processors, as a user names them: `3`, `0-3,8`, `node1`, `any`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(transparent)]
pub struct CpuList(String);

impl FromStr for CpuList {
    type Err = String;

    fn from_str(text: &str) -> std::result::Result<Self, String> {
        let node = text
            .strip_prefix("node")
            .is_some_and(|n| n.parse::<u16>().is_ok());
        if text == "any" || node || list(text).is_some() {
            return Ok(Self(text.to_owned()));
        }
        Err(format!(
            "`{text}` names no processors; write 3, 0-3,8, node1 or any"
        ))
    }
}

impl fmt::Display for CpuList {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl CpuList {
    /// Returns the list of one CPU.
    pub fn single(cpu: usize) -> Self {
        Self(cpu.to_string())
    }

    /// Returns the CPU numbers; `None` for `any`.
    ///
    /// # Errors
    /// The NUMA node does not exist on this host.
    pub(crate) fn numbers(&self) -> Result<Option<Vec<usize>>> {
        let cpus = match self.0.strip_prefix("node") {
            _ if self.0 == "any" => return Ok(None),
            Some(node) => {
                let path = format!("/sys/devices/system/node/node{node}/cpulist");
                std::fs::read_to_string(path)
                    .map_err(|e| Error::system(format!("no NUMA node {node} here"), &e))?
            }
            None => self.0.clone(),
        };
        Ok(Some(list(&cpus).unwrap_or_default()))
    }
}

#[cfg(test)]
mod tests {
    use super::CpuList;

    #[test]
    fn what_names_no_processors_is_refused() {
        for bad in ["", "3-1", "nodeX"] {
            assert!(bad.parse::<CpuList>().is_err(), "{bad}");
        }
        assert!("node0".parse::<CpuList>().is_ok() && "any".parse::<CpuList>().is_ok());
    }

    #[test]
    fn lists_are_the_kernels() {
        assert_eq!(super::list("0-3,8\n"), Some(vec![0, 1, 2, 3, 8]));
        for bad in ["", "3-1", "a", "1,,2", "-1", "99999999"] {
            assert_eq!(super::list(bad), None, "{bad}");
        }
        // What a client says comes from anybody.
        assert_eq!(super::list(&vec!["0-65535"; 8000].join(",")), None);
    }
}
