//! How a request went (IBA 13.4.7; for subnet administration 15.2.3).

use std::fmt;

/// The status of an answer.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct MadStatus(pub u16);

impl MadStatus {
    /// Whether it went well. "Busy" and "redirect" are answers, too, but not the one asked for.
    pub const fn is_ok(self) -> bool {
        self.0 == 0
    }

    /// Whether the request should be sent again later.
    pub const fn is_busy(self) -> bool {
        self.0 & 1 != 0
    }

    /// Whether somebody else answers such requests.
    pub const fn is_redirect(self) -> bool {
        self.0 & 2 != 0
    }

    /// What was wrong with the request: 0 nothing.
    pub const fn invalid_field(self) -> u8 {
        (self.0 >> 2 & 7) as u8
    }

    /// The upper byte, whose meaning depends on the class.
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
            // Of subnet administration, the only class here that has such codes.
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
