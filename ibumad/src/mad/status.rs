//! The status of responses (IBA 13.4.7; for subnet administration 15.2.3).

use std::fmt;

/// The status of a response.
///
/// # Example
/// ```
/// use ibumad::mad::MadStatus;
/// let status = MadStatus(1);
/// assert!(status.is_busy() && !status.is_ok());
/// ```
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct MadStatus(pub u16);

impl MadStatus {
    /// Returns `true` if the request succeeded.
    pub const fn is_ok(self) -> bool {
        self.0 == 0
    }

    /// Returns `true` if the request was dropped because the receiver is busy. Send it again later.
    pub const fn is_busy(self) -> bool {
        self.0 & 1 != 0
    }

    /// Returns `true` if another node serves such requests.
    pub const fn is_redirect(self) -> bool {
        self.0 & 2 != 0
    }

    /// Returns the code of the invalid field; 0 if all fields of the request are valid.
    pub const fn invalid_field(self) -> u8 {
        (self.0 >> 2 & 7) as u8
    }

    /// Returns the upper byte. Its meaning depends on the class.
    pub const fn class_specific(self) -> u8 {
        (self.0 >> 8) as u8
    }
}

impl fmt::Display for MadStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = match (self.invalid_field(), self.class_specific()) {
            (0, 0) if self.is_busy() => "busy",
            (0, 0) if self.is_redirect() => "redirected",
            (0, 0) => "ok",
            (1, _) => "class or version not supported",
            (2, _) => "method not supported",
            (3, _) => "attribute not supported by the method",
            (7, _) => "invalid value in a field",
            // Codes of subnet administration, the only class of this crate that has any.
            (_, 1) => "no resources",
            (_, 2) => "invalid request",
            (_, 3) => "no such record",
            (_, 4) => "too many records",
            (_, 5) => "invalid GID",
            (_, 6) => "components missing",
            (_, 7) => "denied",
            _ => "unknown status",
        };
        write!(f, "{text} (status {:#06x})", self.0)
    }
}

impl fmt::Debug for MadStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "MadStatus({self})")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn status_has_bits_and_codes() {
        for (status, bits, codes, text) in [
            (0, [true, false, false], (0, 0), "ok"),
            (0x0001, [false, true, false], (0, 0), "busy"),
            (0x0002, [false, false, true], (0, 0), "redirected"),
            (0x0004, [false; 3], (1, 0), "class or version not supported"),
            (0x0008, [false; 3], (2, 0), "method not supported"),
            (
                0x000c,
                [false; 3],
                (3, 0),
                "attribute not supported by the method",
            ),
            (0x001c, [false; 3], (7, 0), "invalid value in a field"),
            (0x0100, [false; 3], (0, 1), "no resources"),
            (0x0200, [false; 3], (0, 2), "invalid request"),
            (0x0300, [false; 3], (0, 3), "no such record"),
            (0x0400, [false; 3], (0, 4), "too many records"),
            (0x0500, [false; 3], (0, 5), "invalid GID"),
            (0x0600, [false; 3], (0, 6), "components missing"),
            (0x0700, [false; 3], (0, 7), "denied"),
            (0xff00, [false; 3], (0, 255), "unknown status"),
            (0x0010, [false; 3], (4, 0), "unknown status"),
        ] {
            let status = MadStatus(status);
            let found = [status.is_ok(), status.is_busy(), status.is_redirect()];
            assert_eq!(found, bits, "{status}");
            assert_eq!((status.invalid_field(), status.class_specific()), codes);
            assert_eq!(
                status.to_string(),
                format!("{text} (status {:#06x})", status.0)
            );
        }
    }
}
