//! Capsules, data structures and private data as bytes. All integers are little-endian.

use std::fmt;
use std::time::Duration;

use ibverbs::{AccessFlags, RemoteMemory};

/// Length of a command capsule without data in bytes.
pub const COMMAND_LEN: usize = 64;
/// Length of a response capsule in bytes.
pub const RESPONSE_LEN: usize = 16;
/// Length of the data structures of Identify in bytes.
pub const IDENTIFY_LEN: usize = 4096;
/// Length of the data of Connect in bytes.
pub const CONNECT_DATA_LEN: usize = 1024;
/// The controller identifier with which a host requests a new controller (dynamic model).
pub const CONTROLLER_DYNAMIC: u16 = 0xffff;
/// Maximum length of an NVMe qualified name in bytes.
const NQN_MAX_LEN: usize = 223;

/// Opcode of the Fabrics commands, which have a type (FCTYPE) at the offset of NSID.
const FABRICS: u8 = 0x7f;
/// PSDT: the data pointer is an SGL, as Fabrics requires.
const PSDT_SGL: u8 = 0b01 << 6;
/// Keyed SGL Data Block descriptors: with an address, and with an address whose key the controller
/// invalidates with its response.
const SGL_KEYED_ADDRESS: u8 = 0x40;
const SGL_KEYED_INVALIDATE: u8 = 0x4f;
/// SGL Data Block descriptor with an offset: the data follows the command in its capsule.
const SGL_OFFSET: u8 = 0x01;
/// Feature identifier Number of Queues.
const FEATURE_NUMBER_OF_QUEUES: u32 = 0x07;
/// Offsets of a command's fields: command identifier, namespace identifier, SGL and dwords.
const CID: usize = 2;
const NSID: usize = 4;
const SGL: usize = 24;
const CDW10: usize = 40;
const CDW11: usize = 44;
const CDW12: usize = 48;

/// A property of a controller, with its offset.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Property {
    /// Controller Capabilities.
    Cap = 0x00,
    /// Controller Configuration.
    Cc = 0x14,
    /// Controller Status.
    Csts = 0x1c,
}

/// Values of [`Property::Cc`].
pub mod cc {
    /// Enabled, with the NVM command set, 64-byte submission queue entries (IOSQES) and 16-byte
    /// completion queue entries (IOCQES).
    pub const ENABLED: u32 = 1 | 6 << 16 | 4 << 20;
    /// Normal shutdown (SHN).
    pub const SHUTDOWN: u32 = 0b01 << 14;
}

/// Values of [`Property::Csts`].
pub mod csts {
    /// Ready (RDY).
    pub const READY: u64 = 1;
    /// Controller Fatal Status (CFS).
    pub const FATAL: u64 = 1 << 1;
    /// Shutdown Status (SHST).
    pub const SHUTDOWN_MASK: u64 = 0b11 << 2;
    /// The value of [`SHUTDOWN_MASK`] after a shutdown.
    pub const SHUTDOWN_COMPLETE: u64 = 0b10 << 2;
}

/// Data structures of Identify (CNS).
pub mod cns {
    /// A namespace.
    pub const NAMESPACE: u32 = 0;
    /// The controller.
    pub const CONTROLLER: u32 = 1;
    /// The identifiers of the active namespaces above one.
    pub const ACTIVE_NAMESPACES: u32 = 2;
}

/// A submission queue entry, and the length of its data in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Command {
    bytes: [u8; COMMAND_LEN],
    data_len: usize,
}

impl Command {
    /// Creates a command whose SGL describes no data.
    fn new(opcode: u8, data_len: usize) -> Self {
        let bytes = [0; COMMAND_LEN];
        Self { bytes, data_len }
            .with(0, [opcode, PSDT_SGL])
            .with(SGL + 15, [SGL_KEYED_ADDRESS])
    }

    fn with<const N: usize>(mut self, offset: usize, value: [u8; N]) -> Self {
        self.bytes[offset..][..N].copy_from_slice(&value);
        self
    }

    fn with_u32(self, offset: usize, value: u32) -> Self {
        self.with(offset, value.to_le_bytes())
    }

