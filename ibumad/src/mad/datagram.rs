//! The datagram and its common header (IBA 13.4.2).

use std::fmt;

use rdma_types::c_value;

use super::bits::{get, put};
use super::status::MadStatus;

/// The length of a datagram in bytes.
pub const MAD_LEN: usize = 256;

/// The length of the common header in bytes.
pub const MAD_HEADER_LEN: usize = 24;

/// A management datagram: 256 bytes that start with the common header. The class determines the
/// meaning of the remaining bytes: see [`Smp`](super::Smp), [`SaMad`](super::SaMad) and
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
    /// The management class of a datagram.
    ///
    /// # Example
    /// ```
    /// use ibumad::mad::MgmtClass;
    /// assert!(MgmtClass::OPENIB_PING.has_oui());
    /// ```
    pub struct MgmtClass(u8) {
        /// Subnet management, LID-routed.
        SUBN_LID = 0x01 => "SubnMgt (LID routed)",
        /// Subnet management, directed route.
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
    /// Returns `true` if datagrams of this class contain an OUI: the vendor classes 0x30 to 0x4f.
    pub const fn has_oui(self) -> bool {
        matches!(self.0, 0x30..=0x4f)
    }
}

c_value! {
    /// The method of a request or response.
    ///
    /// # Example
    /// ```
    /// use ibumad::mad::Method;
    /// assert_eq!(Method::GET.response(), Method::GET_RESP);
    /// ```
    pub struct Method(u8) {
        /// Request to read an attribute.
        GET = 0x01 => "Get",
        /// Request to write an attribute.
        SET = 0x02 => "Set",
        /// Response to `Get` and `Set`.
        GET_RESP = 0x81 => "GetResp",
        /// Datagram without a response.
        SEND = 0x03 => "Send",
        /// Notification of an event.
        TRAP = 0x05 => "Trap",
        /// Forwarded notification.
        REPORT = 0x06 => "Report",
        /// Response to `Report`.
        REPORT_RESP = 0x86 => "ReportResp",
        /// Acknowledgement of a trap, which stops its repetition.
        TRAP_REPRESS = 0x07 => "TrapRepress",
        /// Request to read a table (subnet administration).
        GET_TABLE = 0x12 => "GetTable",
        /// Response to `GetTable`.
        GET_TABLE_RESP = 0x92 => "GetTableResp",
    }
}

impl Method {
    /// Returns `true` for the method of a response.
    pub const fn is_response(self) -> bool {
        self.0 & 0x80 != 0
    }

    /// Returns the method of the response to this request method.
    #[must_use]
    pub const fn response(self) -> Self {
        Self(self.0 | 0x80)
    }
}

c_value! {
    /// The identifier of the attribute that a datagram carries. Only identifiers below 16 mean the
    /// same in all classes.
    ///
    /// # Example
    /// ```
    /// use ibumad::mad::AttrId;
    /// assert_eq!(AttrId(0x11), AttrId::NODE_INFO);
    /// ```
    pub struct AttrId(u16) {
        /// Capabilities of a class.
        CLASS_PORT_INFO = 0x0001 => "ClassPortInfo",
        /// Name of a node.
        NODE_DESCRIPTION = 0x0010 => "NodeDescription",
        /// Properties of a node.
        NODE_INFO = 0x0011 => "NodeInfo",
        /// State and properties of a port.
        PORT_INFO = 0x0015 => "PortInfo",
        /// State of a subnet manager.
        SM_INFO = 0x0020 => "SMInfo",
        /// Path between two ports (subnet administration).
        PATH_RECORD = 0x0035 => "PathRecord",
    }
}

impl Mad {
    /// Creates a datagram with this header; all other bytes are 0.
    pub fn new(class: MgmtClass, class_version: u8, method: Method, attr: AttrId) -> Self {
        let mut mad = Self([0; MAD_LEN]);
        mad.0[..4].copy_from_slice(&[1, class.0, class_version, method.0]);
        mad.put(128, 16, attr.0.into());
        mad
    }

