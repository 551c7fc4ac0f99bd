//! The RDMA objects that processes and the kernel own, and the counters of ports, from the kernel
//! over netlink.
//!
//! Any user may query the objects. The kernel omits those of processes outside of the PID
//! namespace of the caller.

mod counters;
mod netlink;

use std::collections::{BTreeMap, HashMap};
use std::{fmt, fs, io};

use base::error::{Error, Result};
use base::peer_text::printable;
use rustix::io::Errno;
use serde::{Deserialize, Serialize};

pub(crate) use counters::port_counters;
pub use counters::{PortCounter, counters};
use netlink::{Attributes, Netlink, u32_attribute};

/// `RDMA_NLDEV_CMD_GET`: lists the devices.
const DEVICES: u16 = 1;
const DEV_INDEX: u16 = 1;
const DEV_NAME: u16 = 2;
const PORT_INDEX: u16 = 3;
const LQPN: u16 = 21;
const RQPN: u16 = 22;
const TYPE: u16 = 26;
const STATE: u16 = 27;
const PID: u16 = 28;
const KERN_NAME: u16 = 29;
const CQE: u16 = 37;
const MRLEN: u16 = 45;

/// The kind of an RDMA object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// A queue pair.
    Qp,
    /// An identifier of the connection manager.
    CmId,
    /// A completion queue.
    Cq,
    /// A memory region.
    Mr,
    /// A protection domain.
    Pd,
    /// A shared receive queue.
    Srq,
    /// A device that a process has opened.
    Ctx,
}

impl Kind {
    /// All kinds.
    pub(crate) const ALL: [Self; 7] = [
        Self::Qp,
        Self::CmId,
        Self::Cq,
        Self::Mr,
        Self::Pd,
        Self::Srq,
        Self::Ctx,
    ];

    /// Returns the name that `rdma resource` uses.
    pub fn name(self) -> &'static str {
        match self {
            Self::Qp => "qp",
            Self::CmId => "cm_id",
            Self::Cq => "cq",
            Self::Mr => "mr",
            Self::Pd => "pd",
            Self::Srq => "srq",
            Self::Ctx => "ctx",
        }
    }

    /// Returns the command that lists objects of this kind, the attribute of one object, and that
    /// of its number.
    const fn codes(self) -> (u16, u16, u16) {
        match self {
            Self::Qp => (10, 20, LQPN),
            Self::CmId => (11, 31, 63),
            Self::Cq => (12, 36, 61),
            Self::Mr => (13, 41, 62),
            Self::Pd => (14, 47, 60),
            Self::Ctx => (22, 87, 64),
            Self::Srq => (23, 89, 90),
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The owner of an RDMA object.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Owner {
    /// A process.
    Process {
        /// The ID of the process.
        pid: u32,
        /// The name of its program; empty if the process has ended since.
        name: String,
    },
    /// A module of the kernel.
    Kernel(String),
    /// A process that has ended, whose objects are not yet destroyed.
    Ended,
}

/// An RDMA object.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Resource {
    /// The name of the device.
    pub device: String,
    /// The owner.
    pub owner: Owner,
    /// The kind.
    pub kind: Kind,
    /// The number of the object; for a queue pair, its queue pair number.
    pub id: Option<u32>,
    /// The port number.
    pub port: Option<u32>,
    /// The code of the transport service of a queue pair (`enum ib_qp_type`: 2 RC, 3 UC, 4 UD).
    pub service: Option<u8>,
    /// The code of the state of a queue pair (`enum ib_qp_state`: 0 RESET, 3 RTS, 6 ERR) or of an
    /// identifier.
    pub state: Option<u8>,
    /// The queue pair number of the peer of a connected queue pair.
    pub remote_qpn: Option<u32>,
    /// The length of a memory region in bytes.
    pub bytes: Option<u64>,
    /// The number of entries of a completion queue.
    pub entries: Option<u32>,
}

/// The number of objects of one owner on one device.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Usage {
    /// The name of the device.
    pub device: String,
    /// The owner.
    pub owner: Owner,
    /// The number of objects of each kind. Kinds without objects are omitted.
    pub counts: BTreeMap<Kind, u64>,
    /// The sum of the lengths of the memory regions, in bytes.
    pub registered_bytes: u64,
}

