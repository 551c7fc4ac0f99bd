//! The channel adapters of this machine and their ports, as sysfs tells.

#![allow(unsafe_code)]

use std::ffi::{CStr, CString, c_char};
use std::fmt;
use std::net::Ipv6Addr;

use rdma_sys::{umad_ca, umad_port};

use crate::convert::{clear, not_negative};
use crate::errno::Errno;
use crate::error::{Error, Result};
use crate::identity::{Guid, Lid};
use crate::kind::ErrorKind;
use crate::mad::{PhysState, PortState};

/// A channel adapter (InfiniBand or RoCE; iWARP has no management datagrams) and what sysfs says of
/// it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Ca {
    /// Its name: `mlx4_0`.
    pub name: String,
    /// Its kind: 1 channel adapter, 2 switch, 3 router.
    pub node_type: u32,
    /// Firmware version.
    pub fw_ver: String,
    /// Hardware version.
    pub hw_ver: String,
    /// The maker's name of the model.
    pub ca_type: String,
    /// GUID of the adapter.
    pub node_guid: Guid,
    /// GUID of the system that it is a part of.
    pub system_guid: Guid,
    /// Its ports, by number.
    pub ports: Vec<PortAttr>,
}

/// What sysfs says of a port.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct PortAttr {
    /// The adapter's name.
    pub ca_name: String,
    /// Its number, from 1 (0 on a switch).
    pub port_num: u8,
    /// Its LID, the first of 2^`lmc`; 0 on RoCE and where no subnet manager was.
    pub base_lid: Lid,
    /// LID mask count.
    pub lmc: u8,
    /// The subnet manager's LID.
    pub sm_lid: Lid,
    /// The service level to reach it with.
    pub sm_sl: u8,
    /// Logical state.
    pub state: PortState,
    /// Physical state.
    pub phys_state: PhysState,
    /// Rate in Gb/s, whole ones.
    pub rate: u32,
    /// Capabilities (`CapabilityMask` of PortInfo).
    pub cap_mask: u32,
    /// The subnet's prefix: the upper half of the first GID.
    pub gid_prefix: u64,
    /// The port's GUID: the lower half of the first GID.
    pub port_guid: Guid,
    /// Partition keys, the table's first places.
    pub pkeys: Vec<u16>,
    /// `InfiniBand` or `Ethernet`.
    pub link_layer: LinkLayer,
}

impl PortAttr {
    /// The first GID: prefix and GUID.
    pub fn gid(&self) -> Ipv6Addr {
        gid(self.gid_prefix, self.port_guid)
    }
}

/// The GID that a subnet's prefix and a port's GUID make.
pub fn gid(prefix: u64, guid: Guid) -> Ipv6Addr {
    Ipv6Addr::from_bits(u128::from(prefix) << 64 | u128::from(guid.0))
}

/// What a port's link is: the text of sysfs.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct LinkLayer(String);

impl LinkLayer {
    /// Whether ports have LIDs and a subnet manager.
    pub fn is_infiniband(&self) -> bool {
        // Kernels before 2.6.37 have no such file, and no RoCE; the library then says IB.
        matches!(self.0.as_str(), "InfiniBand" | "IB")
    }

    /// Whether it is RoCE: addresses are GIDs.
    pub fn is_ethernet(&self) -> bool {
        self.0 == "Ethernet"
    }
}

impl fmt::Display for LinkLayer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

impl fmt::Debug for LinkLayer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.0, f)
    }
}

impl Ca {
    /// The names of all adapters that have management datagrams, sorted.
    ///
    /// # Errors
    /// Fails when sysfs cannot be read. A kernel without RDMA has no adapters; that is no error.
    ///
    /// # References
    /// [`umad_get_ca_device_list(3)`](https://man7.org/linux/man-pages/man3/umad_get_ca_device_list.3.html)
    pub fn names() -> Result<Vec<String>> {
        clear();
        // SAFETY: no arguments.
        let head = unsafe { rdma_sys::umad_get_ca_device_list() };
        if head.is_null() {
            return match Errno::last() {
                Errno(0 | libc::ENOENT) => Ok(Vec::new()),
                errno => Err(Error::of_call(
                    "umad_get_ca_device_list",
                    errno,
                    "/sys/class/infiniband",
                )),
            };
        }
        let mut names = Vec::new();
        let mut next = head;
        while !next.is_null() {
            // SAFETY: a node of the list, which is not freed yet; its name is a C string within the
            // node.
            let (node, name) = unsafe { (*next, CStr::from_ptr((*next).ca_name)) };
            names.push(name.to_string_lossy().into_owned());
            next = node.next;
        }
        // SAFETY: the list that the call above gave, freed once; nothing of it is kept.
        unsafe { rdma_sys::umad_free_ca_device_list(head) };
        names.sort();
        Ok(names)
    }

