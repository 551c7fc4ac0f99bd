//! The channel adapters of this host and their ports, as sysfs reports them.

#![allow(unsafe_code)]

use std::ffi::{CStr, CString, c_char};
use std::fmt;

use rdma_sys::{umad_ca, umad_port};
use rdma_types::convert::clear_errno;
use rdma_types::{Errno, Error, ErrorKind, Gid, Guid, Lid, PhysState, PortState, Result};

use crate::convert::not_negative;
use crate::error::{call_failed, load_libibumad};

/// A channel adapter (InfiniBand or RoCE) and its attributes in sysfs. iWARP devices have no
/// management datagrams.
///
/// # Example
/// ```no_run
/// for name in ibumad::Ca::names()? {
///     let ca = ibumad::Ca::by_name(&name)?;
///     println!("{name}: firmware {}, {} ports", ca.fw_ver, ca.ports.len());
/// }
/// # Ok::<(), ibumad::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Ca {
    /// Name, for example `mlx4_0`.
    pub name: String,
    /// Node type: 1 channel adapter, 2 switch, 3 router.
    pub node_type: u32,
    /// Firmware version.
    pub fw_ver: String,
    /// Hardware version.
    pub hw_ver: String,
    /// The vendor's name of the model.
    pub ca_type: String,
    /// GUID of the adapter.
    pub node_guid: Guid,
    /// GUID of the system that contains the adapter.
    pub system_guid: Guid,
    /// Ports, ordered by number.
    pub ports: Vec<PortAttr>,
}

/// The attributes of a port in sysfs.
///
/// # Example
/// ```no_run
/// let ca = ibumad::Ca::by_name("mlx4_0")?;
/// for port in &ca.ports {
///     println!("port {}: {}, LID {}", port.port_num, port.state, port.base_lid);
/// }
/// # Ok::<(), ibumad::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct PortAttr {
    /// Name of the adapter.
    pub ca_name: String,
    /// Port number, starting at 1 (0 on a switch).
    pub port_num: u8,
    /// First of the port's 2^`lmc` LIDs; 0 on RoCE and before a subnet manager assigned one.
    pub base_lid: Lid,
    /// LID mask control.
    pub lmc: u8,
    /// LID of the subnet manager.
    pub sm_lid: Lid,
    /// Service level for requests to the subnet manager.
    pub sm_sl: u8,
    /// Logical state.
    pub state: PortState,
    /// Physical state.
    pub phys_state: PhysState,
    /// Rate in Gb/s, rounded down.
    pub rate: u32,
    /// Capability mask (`CapabilityMask` of PortInfo).
    pub cap_mask: u32,
    /// Subnet prefix: the upper half of the first GID.
    pub gid_prefix: u64,
    /// GUID of the port: the lower half of the first GID.
    pub port_guid: Guid,
    /// First entries of the table of partition keys.
    pub pkeys: Vec<u16>,
    /// Link layer.
    pub link_layer: LinkLayer,
}

impl PortAttr {
    /// Returns the first GID of the port.
    pub fn gid(&self) -> Gid {
        Gid::from_parts(self.gid_prefix, self.port_guid)
    }
}

/// The link layer of a port, as sysfs names it: `InfiniBand` or `Ethernet`.
///
/// # Example
/// ```no_run
/// let attr = ibumad::Port::open("mlx4_0", 1)?.attr()?;
/// let needs_route = attr.link_layer.is_ethernet();
/// # Ok::<(), ibumad::Error>(())
/// ```
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct LinkLayer(String);

impl LinkLayer {
    /// Returns `true` for InfiniBand: the port has a LID and a subnet manager.
    pub fn is_infiniband(&self) -> bool {
        // Kernels before 2.6.37 have no such file and no RoCE; the library then returns "IB".
        matches!(self.0.as_str(), "InfiniBand" | "IB")
    }

    /// Returns `true` for RoCE: ports are addressed by GID.
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
    /// Returns the sorted names of all adapters that have management datagrams. The list is empty
    /// if the kernel has no RDMA support.
    ///
    /// # Errors
    /// Fails if sysfs cannot be read.
    #[doc(alias = "umad_get_ca_device_list")]
    pub fn names() -> Result<Vec<String>> {
        const CALL: &str = "umad_get_ca_device_list";
        load_libibumad(CALL)?;
        clear_errno();
        // SAFETY: the function takes no arguments.
        let head = unsafe { rdma_sys::umad_get_ca_device_list() };
        if head.is_null() {
            return match Errno::last() {
                Errno(0 | libc::ENOENT) => Ok(Vec::new()),
                errno => Err(call_failed(CALL, errno, "/sys/class/infiniband")),
            };
        }
        let mut names = Vec::new();
        let mut next = head;
        while !next.is_null() {
            // SAFETY: `next` is a node of the list, which is freed only below; its name is a C
            // string inside the node.
            let (node, name) = unsafe { (*next, CStr::from_ptr((*next).ca_name)) };
            names.push(name.to_string_lossy().into_owned());
            next = node.next;
        }
        // SAFETY: `head` is the list that the call above returned. It is freed once, and `names`
        // has copies.
        unsafe { rdma_sys::umad_free_ca_device_list(head) };
        names.sort();
        Ok(names)
    }

