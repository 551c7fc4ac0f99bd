//! Results of commands.

/// The status of a command that failed, `MLX5_CMD_STAT_*`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Status {
    BadOperation = 0x2,
    BadParameter = 0x3,
    BadSystemState = 0x4,
    BadResource = 0x5,
    NoResource = 0xf,
    BadInputLength = 0x50,
    BadOutputLength = 0x51,
}

/// A command that failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Failure {
    pub(crate) status: Status,
    pub(crate) reason: &'static str,
}

impl Failure {
    pub(crate) const fn new(status: Status, reason: &'static str) -> Self {
        Self { status, reason }
    }

    /// Returns the number that the kernel's log has for the reason: its FNV-1a hash.
    pub(crate) fn syndrome(self) -> u32 {
        self.reason.bytes().fold(0x811c_9dc5, |hash: u32, byte| {
            (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193)
        })
    }
}

/// Returns `Ok` if a condition holds.
pub(crate) fn ensure(holds: bool, status: Status, reason: &'static str) -> Result<(), Failure> {
    if holds {
        Ok(())
    } else {
        Err(Failure::new(status, reason))
    }
}