    /// The adapter of this name.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`] when there is none.
    ///
    /// # Example
    /// ```no_run
    /// for name in ibumad::Ca::names()? {
    ///     for port in ibumad::Ca::by_name(&name)?.ports {
    ///         println!(
    ///             "{name} port {}: {} LID {}",
    ///             port.port_num, port.state, port.base_lid
    ///         );
    ///     }
    /// }
    /// # Ok::<(), ibumad::Error>(())
    /// ```
    ///
    /// # References
    /// [`umad_get_ca(3)`](https://man7.org/linux/man-pages/man3/umad_get_ca.3.html)
    pub fn by_name(name: &str) -> Result<Self> {
        let c_name = c_name("umad_get_ca", name)?;
        let mut raw = umad_ca::default();
        not_negative(
            "umad_get_ca",
            || name.to_owned(),
            || {
                // SAFETY: a C string and a structure to write to; the library fills it or returns a
                // negative number.
                unsafe { rdma_sys::umad_get_ca(c_name.as_ptr(), &raw mut raw) }
            },
        )?;
        let ca = Self::from_raw(&raw);
        // SAFETY: filled by the call above, released once; what was taken from it are copies.
        unsafe { rdma_sys::umad_release_ca(&raw mut raw) };
        Ok(ca)
    }

    fn from_raw(raw: &umad_ca) -> Self {
        // SAFETY: each pointer is NULL or a port that the library allocated, alive until the
        // adapter is released.
        let ports = raw
            .ports
            .iter()
            .filter_map(|port| unsafe { port.as_ref() })
            .map(PortAttr::from_raw)
            .collect();
        Self {
            name: text(&raw.ca_name),
            node_type: raw.node_type,
            fw_ver: text(&raw.fw_ver),
            hw_ver: text(&raw.hw_ver),
            ca_type: text(&raw.ca_type),
            node_guid: Guid(u64::from_be(raw.node_guid)),
            system_guid: Guid(u64::from_be(raw.system_guid)),
            ports,
        }
    }

    /// The port that a tool takes where none is named: the first active one on InfiniBand, else the
    /// first active one, else the first.
    pub fn best_port(&self) -> Option<&PortAttr> {
        let active = |port: &&PortAttr| port.state == PortState::ACTIVE;
        let mut ports = self.ports.iter();
        ports
            .clone()
            .find(|port| active(port) && port.link_layer.is_infiniband())
            .or_else(|| {
                let first = ports.clone().next();
                ports.find(active).or(first)
            })
    }
}

impl PortAttr {
    fn from_raw(raw: &umad_port) -> Self {
        let pkeys = if raw.pkeys.is_null() {
            Vec::new()
        } else {
            // SAFETY: the library allocated that many keys and filled them.
            unsafe { std::slice::from_raw_parts(raw.pkeys, raw.pkeys_size as usize) }.to_vec()
        };
        Self {
            ca_name: text(&raw.ca_name),
            port_num: u8::try_from(raw.portnum).unwrap_or(0),
            base_lid: Lid(narrow(raw.base_lid)),
            lmc: u8::try_from(raw.lmc).unwrap_or(0),
            sm_lid: Lid(narrow(raw.sm_lid)),
            sm_sl: u8::try_from(raw.sm_sl).unwrap_or(0),
            state: PortState(u8::try_from(raw.state).unwrap_or(u8::MAX)),
            phys_state: PhysState(u8::try_from(raw.phys_state).unwrap_or(u8::MAX)),
            rate: raw.rate,
            cap_mask: u32::from_be(raw.capmask),
            gid_prefix: u64::from_be(raw.gid_prefix),
            port_guid: Guid(u64::from_be(raw.port_guid)),
            pkeys,
            link_layer: LinkLayer(text(&raw.link_layer)),
        }
    }
}

fn narrow(lid: u32) -> u16 {
    u16::try_from(lid).unwrap_or(0)
}

/// A name as C takes it; libibumad's buffers hold 19 bytes of it.
pub(crate) fn c_name(call: &'static str, name: &str) -> Result<CString> {
    let bad = |why: &str| {
        Error::new(
            ErrorKind::InvalidInput,
            call,
            format!("`{}`: {why}", name.escape_default()),
        )
    };
    if name.is_empty() || name.contains('/') {
        return Err(bad("no adapter's name"));
    }
    if name.len() >= rdma_sys::UMAD_CA_NAME_LEN as usize {
        return Err(bad("longer than any adapter's name"));
    }
    CString::new(name).map_err(|_| bad("no adapter's name"))
}

/// A text of a fixed field, up to its NUL or its end.
fn text(field: &[c_char]) -> String {
    let bytes: Vec<u8> = field
        .iter()
        .take_while(|&&c| c != 0)
        .map(|&c| c.to_ne_bytes()[0])
        .collect();
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_cannot_be_are_refused_before_the_library_sees_them() {
        for name in ["", "../../etc", "a\0b", "a_name_of_twenty_char"] {
            assert_eq!(
                Ca::by_name(name).expect_err(name).kind(),
                ErrorKind::InvalidInput
            );
        }
    }

    #[test]
    fn a_text_without_an_end_is_its_field() {
        assert_eq!(text(&[b'a' as c_char; 4]), "aaaa");
        assert_eq!(text(&[b'a' as c_char, 0, b'b' as c_char]), "a");
    }
}