    /// Returns the adapter with this name.
    ///
    /// # Errors
    /// - [`ErrorKind::NotFound`]: there is no such adapter;
    /// - [`ErrorKind::InvalidInput`]: the name cannot be an adapter's.
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
    #[doc(alias = "umad_get_ca")]
    pub fn by_name(name: &str) -> Result<Self> {
        const CALL: &str = "umad_get_ca";
        load_libibumad(CALL)?;
        let c_name = to_c_name(CALL, name)?;
        let mut raw = umad_ca::default();
        // SAFETY: `c_name` is a C string and `raw` is writable. The library fills it, or returns a
        // negative number.
        let get = || unsafe { rdma_sys::umad_get_ca(c_name.as_ptr(), &raw mut raw) };
        not_negative(CALL, || name.to_owned(), get)?;
        let ca = Self::from_raw(&raw);
        // SAFETY: the call above filled `raw`. It is released once, and `ca` has copies.
        unsafe { rdma_sys::umad_release_ca(&raw mut raw) };
        Ok(ca)
    }

    fn from_raw(raw: &umad_ca) -> Self {
        // SAFETY: each pointer is NULL or a port that the library allocated; it stays allocated
        // until the adapter is released.
        let ports = raw
            .ports
            .iter()
            .filter_map(|port| unsafe { port.as_ref() })
            .map(PortAttr::from_raw)
            .collect();
        Self {
            name: to_text(&raw.ca_name),
            node_type: raw.node_type,
            fw_ver: to_text(&raw.fw_ver),
            hw_ver: to_text(&raw.hw_ver),
            ca_type: to_text(&raw.ca_type),
            node_guid: Guid(u64::from_be(raw.node_guid)),
            system_guid: Guid(u64::from_be(raw.system_guid)),
            ports,
        }
    }

    /// Returns the port to use if the user names none: the first active InfiniBand port, otherwise
    /// the first active port, otherwise the first port.
    pub fn default_port(&self) -> Option<&PortAttr> {
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
            // SAFETY: the library allocated and filled `pkeys_size` keys.
            unsafe { std::slice::from_raw_parts(raw.pkeys, raw.pkeys_size as usize) }.to_vec()
        };
        Self {
            ca_name: to_text(&raw.ca_name),
            port_num: u8::try_from(raw.portnum).unwrap_or(0),
            base_lid: to_lid(raw.base_lid),
            lmc: u8::try_from(raw.lmc).unwrap_or(0),
            sm_lid: to_lid(raw.sm_lid),
            sm_sl: u8::try_from(raw.sm_sl).unwrap_or(0),
            state: PortState(u8::try_from(raw.state).unwrap_or(u8::MAX)),
            phys_state: PhysState(u8::try_from(raw.phys_state).unwrap_or(u8::MAX)),
            rate: raw.rate,
            cap_mask: u32::from_be(raw.capmask),
            gid_prefix: u64::from_be(raw.gid_prefix),
            port_guid: Guid(u64::from_be(raw.port_guid)),
            pkeys,
            link_layer: LinkLayer(to_text(&raw.link_layer)),
        }
    }
}

fn to_lid(lid: u32) -> Lid {
    Lid(u16::try_from(lid).unwrap_or(0))
}

/// Converts an adapter's name to a C string, and rejects names that libibumad's buffers of 20 bytes
/// cannot hold.
pub(crate) fn to_c_name(call: &'static str, name: &str) -> Result<CString> {
    let invalid = |reason: &str| {
        let detail = format!("`{}`: {reason}", name.escape_default());
        Error::new(ErrorKind::InvalidInput, call, detail)
    };
    if name.is_empty() || name.contains('/') {
        return Err(invalid("not the name of an adapter"));
    }
    if name.len() >= rdma_sys::UMAD_CA_NAME_LEN as usize {
        return Err(invalid("the name is too long: at most 19 bytes"));
    }
    CString::new(name).map_err(|_| invalid("not the name of an adapter"))
}

