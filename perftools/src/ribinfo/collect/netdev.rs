//! Network interfaces, from `/sys/class/net`.

use serde::Serialize;

use super::hwaddr::HwAddr;
use super::root::{Root, unsigned};

/// `ARPHRD_INFINIBAND`.
pub const TYPE_INFINIBAND: u32 = 32;
const IFF_UP: u64 = 1;

/// A network interface.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Netdev {
    /// Its name.
    pub name: String,
    /// The hardware type: 1 Ethernet, 32 InfiniBand.
    pub kind: u32,
    /// In bytes.
    pub mtu: Option<u32>,
    /// `ip link set … up` was said.
    pub up: bool,
    /// There is somebody at the other end; none while it is not up.
    pub carrier: Option<bool>,
    /// `up`, `down`, `dormant`, `unknown` …
    pub operstate: String,
    /// In Mbit/s, where the driver says it.
    pub speed: Option<u32>,
    /// The hardware address.
    pub address: String,
    /// The port of the device, from 0.
    pub dev_port: u32,
    /// What IPoIB adds.
    pub ipoib: Option<Ipoib>,
}

/// What an IPoIB interface has beyond the others.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Ipoib {
    /// `datagram` or `connected`.
    pub mode: String,
    /// The partition.
    pub pkey: Option<u16>,
    /// The interface it is a child of.
    pub parent: Option<String>,
    /// The hardware address taken apart.
    pub hwaddr: Option<HwAddr>,
}

/// The network interfaces, in the order of their names.
pub fn all(root: &Root) -> Vec<Netdev> {
    // bonding_masters and eth_ipoib_interfaces are files among them.
    root.list("/sys/class/net")
        .into_iter()
        .filter_map(|name| read(root, &name))
        .collect()
}

fn read(root: &Root, name: &str) -> Option<Netdev> {
    let file = |file: &str| format!("/sys/class/net/{name}/{file}");
    let kind = root.number(&file("type"))?;
    let address = root.value(&file("address")).unwrap_or_default();
    let ipoib = (kind == TYPE_INFINIBAND).then(|| Ipoib {
        mode: root.value(&file("mode")).unwrap_or_default(),
        pkey: root.number(&file("pkey")),
        parent: root.value(&file("parent")),
        hwaddr: address.parse().ok(),
    });
    Some(Netdev {
        name: name.to_owned(),
        kind,
        mtu: root.number(&file("mtu")),
        up: root
            .value(&file("flags"))
            .and_then(|f| unsigned(&f))
            .is_some_and(|flags| flags & IFF_UP != 0),
        carrier: root
            .number::<u8>(&file("carrier"))
            .map(|carrier| carrier == 1),
        operstate: root.value(&file("operstate")).unwrap_or_default(),
        // -1 where nobody knows.
        speed: root.number(&file("speed")).filter(|speed| *speed > 0),
        address,
        dev_port: root.number(&file("dev_port")).unwrap_or(0),
        ipoib,
    })
}
