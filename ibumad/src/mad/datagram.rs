//! The datagram and its common header (IBA 13.4.2).

use std::fmt;

use super::bits::{get, put};
use super::status::MadStatus;
use crate::newtype::c_value;

/// The length of a datagram in bytes.
pub const MAD_LEN: usize = 256;

/// The length of the header that all have.
pub const MAD_HEADER_LEN: usize = 24;

/// A management datagram: 256 bytes that begin with the common header. What the rest means depends
/// on the class: see [`Smp`](super::Smp), [`SaMad`](super::SaMad) and
/// [`VendorMad`](super::VendorMad).
///
/// # Example
/// ```
/// use ibumad::mad::{AttrId, Mad, Method, MgmtClass};
/// let mad = Mad::new(MgmtClass::PERF, 1, Method::GET, AttrId::CLASS_PORT_INFO);
/// assert_eq!(mad.method(), Method::GET);
/// assert_eq!(Mad::from_bytes(mad.as_bytes()), Some(mad));
/// ```
///
/// # References
/// InfiniBand Architecture Specification, volume 1, section 13.4.
#[derive(Clone, PartialEq, Eq)]
pub struct Mad([u8; MAD_LEN]);

c_value! {
    /// What a datagram is about.
    pub struct MgmtClass(u8) {
        /// Subnet management, routed by LID.
        SUBN_LID = 0x01 => "SubnMgt (LID routed)",
        /// Subnet management, routed hop by hop.
        SUBN_DIRECTED = 0x81 => "SubnMgt (directed route)",
        /// Subnet administration.
        SUBN_ADM = 0x03 => "SubnAdm",
        /// Performance counters.
        PERF = 0x04 => "Perf",
        /// Baseboard management.
        BM = 0x05 => "BM",
        /// Device management.
        DEV_MGT = 0x06 => "DevMgt",
        /// Connection management.
        COM_MGT = 0x07 => "ComMgt",
        /// `ibping`: a vendor class with the OpenIB OUI.
        OPENIB_PING = 0x32 => "OpenIB ping",
    }
}

impl MgmtClass {
    /// Whether its datagrams carry an OUI: the vendors' second range.
    pub const fn has_oui(self) -> bool {
        matches!(self.0, 0x30..=0x4f)
    }
}

c_value! {
    /// What a datagram asks for or answers.
    pub struct Method(u8) {
        /// Read an attribute.
        GET = 0x01 => "Get",
        /// Write an attribute.
        SET = 0x02 => "Set",
        /// The answer to both.
        GET_RESP = 0x81 => "GetResp",
        /// A datagram that is not answered.
        SEND = 0x03 => "Send",
        /// Something happened.
        TRAP = 0x05 => "Trap",
        /// A trap passed on.
        REPORT = 0x06 => "Report",
        /// The answer to that.
        REPORT_RESP = 0x86 => "ReportResp",
        /// The trap was heard.
        TRAP_REPRESS = 0x07 => "TrapRepress",
        /// Read a table (subnet administration).
        GET_TABLE = 0x12 => "GetTable",
        /// The answer to that.
        GET_TABLE_RESP = 0x92 => "GetTableResp",
    }
}

impl Method {
    /// Whether it answers something.
    pub const fn is_response(self) -> bool {
        self.0 & 0x80 != 0
    }

    /// The method that answers it.
    #[must_use]
    pub const fn response(self) -> Self {
        Self(self.0 | 0x80)
    }
}

c_value! {
    /// The attribute that a datagram carries. Classes share the numbers below 16 only.
    pub struct AttrId(u16) {
        /// What a class can do.
        CLASS_PORT_INFO = 0x0001 => "ClassPortInfo",
        /// A node's name.
        NODE_DESCRIPTION = 0x0010 => "NodeDescription",
        /// What a node is.
        NODE_INFO = 0x0011 => "NodeInfo",
        /// A port's state and properties.
        PORT_INFO = 0x0015 => "PortInfo",
        /// A subnet manager's state.
        SM_INFO = 0x0020 => "SMInfo",
        /// A path between two ports (subnet administration).
        PATH_RECORD = 0x0035 => "PathRecord",
    }
}

