//! Datagrams of vendor classes with an OUI (IBA 16.5).

use std::fmt;

use super::datagram::{AttrId, Mad, Method, MgmtClass};

/// An IEEE organization identifier of 24 bits: the organization that defined a vendor class.
///
/// # Example
/// ```
/// use ibumad::mad::Oui;
/// assert_eq!(Oui([0, 0x14, 5]).number(), 0x1405);
/// ```
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct Oui(pub [u8; 3]);

/// The OUI of OpenIB, which `ibping` uses.
pub const OPENIB_OUI: Oui = Oui([0x00, 0x14, 0x05]);

/// The number of data bytes of a datagram of a vendor class.
pub const VENDOR_DATA_LEN: usize = 216;

impl Oui {
    /// Creates an OUI from its number. Returns `None` if the number has more than 24 bits.
    pub fn new(number: u32) -> Option<Self> {
        let [0, a, b, c] = number.to_be_bytes() else {
            return None;
        };
        Some(Self([a, b, c]))
    }

    /// Returns the OUI as a number.
    pub fn number(self) -> u32 {
        u32::from_be_bytes([0, self.0[0], self.0[1], self.0[2]])
    }
}

impl fmt::Display for Oui {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#08x}", self.number())
    }
}

impl fmt::Debug for Oui {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Oui({self})")
    }
}

/// A view of a datagram of a vendor class with an OUI.
///
/// # Example
/// ```
/// use ibumad::mad::{MgmtClass, OPENIB_OUI, VendorMad};
/// let ping = VendorMad::request(MgmtClass::OPENIB_PING, OPENIB_OUI, b"");
/// let pong = VendorMad::from_mad(&ping).unwrap().response(b"node1\0");
/// assert_eq!(VendorMad::from_mad(&pong).unwrap().text(), "node1");
/// ```
#[derive(Clone, Copy, Debug)]
pub struct VendorMad<'a>(&'a Mad);

impl<'a> VendorMad<'a> {
    /// Creates a request `Get` of attribute 0. `data` is truncated to [`VENDOR_DATA_LEN`] bytes.
    pub fn request(class: MgmtClass, oui: Oui, data: &[u8]) -> Mad {
        let mut mad = Mad::new(class, 1, Method::GET, AttrId(0));
        mad.as_bytes_mut()[37..40].copy_from_slice(&oui.0);
        set_data(&mut mad, data);
        mad
    }

    /// Creates a view of a datagram. Returns `None` if its class has no OUI.
    pub fn from_mad(mad: &'a Mad) -> Option<Self> {
        mad.class().has_oui().then_some(Self(mad))
    }

    /// Returns the OUI.
    pub fn oui(self) -> Oui {
        let bytes = self.0.as_bytes();
        Oui([bytes[37], bytes[38], bytes[39]])
    }

    /// Returns the data: [`VENDOR_DATA_LEN`] bytes.
    pub fn data(self) -> &'a [u8] {
        &self.0.as_bytes()[40..]
    }

    /// Returns the data as text, up to the first NUL. Bytes that are not UTF-8, control characters
    /// and characters that are invisible or change their neighbours are replaced by U+FFFD.
    pub fn text(self) -> String {
        printable_text(self.data())
    }

    /// Creates the response to this request. `data` is truncated to [`VENDOR_DATA_LEN`] bytes.
    pub fn response(self, data: &[u8]) -> Mad {
        let mut response = self.0.response();
        set_data(&mut response, data);
        response
    }
}

fn set_data(mad: &mut Mad, data: &[u8]) {
    let field = &mut mad.as_bytes_mut()[40..];
    field.fill(0);
    let len = data.len().min(field.len());
    field[..len].copy_from_slice(&data[..len]);
}

/// Converts bytes from the network to text that is safe to print. The text ends at the first NUL.
pub(super) fn printable_text(bytes: &[u8]) -> String {
    let bytes = bytes.split(|&byte| byte == 0).next().unwrap_or_default();
    // Besides control characters, invisible ones, those that change the direction of the text and
    // combining ones can make a name look like another one. `escape_debug` escapes all of them.
    let is_unsafe = |c: char| !"\"'\\".contains(c) && c.escape_debug().len() != 1;
    String::from_utf8_lossy(bytes).replace(is_unsafe, "\u{fffd}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ping_has_the_bytes_that_ibping_sends() {
        let ping = VendorMad::request(MgmtClass::OPENIB_PING, OPENIB_OUI, b"");
        let mut wire = [0; 256];
        wire[..4].copy_from_slice(&[1, 0x32, 1, 1]);
        wire[37..40].copy_from_slice(&[0x00, 0x14, 0x05]);
        assert_eq!(ping.as_bytes(), &wire);
        let vendor = VendorMad::from_mad(&ping).expect("vendor");
        assert_eq!(vendor.oui(), OPENIB_OUI);
    }

    #[test]
    fn text_has_no_unsafe_characters() {
        for (bytes, expected) in [
            ("node1 \"HCA-1\" \\ é", "node1 \"HCA-1\" \\ é"),
            ("a\x1b[2J\nb", "a\u{fffd}[2J\u{fffd}b"),
            ("a\u{202e}b\u{200b}c\u{36f}", "a\u{fffd}b\u{fffd}c\u{fffd}"),
        ] {
            assert_eq!(printable_text(bytes.as_bytes()), expected);
        }
    }

    #[test]
    fn long_data_is_truncated() {
        let ping = VendorMad::request(MgmtClass::OPENIB_PING, OPENIB_OUI, &[7; 300]);
        assert_eq!(
            VendorMad::from_mad(&ping).expect("vendor").data(),
            [7; VENDOR_DATA_LEN]
        );
    }

    #[test]
    fn response_keeps_the_transaction_id() {
        let mut ping = VendorMad::request(MgmtClass::OPENIB_PING, OPENIB_OUI, b"");
        ping.set_low_transaction_id(77);
        let pong = VendorMad::from_mad(&ping)
            .expect("vendor")
            .response(b"host\0");
        assert_eq!(
            (pong.low_transaction_id(), pong.method()),
            (77, Method::GET_RESP)
        );
        assert_eq!(VendorMad::from_mad(&pong).expect("vendor").text(), "host");
    }

    #[test]
    fn oui_has_24_bits() {
        assert_eq!(Oui::new(0x1405), Some(OPENIB_OUI));
        assert_eq!(Oui::new(0x0100_0000), None);
        assert_eq!(OPENIB_OUI.to_string(), "0x001405");
    }
}