    /// Connect: creates the queue `qid` with a number of entries. The data is a [`connect_data`].
    /// The keep-alive timeout is zero except on the admin queue.
    pub fn connect(qid: u16, entries: u16, keep_alive: Duration) -> Self {
        Self::new(FABRICS, CONNECT_DATA_LEN)
            .with(NSID, [0x01])
            .with(42, qid.to_le_bytes())
            .with(44, (entries - 1).to_le_bytes())
            .with_u32(
                48,
                u32::try_from(keep_alive.as_millis()).unwrap_or(u32::MAX),
            )
    }

    /// Property Get.
    pub fn property_get(property: Property) -> Self {
        Self::new(FABRICS, 0)
            .with(NSID, [0x04])
            .with(40, [u8::from(property == Property::Cap)]) // ATTRIB: 8 or 4 bytes
            .with_u32(44, property as u32)
    }

    /// Property Set, of a property of 4 bytes.
    pub fn property_set(property: Property, value: u32) -> Self {
        let command = Self::new(FABRICS, 0).with(NSID, [0x00]);
        command.with_u32(44, property as u32).with_u32(48, value)
    }

    /// Identify.
    pub fn identify(cns: u32, nsid: u32) -> Self {
        let command = Self::new(0x06, IDENTIFY_LEN).with_u32(NSID, nsid);
        command.with_u32(CDW10, cns)
    }

    /// Set Features, Number of Queues. The result is read with [`granted_queues`].
    pub fn set_number_of_queues(count: u16) -> Self {
        let zeroes_based = u32::from(count - 1);
        Self::new(0x09, 0)
            .with_u32(CDW10, FEATURE_NUMBER_OF_QUEUES)
            .with_u32(CDW11, zeroes_based << 16 | zeroes_based)
    }

    /// Keep Alive.
    pub fn keep_alive() -> Self {
        Self::new(0x18, 0)
    }

    /// Flush.
    pub fn flush(nsid: u32) -> Self {
        Self::new(0x00, 0).with_u32(NSID, nsid)
    }

    /// Write of logical blocks, which have `data_len` bytes.
    pub fn write(nsid: u32, lba: u64, blocks: u16, data_len: usize) -> Self {
        Self::new(0x01, data_len).with_blocks(nsid, lba, blocks)
    }

    /// Read of logical blocks, which have `data_len` bytes.
    pub fn read(nsid: u32, lba: u64, blocks: u16, data_len: usize) -> Self {
        Self::new(0x02, data_len).with_blocks(nsid, lba, blocks)
    }

    fn with_blocks(self, nsid: u32, lba: u64, blocks: u16) -> Self {
        let command = self.with_u32(NSID, nsid).with(CDW10, lba.to_le_bytes());
        command.with(CDW12, (blocks - 1).to_le_bytes())
    }

    /// Returns the right that the controller needs on the data. The two lowest bits of an opcode or
    /// FCTYPE are the direction: 01 to the controller, 10 from the controller.
    pub fn data_access(&self) -> AccessFlags {
        let is_fabrics = self.bytes[0] == FABRICS;
        match self.bytes[if is_fabrics { NSID } else { 0 }] & 0b11 {
            0b01 => AccessFlags::REMOTE_READ,
            _ => AccessFlags::REMOTE_WRITE,
        }
    }

    /// Returns the length of the data in bytes.
    pub fn data_len(&self) -> usize {
        self.data_len
    }

    /// Sets the command identifier.
    #[must_use]
    pub fn with_id(self, command_id: u16) -> Self {
        self.with(CID, command_id.to_le_bytes())
    }

    /// Sets the data pointer: a Keyed SGL Data Block. With `invalidate`, the controller invalidates
    /// the key with its response (SEND with invalidate).
    #[must_use]
    pub fn with_data(self, memory: RemoteMemory, invalidate: bool) -> Self {
        let kind = if invalidate {
            SGL_KEYED_INVALIDATE
        } else {
            SGL_KEYED_ADDRESS
        };
        // The length has 24 bits, and the key and the type follow it.
        self.with(SGL, memory.addr.to_le_bytes())
            .with(SGL + 8, memory.len.to_le_bytes())
            .with(SGL + 11, memory.rkey.to_le_bytes())
            .with(SGL + 15, [kind])
    }

    /// Sets the data pointer: a Data Block in the capsule. The data follows the command.
    #[must_use]
    pub fn with_data_in_capsule(self) -> Self {
        let [a, b, c, d, ..] = (self.data_len as u64).to_le_bytes();
        self.with(SGL + 8, [a, b, c, d])
            .with(SGL + 15, [SGL_OFFSET])
    }

