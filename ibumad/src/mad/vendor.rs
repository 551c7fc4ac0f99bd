//! Vendors' datagrams with an OUI (IBA 16.5).

use std::fmt;

use super::datagram::{AttrId, Mad, Method, MgmtClass};

/// Who defined a vendor class: an IEEE organisation identifier of 24 bits.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct Oui(pub [u8; 3]);

/// OpenIB's, which `ibping` uses.
pub const OPENIB_OUI: Oui = Oui([0x00, 0x14, 0x05]);

/// Bytes that such a datagram carries.
pub const VENDOR_DATA_LEN: usize = 216;

impl Oui {
    /// The OUI of this number; `None` when it has more than 24 bits.
    pub fn new(number: u32) -> Option<Self> {
        let [0, a, b, c] = number.to_be_bytes() else {
            return None;
        };
        Some(Self([a, b, c]))
    }

    /// It as a number.
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

/// A datagram of a vendor class with an OUI, as a view.
///
/// # Example
/// ```
/// use ibumad::mad::{MgmtClass, OPENIB_OUI, VendorMad};
/// let ping = VendorMad::request(MgmtClass::OPENIB_PING, OPENIB_OUI, b"");
/// let pong = VendorMad::of(&ping).unwrap().answer(b"node1\0");
/// assert_eq!(VendorMad::of(&pong).unwrap().text(), "node1");
/// ```
#[derive(Clone, Copy, Debug)]
pub struct VendorMad<'a>(&'a Mad);

impl<'a> VendorMad<'a> {
    /// A request `Get` of attribute 0, with as much of `data` as fits.
    pub fn request(class: MgmtClass, oui: Oui, data: &[u8]) -> Mad {
        let mut mad = Mad::new(class, 1, Method::GET, AttrId(0));
        mad.as_bytes_mut()[37..40].copy_from_slice(&oui.0);
        fill(&mut mad, data);
        mad
    }

    /// The view of a datagram; `None` when its class has no OUI.
    pub fn of(mad: &'a Mad) -> Option<Self> {
        mad.class().has_oui().then_some(Self(mad))
    }

    /// Whose class it is.
    pub fn oui(self) -> Oui {
        let bytes = self.0.as_bytes();
        Oui([bytes[37], bytes[38], bytes[39]])
    }

    /// What it carries: 216 bytes.
    pub fn data(self) -> &'a [u8] {
        &self.0.as_bytes()[40..]
    }

    /// What it carries as a text, up to the first NUL; bytes that are no UTF-8 or not printable are
    /// replaced.
    pub fn text(self) -> String {
        let bytes = self
            .data()
            .split(|&byte| byte == 0)
            .next()
            .unwrap_or_default();
        String::from_utf8_lossy(bytes).replace(char::is_control, "\u{fffd}")
    }

    /// The answer to this request, with as much of `data` as fits.
    pub fn answer(self, data: &[u8]) -> Mad {
        let mut answer = self.0.answer();
        fill(&mut answer, data);
        answer
    }
}

fn fill(mad: &mut Mad, data: &[u8]) {
    let room = &mut mad.as_bytes_mut()[40..];
    room.fill(0);
    let len = data.len().min(room.len());
    room[..len].copy_from_slice(&data[..len]);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ping_is_what_ibping_sends() {
        let ping = VendorMad::request(MgmtClass::OPENIB_PING, OPENIB_OUI, b"");
        let mut wire = [0; 256];
        wire[..4].copy_from_slice(&[1, 0x32, 1, 1]);
        wire[37..40].copy_from_slice(&[0x00, 0x14, 0x05]);
        assert_eq!(ping.as_bytes(), &wire);
    }

    #[test]
    fn data_that_does_not_fit_is_cut_off() {
        let ping = VendorMad::request(MgmtClass::OPENIB_PING, OPENIB_OUI, &[7; 300]);
        assert_eq!(
            VendorMad::of(&ping).expect("vendor").data(),
            [7; VENDOR_DATA_LEN]
        );
    }

    #[test]
    fn an_answer_keeps_the_transaction() {
        let mut ping = VendorMad::request(MgmtClass::OPENIB_PING, OPENIB_OUI, b"");
        ping.set_low_transaction_id(77);
        let pong = VendorMad::of(&ping).expect("vendor").answer(b"host\0");
        assert_eq!(
            (pong.low_transaction_id(), pong.method()),
            (77, Method::GET_RESP)
        );
        assert_eq!(VendorMad::of(&pong).expect("vendor").text(), "host");
    }

    #[test]
    fn an_oui_has_24_bits() {
        assert_eq!(Oui::new(0x1405), Some(OPENIB_OUI));
        assert_eq!(Oui::new(0x0100_0000), None);
        assert_eq!(OPENIB_OUI.to_string(), "0x001405");
    }
}
