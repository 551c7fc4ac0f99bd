//! Which thread polls.

/// A thread that polls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Thread(usize);

impl Thread {
    pub(crate) fn this() -> Self {
        thread_local!(static HERE: u8 = const { 0 });
        Self(HERE.with(|here| std::ptr::from_ref(here).addr()))
    }
}