/// The RDMA objects of a host.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Resources {
    /// The objects, sorted by device and owner.
    pub objects: Vec<Resource>,
}

/// The code of the service type of queue pair 1 (`IB_QPT_GSI`).
const GSI: u8 = 1;

/// The queue pair for general services (GSI, queue pair 1) of a port. It carries the messages of
/// the connection manager.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GsiQp {
    /// The name of the device.
    pub device: String,
    /// The port number.
    pub port: u32,
    /// The code of the state (`enum ib_qp_state`: 3 RTS, 6 ERR).
    pub state: u8,
}

impl GsiQp {
    /// Returns `true` if the queue pair is in the state ERR, which it does not leave by itself.
    pub(crate) fn has_failed(&self) -> bool {
        self.state == 6
    }
}

/// Queries the queue pairs for general services of this host. iWARP devices have none.
pub(crate) fn gsi_qps() -> Result<Vec<GsiQp>> {
    let objects = query_kinds(&[Kind::Qp])?.objects.into_iter();
    let gsi_qp = |qp: Resource| {
        (qp.service == Some(GSI)).then_some(GsiQp {
            device: qp.device,
            port: qp.port?,
            state: qp.state?,
        })
    };
    Ok(objects.filter_map(gsi_qp).collect())
}

/// Queries the RDMA objects of this host. A host without RDMA has none.
pub fn query() -> Result<Resources> {
    query_kinds(&Kind::ALL)
}

fn query_kinds(kinds: &[Kind]) -> Result<Resources> {
    let mut processes = Processes::default();
    let mut resources = Resources::default();
    let failed = |error: io::Error| Error::system("query the RDMA objects of the kernel", &error);
    let Some((mut netlink, devices)) = open().map_err(failed)? else {
        return Ok(resources);
    };
    for device in devices {
        for &kind in kinds {
            let reply =
                match netlink.dump(kind.codes().0, &[u32_attribute(DEV_INDEX, device.index)]) {
                    Ok(reply) => reply,
                    // Kernels before 5.14 list no shared receive queues and no contexts.
                    Err(error) if is_absent(&error) => continue,
                    Err(error) => return Err(failed(error)),
                };
            for message in reply.messages() {
                let found = objects(message, kind, |id| processes.get(id));
                resources.objects.extend(found.map(|found| Resource {
                    device: device.name.clone(),
                    ..found
                }));
            }
        }
    }
    resources.objects.sort();
    Ok(resources)
}

/// Counts the objects of each owner on each device.
pub fn usage(resources: &[Resource]) -> Vec<Usage> {
    let mut owners: BTreeMap<(&str, &Owner), Usage> = BTreeMap::new();
    for resource in resources {
        let usage = owners
            .entry((&resource.device, &resource.owner))
            .or_insert_with(|| Usage {
                device: resource.device.clone(),
                owner: resource.owner.clone(),
                counts: BTreeMap::new(),
                registered_bytes: 0,
            });
        *usage.counts.entry(resource.kind).or_default() += 1;
        let bytes = resource.bytes.unwrap_or_default();
        usage.registered_bytes = usage.registered_bytes.saturating_add(bytes);
    }
    owners.into_values().collect()
}

/// Returns the objects of a kind in a message, without the name of the device.
fn objects(
    message: Attributes<'_>,
    kind: Kind,
    mut process: impl FnMut(u32) -> Owner,
) -> impl Iterator<Item = Resource> {
    let (_, entry, id) = kind.codes();
    // Each object is inside of the table of its kind, whose attribute precedes that of the object.
    let entries = message.nested(entry - 1);
    let entries = entries.flat_map(move |table| table.nested(entry));
    entries.map(move |entry| {
        let owner = match (entry.text(KERN_NAME), entry.u32(PID)) {
            (Some(module), _) => Owner::Kernel(printable(&module)),
            (None, Some(id)) => process(id),
            (None, None) => Owner::Ended,
        };
        Resource {
            device: String::new(),
            owner,
            kind,
            id: entry.u32(id),
            port: entry.u32(PORT_INDEX),
            service: entry.u8(TYPE).filter(|_| kind == Kind::Qp),
            state: entry.u8(STATE),
            remote_qpn: entry.u32(RQPN),
            bytes: entry.u64(MRLEN),
            entries: entry.u32(CQE),
        }
    })
}