    /// Returns the capsule without its data.
    pub fn as_bytes(&self) -> &[u8; COMMAND_LEN] {
        &self.bytes
    }
}

/// Returns the data of Connect. `host_id` is a UUID, and part of the host's qualified name.
///
/// # Errors
/// Returns a description if `host_id` is no UUID, or if a name is longer than 223 bytes.
pub fn connect_data(
    host_id: &str,
    controller: u16,
    subsystem_nqn: &str,
) -> Result<[u8; CONNECT_DATA_LEN], String> {
    let id = u128::from_str_radix(&host_id.replace('-', ""), 16);
    let id = id.map_err(|_| format!("{host_id:?}: expected a UUID"))?;
    let host_nqn = format!("nqn.2014-08.org.nvmexpress:uuid:{host_id}");
    if subsystem_nqn.len().max(host_nqn.len()) > NQN_MAX_LEN {
        let what = format!("{subsystem_nqn}: expected at most {NQN_MAX_LEN} bytes");
        return Err(what);
    }
    let mut data = [0; CONNECT_DATA_LEN];
    data[..16].copy_from_slice(&id.to_be_bytes());
    data[16..18].copy_from_slice(&controller.to_le_bytes());
    for (offset, name) in [(256, subsystem_nqn), (512, &host_nqn)] {
        data[offset..][..name.len()].copy_from_slice(name.as_bytes());
    }
    Ok(data)
}

/// Returns the number of I/O queues that the controller granted, from the result of
/// [`Command::set_number_of_queues`]: the smaller of its submission and completion queues.
pub fn granted_queues(result: u64) -> u16 {
    let bytes = result.to_le_bytes();
    u16_at(&bytes, 0).min(u16_at(&bytes, 2)).saturating_add(1)
}

/// Returns the maximum number of commands in a queue, from [`Property::Cap`]. MQES is one less than
/// the entries, and one entry is always free.
///
/// # Errors
/// Returns a message if the controller has no queue with two entries, as NVMe requires.
pub fn max_commands(cap: u64) -> Result<u16, String> {
    let commands = u16_at(&cap.to_le_bytes(), 0);
    let has_room = (commands > 0).then_some(commands);
    has_room.ok_or_else(|| "the queues of the controller have no room for a command".into())
}

/// Returns the identifier of the controller, from the result of [`Command::connect`].
pub fn controller_id(result: u64) -> u16 {
    u16_at(&result.to_le_bytes(), 0)
}

/// The status of a command: its code type (SCT, bits 10:8), its code (SC, bits 7:0) and flags.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Status(pub u16);

impl Status {
    /// Returns `true` if the command succeeded.
    pub fn is_success(self) -> bool {
        self.code() == 0
    }

    /// Returns the code type and the code.
    fn code(self) -> u16 {
        self.0 & 0x7ff
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let code = self.code();
        let name = match code {
            0x000 => "Successful Completion",
            0x002 => "Invalid Field in Command",
            0x004 => "Data Transfer Error",
            0x006 => "Internal Error",
            0x00b => "Invalid Namespace or Format",
            0x080 => "LBA Out of Range",
            0x182 => "Connect Invalid Parameters",
            0x184 => "Connect Invalid Host",
            _ => "an error",
        };
        write!(f, "{name} (status {code:#05x})")
    }
}

/// A completion queue entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Completion {
    /// The result of the command (DW0 and DW1).
    pub result: u64,
    /// Identifier of the command.
    pub command_id: u16,
    /// Status of the command.
    pub status: Status,
}

impl Completion {
    /// Reads a response capsule. Its phase tag has no meaning in Fabrics.
    pub fn parse(bytes: &[u8; RESPONSE_LEN]) -> Self {
        Self {
            result: u64_at(bytes, 0),
            command_id: u16_at(bytes, 12),
            status: Status(u16_at(bytes, 14) >> 1),
        }
    }
}

/// The part of the Identify Controller data structure that a host needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ControllerData {
    /// Model (MN), firmware revision (FR) and serial number (SN).
    pub name: String,
    /// Maximum length of the data of a command in bytes (MDTS).
    pub max_transfer: usize,
    /// Maximum length of the data that follows a command in its capsule on an I/O queue, in bytes
    /// (IOCCSZ less the command). 0 if the controller does not accept offsets (SGLS bit 20), or if
    /// the data has another offset than 64 (ICDOFF).
    pub max_capsule_data: usize,
}