/// Returns the text of a field of fixed length, up to its first NUL or its end.
fn to_text(field: &[c_char]) -> String {
    let bytes: Vec<u8> = field
        .iter()
        .take_while(|&&c| c != 0)
        .map(|&c| c.to_ne_bytes()[0])
        .collect();
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    #[test]
    fn impossible_names_are_rejected_before_the_call() {
        for name in ["", "../../etc", "a/b", "a\0b", "a_name_of_20_bytes__"] {
            assert_eq!(
                Ca::by_name(name).expect_err(name).kind(),
                ErrorKind::InvalidInput
            );
        }
        let longest = to_c_name("f", "a_name_of_19_bytes_").expect("fits");
        assert_eq!(longest.as_bytes(), b"a_name_of_19_bytes_");
    }

    /// Returns a field of C with this text.
    fn field<const N: usize>(text: &str) -> [c_char; N] {
        let mut field = [0; N];
        for (to, byte) in field.iter_mut().zip(text.bytes()) {
            *to = byte as c_char;
        }
        field
    }

    /// Returns a port with this state, on this kind of link.
    fn port(state: PortState, link_layer: &str) -> umad_port {
        umad_port {
            ca_name: field("ca0"),
            portnum: 2,
            base_lid: 3,
            lmc: 4,
            sm_lid: 5,
            sm_sl: 6,
            state: state.0.into(),
            phys_state: 5,
            rate: 100,
            capmask: 7_u32.to_be(),
            gid_prefix: 8_u64.to_be(),
            port_guid: 9_u64.to_be(),
            link_layer: field(link_layer),
            ..umad_port::default()
        }
    }

    pub(crate) fn port_attr(state: PortState, link_layer: &str) -> PortAttr {
        PortAttr::from_raw(&port(state, link_layer))
    }

    #[test]
    fn attributes_are_converted_from_c() {
        let mut keys = [0x7fff, 0xffff];
        let mut first = port(PortState::ACTIVE, "Ethernet");
        (first.pkeys, first.pkeys_size) = (keys.as_mut_ptr(), 2);
        let mut raw = umad_ca {
            ca_name: field("ca0"),
            node_type: 1,
            fw_ver: field("1.2"),
            ca_type: field("model"),
            hw_ver: field("3"),
            node_guid: 10_u64.to_be(),
            system_guid: 11_u64.to_be(),
            ..umad_ca::default()
        };
        raw.ports[2] = &raw mut first;
        let ca = Ca::from_raw(&raw);
        assert_eq!((&*ca.name, ca.node_type, &*ca.fw_ver), ("ca0", 1, "1.2"));
        assert_eq!((&*ca.hw_ver, &*ca.ca_type), ("3", "model"));
        assert_eq!((ca.node_guid, ca.system_guid), (Guid(10), Guid(11)));
        let [port] = &ca.ports[..] else {
            panic!("one port expected: {ca:?}");
        };
        assert_eq!((&*port.ca_name, port.port_num), ("ca0", 2));
        assert_eq!((port.base_lid, port.lmc), (Lid(3), 4));
        assert_eq!((port.sm_lid, port.sm_sl), (Lid(5), 6));
        assert_eq!(port.state, PortState::ACTIVE);
        assert_eq!(port.phys_state, PhysState::LINK_UP);
        assert_eq!((port.rate, port.cap_mask), (100, 7));
        assert_eq!(port.gid(), Gid::from_parts(8, Guid(9)));
        assert_eq!(port.pkeys, keys);
        assert!(port.link_layer.is_ethernet() && !port.link_layer.is_infiniband());
    }

    #[test]
    fn values_beyond_their_range_are_not_truncated() {
        let mut raw = port(PortState::ACTIVE, "IB");
        (raw.portnum, raw.base_lid, raw.lmc) = (-1, 0x1_0001, 0x101);
        (raw.state, raw.phys_state) = (0x104, 0x105);
        let port = PortAttr::from_raw(&raw);
        assert_eq!((port.port_num, port.base_lid, port.lmc), (0, Lid(0), 0));
        assert_eq!((port.state.0, port.phys_state.0), (u8::MAX, u8::MAX));
        assert!(port.link_layer.is_infiniband() && !port.link_layer.is_ethernet());
        assert_eq!(port.pkeys, [0; 0]);
    }

    #[test]
    fn the_default_port_is_active_and_prefers_infiniband() {
        use PortState as S;
        for (ports, expected) in [
            (&[][..], None),
            (&[(S::DOWN, "Ethernet"), (S::INIT, "InfiniBand")], Some(0)),
            (&[(S::DOWN, "InfiniBand"), (S::ACTIVE, "Ethernet")], Some(1)),
            (&[(S::ACTIVE, "Ethernet"), (S::INIT, "InfiniBand")], Some(0)),
            (
                &[(S::ACTIVE, "Ethernet"), (S::ACTIVE, "InfiniBand")],
                Some(1),
            ),
        ] {
            let mut ca = Ca::from_raw(&umad_ca::default());
            let ports = ports.iter().map(|&(state, link)| port_attr(state, link));
            ca.ports = ports.collect();
            let expected = expected.map(|index: usize| &ca.ports[index]);
            assert_eq!(ca.default_port(), expected);
        }
    }

    #[test]
    fn text_ends_at_nul_or_with_its_field() {
        assert_eq!(to_text(&[b'a' as c_char; 4]), "aaaa");
        assert_eq!(to_text(&[b'a' as c_char, 0, b'b' as c_char]), "a");
    }
}