/// A device.
struct Device {
    index: u32,
    name: String,
    /// The number of ports, from 1.
    ports: u32,
}

/// Connects to the kernel and lists the devices. Returns `None` if the kernel has no RDMA.
fn open() -> io::Result<Option<(Netlink, Vec<Device>)>> {
    let mut netlink = match Netlink::open() {
        Err(error) if is_errno(&error, &[Errno::PROTONOSUPPORT, Errno::AFNOSUPPORT]) => {
            return Ok(None);
        }
        netlink => netlink?,
    };
    let devices = netlink.dump(DEVICES, &[])?;
    let devices = devices.messages().filter_map(device).collect();
    Ok(Some((netlink, devices)))
}

fn device(message: Attributes<'_>) -> Option<Device> {
    Some(Device {
        index: message.u32(DEV_INDEX)?,
        name: message.text(DEV_NAME).map(|name| printable(&name))?,
        ports: message.u32(PORT_INDEX).unwrap_or_default(),
    })
}

/// Returns `true` if the kernel or the driver does not have what was requested, or the device was
/// removed in the meantime.
fn is_absent(error: &io::Error) -> bool {
    is_errno(error, &[Errno::INVAL, Errno::OPNOTSUPP, Errno::NODEV])
}

fn is_errno(error: &io::Error, numbers: &[Errno]) -> bool {
    Errno::from_io_error(error).is_some_and(|errno| numbers.contains(&errno))
}

/// The processes of the threads that created objects, each read once.
#[derive(Default)]
struct Processes(HashMap<u32, Owner>);

impl Processes {
    /// Returns the process of a thread. The kernel reports the thread that created an object, which
    /// is often not the main thread.
    fn get(&mut self, thread: u32) -> Owner {
        let read = |pid: u32, file: &str| fs::read(format!("/proc/{pid}/{file}")).ok();
        let find = || {
            let status = read(thread, "status").unwrap_or_default();
            let pid = process_of(&String::from_utf8_lossy(&status)).unwrap_or(thread);
            let name = read(pid, "comm").unwrap_or_default();
            Owner::Process {
                pid,
                // A process chooses its own name.
                name: printable(String::from_utf8_lossy(&name).trim_end_matches('\n')),
            }
        };
        self.0.entry(thread).or_insert_with(find).clone()
    }
}

/// Returns the ID of the process in `/proc/ID/status` of one of its threads.
fn process_of(status: &str) -> Option<u32> {
    let id = status.lines().find_map(|line| line.strip_prefix("Tgid:"))?;
    id.trim().parse().ok()
}

/// Decodes a reply as each kind of object and as counters. Returns all texts in it.
#[doc(hidden)]
#[cfg(any(test, feature = "testing"))]
pub fn texts(bytes: &[u8]) -> Vec<String> {
    let mut reply = netlink::Reply::default();
    let _ = reply.add(bytes, 1);
    let mut texts = Vec::new();
    for message in reply.messages() {
        texts.extend(device(message).map(|device| device.name));
        texts.extend(counters::values(message).map(|(name, _)| name));
        for kind in Kind::ALL {
            let found: Vec<Resource> =
                objects(message, kind, |id| Owner::Kernel(id.to_string())).collect();
            assert_eq!(
                usage(&found)
                    .iter()
                    .flat_map(|usage| usage.counts.values())
                    .sum::<u64>(),
                found.len() as u64
            );
            texts.extend(found.into_iter().filter_map(|found| match found.owner {
                Owner::Process { name, .. } | Owner::Kernel(name) => Some(name),
                Owner::Ended => None,
            }));
        }
    }
    texts
}

#[cfg(test)]
mod tests;