impl Mad {
    /// A datagram with this header and zeros.
    pub fn new(class: MgmtClass, class_version: u8, method: Method, attr: AttrId) -> Self {
        let mut mad = Self([0; MAD_LEN]);
        mad.0[..4].copy_from_slice(&[1, class.0, class_version, method.0]);
        mad.put(128, 16, attr.0.into());
        mad
    }

    /// The datagram that these bytes begin with; `None` when they are too few.
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        bytes.first_chunk().map(|bytes| Self(*bytes))
    }

    /// Its bytes, as on the wire.
    pub fn as_bytes(&self) -> &[u8; MAD_LEN] {
        &self.0
    }

    /// Its bytes, as on the wire.
    pub fn as_bytes_mut(&mut self) -> &mut [u8; MAD_LEN] {
        &mut self.0
    }

    /// Version of the header: 1.
    pub fn base_version(&self) -> u8 {
        self.0[0]
    }

    /// What it is about.
    pub fn class(&self) -> MgmtClass {
        MgmtClass(self.0[1])
    }

    /// Version of the class.
    pub fn class_version(&self) -> u8 {
        self.0[2]
    }

    /// What it asks for or answers.
    pub fn method(&self) -> Method {
        Method(self.0[3])
    }

    /// How it went, in an answer. The top bit of a directed-route datagram is its direction and not
    /// shown here.
    pub fn status(&self) -> MadStatus {
        let status = self.bits(32, 16);
        MadStatus(if self.class() == MgmtClass::SUBN_DIRECTED {
            status & 0x7fff
        } else {
            status
        })
    }

    /// Which request and answer belong together. The kernel puts the agent's number into the upper
    /// half of a request's.
    pub fn transaction_id(&self) -> u64 {
        u64::try_from(get(&self.0, 64, 64)).unwrap_or(0)
    }

    /// The half of it that belongs to the program.
    pub fn low_transaction_id(&self) -> u32 {
        u32::try_from(get(&self.0, 96, 32)).unwrap_or(0)
    }

    /// Sets the half of the transaction identifier that belongs to the program.
    pub fn set_low_transaction_id(&mut self, id: u32) {
        self.put(96, 32, id.into());
    }

    /// What it carries.
    pub fn attr(&self) -> AttrId {
        AttrId(self.bits(128, 16))
    }

    /// Which of several, for example a port's number.
    pub fn attr_modifier(&self) -> u32 {
        u32::try_from(get(&self.0, 160, 32)).unwrap_or(0)
    }

    /// Sets which of several.
    pub fn set_attr_modifier(&mut self, modifier: u32) {
        self.put(160, 32, modifier.into());
    }

    /// The answer to this request: the same datagram with the method that answers it and the status
    /// 0.
    #[must_use]
    pub fn answer(&self) -> Self {
        let mut answer = self.clone();
        answer.0[3] = self.method().response().0;
        answer.put(32, 16, 0);
        answer
    }

    pub(super) fn put(&mut self, offset: usize, width: usize, value: u128) {
        put(&mut self.0, offset, width, value);
    }

    pub(super) fn bits(&self, offset: usize, width: usize) -> u16 {
        u16::try_from(get(&self.0, offset, width)).unwrap_or(u16::MAX)
    }
}

impl From<[u8; MAD_LEN]> for Mad {
    fn from(bytes: [u8; MAD_LEN]) -> Self {
        Self(bytes)
    }
}

impl fmt::Debug for Mad {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Mad")
            .field("class", &self.class())
            .field("class_version", &self.class_version())
            .field("method", &self.method())
            .field("status", &self.status())
            .field(
                "transaction_id",
                &format_args!("{:#x}", self.transaction_id()),
            )
            .field("attr", &self.attr())
            .field("attr_modifier", &self.attr_modifier())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_header_lies_where_the_specification_says() {
        let mut mad = Mad::new(MgmtClass::SUBN_ADM, 2, Method::GET, AttrId::PATH_RECORD);
        mad.set_low_transaction_id(0x0123_4567);
        mad.set_attr_modifier(0x89ab_cdef);
        let header: &[u8] = &mad.as_bytes()[..24];
        assert_eq!(
            header,
            [
                1, 3, 2, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0x01, 0x23, 0x45, 0x67, 0, 0x35, 0, 0, 0x89,
                0xab, 0xcd, 0xef
            ]
        );
        assert_eq!(mad.transaction_id(), 0x0123_4567);
        assert_eq!(mad.answer().method(), Method::GET_RESP);
    }
}