impl ControllerData {
    /// Reads the data structure.
    ///
    /// # Errors
    /// Returns a description if the controller has no keyed SGLs (SGLS bit 2).
    pub fn parse(data: &[u8]) -> Result<Self, String> {
        let sgls = u32::from_le_bytes(array(data, 536));
        if sgls & 1 << 2 == 0 {
            return Err("the controller has no keyed SGLs".into());
        }
        let [serial, model, firmware] = [4..24, 24..64, 64..72].map(|range| {
            let text = String::from_utf8_lossy(&data[range]);
            text.trim_matches([' ', '\0']).to_owned()
        });
        let pages = match data[77] {
            0 => usize::MAX,
            exponent => 1_usize.checked_shl(exponent.into()).unwrap_or(usize::MAX),
        };
        let capsule = u32::from_le_bytes(array(data, 1792)); // in units of 16 bytes
        let capsule = usize::try_from(capsule).map_or(usize::MAX, |units| units.saturating_mul(16));
        let has_offsets = sgls & 1 << 20 != 0 && u16_at(data, 1800) == 0;
        Ok(Self {
            name: format!("{model} (firmware {firmware}, serial {serial})"),
            max_transfer: pages.saturating_mul(4096), // at least (CAP.MPSMIN)
            max_capsule_data: if has_offsets {
                capsule.saturating_sub(COMMAND_LEN)
            } else {
                0
            },
        })
    }
}

/// Returns the number of logical blocks (NSZE) and their length in bytes, from the Identify
/// Namespace data structure.
///
/// # Errors
/// Returns a description if the blocks have metadata or an invalid length.
pub fn namespace_size(data: &[u8]) -> Result<(u64, u64), String> {
    // FLBAS selects one of the formats LBAF0 to LBAF15.
    let format = 128 + 4 * usize::from(data[26] & 0xf);
    match (u16_at(data, format), data[format + 2]) {
        (0, exponent @ 9..=16) => Ok((u64_at(data, 0), 1 << exponent)),
        format => Err(format!(
            "the namespace has an unsupported format: {format:?}"
        )),
    }
}

/// Returns the lowest identifier in a list of active namespaces.
pub fn first_namespace(list: &[u8]) -> Option<u32> {
    Some(u32::from_le_bytes(array(list, 0))).filter(|&nsid| nsid != 0)
}

/// Returns the private data of the connect request for the queue `qid`. The host's send queue size
/// (HSQSIZE) is 0's based, its receive queue size (HRQSIZE) is not.
pub fn connect_request(qid: u16, entries: u16) -> [u8; 32] {
    let mut data = [0; 32];
    data[2..4].copy_from_slice(&qid.to_le_bytes());
    data[4..6].copy_from_slice(&entries.to_le_bytes());
    data[6..8].copy_from_slice(&(entries - 1).to_le_bytes());
    data
}

/// Returns the size of the controller's receive queue (CRQSIZE), from the private data of its
/// acceptance. Returns `None` for another format (RECFMT).
pub fn receive_queue_size(data: &[u8]) -> Option<u16> {
    (data.len() >= 4 && u16_at(data, 0) == 0).then(|| u16_at(data, 2))
}

/// Returns the reason of a rejection (STS), from its private data.
pub fn reject_reason(data: &[u8]) -> Option<&'static str> {
    Some(match receive_queue_size(data)? {
        1 => "invalid length of the private data",
        2 => "invalid RECFMT",
        3 => "invalid queue ID",
        4 => "invalid HSQSIZE",
        5 => "invalid HRQSIZE",
        6 => "no RDMA resources",
        7 => "invalid IRD",
        8 => "invalid ORD",
        _ => return None,
    })
}

fn u16_at(bytes: &[u8], offset: usize) -> u16 {
    u16::from_le_bytes(array(bytes, offset))
}

fn u64_at(bytes: &[u8], offset: usize) -> u64 {
    u64::from_le_bytes(array(bytes, offset))
}

fn array<const N: usize>(bytes: &[u8], offset: usize) -> [u8; N] {
    let field = bytes[offset..].first_chunk();
    *field.expect("within the structure")
}