    /// Creates a datagram from the first [`MAD_LEN`] bytes. Returns `None` if there are fewer.
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        bytes.first_chunk().map(|bytes| Self(*bytes))
    }

    /// Returns the bytes as on the wire.
    pub fn as_bytes(&self) -> &[u8; MAD_LEN] {
        &self.0
    }

    /// Returns the bytes as on the wire, to be modified.
    pub fn as_bytes_mut(&mut self) -> &mut [u8; MAD_LEN] {
        &mut self.0
    }

    /// Returns the version of the header: 1.
    pub fn base_version(&self) -> u8 {
        self.0[0]
    }

    /// Returns the class.
    pub fn class(&self) -> MgmtClass {
        MgmtClass(self.0[1])
    }

    /// Returns the version of the class.
    pub fn class_version(&self) -> u8 {
        self.0[2]
    }

    /// Returns the method.
    pub fn method(&self) -> Method {
        Method(self.0[3])
    }

    /// Returns the status of a response, without the direction bit of directed-route datagrams.
    pub fn status(&self) -> MadStatus {
        let status = self.bits(32, 16);
        MadStatus(if self.class() == MgmtClass::SUBN_DIRECTED {
            status & 0x7fff
        } else {
            status
        })
    }

    /// Returns the transaction identifier, which is the same in a request and its response. The
    /// kernel sets the upper half of a request's identifier to the agent's number.
    pub fn transaction_id(&self) -> u64 {
        u64::try_from(get(&self.0, 64, 64)).unwrap_or(0)
    }

    /// Returns the lower half of the transaction identifier, which the application sets.
    pub fn low_transaction_id(&self) -> u32 {
        u32::try_from(get(&self.0, 96, 32)).unwrap_or(0)
    }

    /// Sets the lower half of the transaction identifier.
    pub fn set_low_transaction_id(&mut self, id: u32) {
        self.put(96, 32, id.into());
    }

    /// Returns the identifier of the attribute.
    pub fn attr(&self) -> AttrId {
        AttrId(self.bits(128, 16))
    }

    /// Returns the attribute modifier, for example a port number.
    pub fn attr_modifier(&self) -> u32 {
        u32::try_from(get(&self.0, 160, 32)).unwrap_or(0)
    }

    /// Sets the attribute modifier.
    pub fn set_attr_modifier(&mut self, modifier: u32) {
        self.put(160, 32, modifier.into());
    }

    /// Creates the response to this request: a copy with the response method and status 0.
    #[must_use]
    pub fn response(&self) -> Self {
        let mut response = self.clone();
        response.0[3] = self.method().response().0;
        response.put(32, 16, 0);
        response
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
    fn header_fields_are_read_from_the_wire() {
        let mut bytes = [0; MAD_LEN];
        for (byte, value) in bytes.iter_mut().zip(2..=25) {
            *byte = value;
        }
        let mut mad = Mad::from(bytes);
        assert_eq!(
            (mad.base_version(), mad.class(), mad.class_version()),
            (2, MgmtClass(3), 4)
        );
        assert_eq!((mad.method(), mad.status()), (Method(5), MadStatus(0x0607)));
        assert_eq!(mad.transaction_id(), 0x0a0b_0c0d_0e0f_1011);
        assert_eq!(mad.low_transaction_id(), 0x0e0f_1011);
        assert_eq!(
            (mad.attr(), mad.attr_modifier()),
            (AttrId(0x1213), 0x1617_1819)
        );
        mad.as_bytes_mut()[4] = 0x85;
        assert_eq!(mad.status(), MadStatus(0x8507));
        mad.as_bytes_mut()[1] = MgmtClass::SUBN_DIRECTED.0;
        assert_eq!(mad.status(), MadStatus(0x0507), "without the direction");
        assert_eq!(mad.response().status(), MadStatus(0));
        assert_eq!(Mad::from_bytes(&bytes[1..]), None);
        assert_eq!(Mad::from_bytes(mad.as_bytes()), Some(mad));
    }

    #[test]
    fn vendor_classes_of_0x30_to_0x4f_have_an_oui() {
        let classes = (0..=u8::MAX).filter(|class| MgmtClass(*class).has_oui());
        assert!(classes.eq(0x30..=0x4f));
    }

    #[test]
    fn methods_of_responses_have_the_highest_bit() {
        assert!(Method::GET_RESP.is_response() && !Method::GET.is_response());
        assert_eq!(Method::GET_RESP.response(), Method::GET_RESP);
    }

    #[test]
    fn header_fields_are_at_their_specified_offsets() {
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
        assert_eq!(mad.response().method(), Method::GET_RESP);
    }
}
