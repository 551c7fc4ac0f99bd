//! Faults of the adapter that a test orders for a whole program.

/// Time for which [`DeviceFault::LinkFlap`] takes the link down, in nanoseconds.
pub(crate) const FLAP: u64 = 300_000_000;

/// A fault of the adapter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum DeviceFault {
    /// The link goes down, and up again after 0.3 s.
    LinkFlap,
    /// The link goes down.
    LinkDown,
    /// The adapter executes no further request, and reports nothing.
    Stuck,
    /// One completion event is lost.
    LostEvent,
    /// The adapter reports a fatal error and executes no further request.
    Fatal,
}

impl DeviceFault {
    /// The faults with their names.
    pub(crate) const ALL: [(&'static str, Self); 5] = [
        ("link-flap", Self::LinkFlap),
        ("link-down", Self::LinkDown),
        ("stuck", Self::Stuck),
        ("lost-event", Self::LostEvent),
        ("fatal", Self::Fatal),
    ];

    /// Returns the fault with a name: `link-flap`, `link-down`, `stuck`, `lost-event` or `fatal`.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        let mut all = Self::ALL.into_iter();
        all.find_map(|(known, fault)| (known == name).then_some(fault))
    }
}

/// A fault that happens after the program has sent a number of packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Planned {
    pub(crate) fault: DeviceFault,
    pub(crate) packets: u64,
}

impl Planned {
    /// Parses `FAULT@PACKETS`.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let (name, packets) = text.split_once('@')?;
        Some(Self {
            fault: DeviceFault::from_name(name)?,
            packets: packets.parse().ok()?,
        })
    }
}

/// The faults of a running adapter.
#[derive(Debug, Default)]
pub(crate) struct DeviceFaults {
    planned: Option<Planned>,
    /// The adapter executes no request.
    pub(crate) stopped: bool,
    /// Time at which the link comes up again.
    link_up_at: Option<u64>,
}

/// The effect of a fault that the caller must apply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Effect {
    Link {
        up: bool,
    },
    LoseEvent,
    /// The adapter fails and reports it.
    Fail,
}

impl DeviceFaults {
    pub(crate) fn new(planned: Option<Planned>) -> Self {
        Self {
            planned,
            ..Self::default()
        }
    }

    /// Orders a fault for the next step, instead of one that has not happened.
    pub(crate) fn order(&mut self, fault: DeviceFault) {
        self.planned = Some(Planned { fault, packets: 0 });
    }

    /// Ends all faults.
    pub(crate) fn repair(&mut self) {
        *self = Self::default();
    }

    /// Returns what happens now, after the program has sent this number of packets.
    pub(crate) fn next(&mut self, packets: u64, now: u64) -> Option<Effect> {
        if self.link_up_at.is_some_and(|at| now >= at) {
            self.link_up_at = None;
            return Some(Effect::Link { up: true });
        }
        let due = self.planned.take_if(|planned| packets >= planned.packets)?;
        Some(match due.fault {
            DeviceFault::LinkFlap => {
                self.link_up_at = Some(now + FLAP);
                Effect::Link { up: false }
            }
            DeviceFault::LinkDown => Effect::Link { up: false },
            DeviceFault::LostEvent => Effect::LoseEvent,
            DeviceFault::Stuck => {
                self.stopped = true;
                return None;
            }
            DeviceFault::Fatal => {
                self.stopped = true;
                Effect::Fail
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fault_happens_once_after_its_packets() {
        let planned = Planned::parse("link-flap@10").expect("valid");
        let mut faults = DeviceFaults::new(Some(planned));
        assert_eq!(faults.next(9, 1), None);
        assert_eq!(faults.next(10, 1), Some(Effect::Link { up: false }));
        assert_eq!(faults.next(11, FLAP), None);
        assert_eq!(faults.next(11, FLAP + 1), Some(Effect::Link { up: true }));
        assert_eq!(faults.next(12, 2 * FLAP), None);
    }

    #[test]
    fn malformed_faults_are_refused() {
        for text in ["", "fatal", "fatal@", "fatal@x", "other@1", "@1"] {
            assert_eq!(Planned::parse(text), None, "{text}");
        }
    }
}
