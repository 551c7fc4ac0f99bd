//! PCI functions: RDMA adapters, GPUs, and the bridges between them and the root complex.

use std::fs;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::pci_link::PciLink;

/// Directory of sysfs with all functions.
const DIRECTORY: &str = "/sys/bus/pci/devices";
/// Identifiers of extended capabilities, and the offset of their control registers
/// (`pci_regs.h`).
const ACS: u16 = 0x0d;
const ATS: u16 = 0x0f;
const CONTROL: usize = 6;
const FIRST_EXTENDED: usize = 0x100;
const CONFIG_LEN: usize = 4096;
/// Bits of the ACS control register: redirects requests or completions between peers to the root,
/// and routes translated requests directly.
const REDIRECT: u16 = 0x04 | 0x08;
const DIRECT_TRANSLATED: u16 = 0x40;
const ATS_ENABLE: u16 = 0x8000;

/// A PCI function.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct PciFunction {
    /// The address, for example `0000:5e:00.0`.
    pub slot: String,
    /// The address of the bridge above it. `None` below the root complex.
    pub parent: Option<String>,
    /// The class code, for example `0x020700`.
    pub class: String,
    /// The vendor, for example `0x15b3`.
    pub vendor: String,
    /// The name of the driver.
    pub driver: Option<String>,
    /// The link of a function, or that of a port of a bridge.
    pub link: Option<PciLink>,
    /// The control register of Access Control Services. `None` if the function has none, or if this
    /// user cannot read it.
    pub acs: Option<u16>,
    /// Address Translation Services are enabled. `None` as for `acs`.
    pub ats: Option<bool>,
}

impl PciFunction {
    /// Returns `true` if the function is a GPU or another accelerator with memory of its own.
    pub fn is_gpu(&self) -> bool {
        // Display controllers without memory for peers, such as those of BMCs, are VGA only.
        let is_accelerator = self.class.starts_with("0x0302") || self.class.starts_with("0x1200");
        let is_vga = self.class.starts_with("0x0300");
        (is_accelerator || is_vga) && ["0x10de", "0x1002"].contains(&self.vendor.as_str())
    }

    /// Returns `true` if a port of a bridge sends requests of one device for another one to the
    /// root, unless they are translated.
    pub fn redirects_peers(&self) -> bool {
        self.acs.is_some_and(|control| control & REDIRECT != 0)
    }

    /// Returns `true` if a port of a bridge sends translated requests directly.
    pub fn routes_translated(&self) -> bool {
        self.acs
            .is_some_and(|control| control & DIRECT_TRANSLATED != 0)
    }
}

/// Returns the function with this address, and the bridges above it.
pub fn path<'a>(functions: &'a [PciFunction], slot: &str) -> Vec<&'a PciFunction> {
    let mut path: Vec<&PciFunction> = Vec::new();
    let mut next = Some(slot);
    while let Some(slot) = next {
        let found = functions.iter().find(|function| function.slot == slot);
        // A captured tree can contain a loop.
        let Some(function) = found.filter(|function| !path.contains(function)) else {
            break;
        };
        path.push(function);
        next = function.parent.as_deref();
    }
    path
}

/// Reads the RDMA adapters and the GPUs of this host, and the bridges above them.
pub(crate) fn query() -> Vec<PciFunction> {
    let entries = fs::read_dir(DIRECTORY).into_iter().flatten().flatten();
    let mut paths: Vec<PathBuf> = entries.map(|entry| entry.path()).collect();
    paths.sort();
    let mut functions: Vec<PciFunction> = Vec::new();
    for path in paths {
        let Ok(path) = fs::canonicalize(path) else {
            continue;
        };
        let is_adapter = path.join("infiniband").is_dir();
        let Some(function) = read(&path).filter(|found| is_adapter || found.is_gpu()) else {
            continue;
        };
        functions.push(function);
        for bridge in path.ancestors().skip(1).filter_map(read) {
            if !functions.contains(&bridge) {
                functions.push(bridge);
            }
        }
    }
    functions
}

/// Reads the function of a directory in `/sys/devices`.
fn read(path: &Path) -> Option<PciFunction> {
    let value = |file: &str| Some(fs::read_to_string(path.join(file)).ok()?.trim().to_owned());
    let number = |file: &str| value(file)?.parse().ok();
    let name = |path: &Path| Some(path.file_name()?.to_str()?.to_owned());
    let link = || {
        Some(PciLink {
            current_speed: value("current_link_speed")?,
            current_width: number("current_link_width").filter(|width| *width > 0)?,
            max_speed: value("max_link_speed")?,
            max_width: number("max_link_width")?,
        })
    };
    let config = fs::read(path.join("config")).unwrap_or_default();
    let parent = path.parent()?;
    Some(PciFunction {
        slot: name(path)?,
        class: value("class")?,
        vendor: value("vendor")?,
        parent: parent
            .join("class")
            .exists()
            .then(|| name(parent))
            .flatten(),
        driver: fs::read_link(path.join("driver"))
            .ok()
            .and_then(|link| name(&link)),
        link: link(),
        acs: control(&config, ACS),
        ats: control(&config, ATS).map(|control| control & ATS_ENABLE != 0),
    })
}

/// Returns the control register of an extended capability in the configuration space.
pub fn control(config: &[u8], capability: u16) -> Option<u16> {
    let word = |at: usize| Some(u16::from_le_bytes([*config.get(at)?, *config.get(at + 1)?]));
    let mut at = FIRST_EXTENDED;
    // The list is at most as long as the space.
    for _ in 0..CONFIG_LEN / 4 {
        if word(at)? == capability {
            return word(at + CONTROL);
        }
        at = usize::from(word(at + 2)? >> 4) & !3;
        if at < FIRST_EXTENDED {
            return None;
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn extended_capabilities_are_found() {
        let mut config = vec![0; CONFIG_LEN];
        let mut write =
            |at: usize, bytes: &[u8]| config[at..at + bytes.len()].copy_from_slice(bytes);
        // Advanced error reporting, version 2, then ACS, then ATS.
        write(0x100, &[0x01, 0x00, 0x02, 0x15]);
        write(0x150, &[0x0d, 0x00, 0x01, 0x16, 0x5f, 0x00, 0x1d, 0x00]);
        write(0x160, &[0x0f, 0x00, 0x01, 0x00, 0x00, 0x00, 0x00, 0x80]);
        assert_eq!(control(&config, ACS), Some(0x1d));
        assert_eq!(control(&config, ATS), Some(0x8000));
        assert_eq!(control(&config, 0x10), None);
        // Users other than root read 64 bytes.
        assert_eq!(control(&config[..64], ACS), None);
        // A list that is a loop.
        config[0x162..0x164].copy_from_slice(&[0x01, 0x10]);
        assert_eq!(control(&config, 0x10), None);
    }
}
