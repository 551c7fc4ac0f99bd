//! Huge pages: their sizes and `mmap` flags. `Backing::HugePages` selects them, and `alloc` maps
//! them.

/// The size of a huge page.
///
/// # Example
/// ```no_run
/// # let pd = ibverbs::Device::by_name("rxe0")?.open()?.alloc_pd()?;
/// use ibverbs::{
///     MemoryOptions,
///     mr::{Backing, HugePageSize},
/// };
/// assert_eq!(HugePageSize::Mib2.bytes(), 2 << 20);
/// let backing = Backing::HugePages(HugePageSize::Mib2);
/// let pool = pd.pool_with(
///     1024,
///     4096,
///     MemoryOptions::new().backing(backing),
/// )?;
/// # Ok::<(), ibverbs::Error>(())
/// ```
///
/// # References
/// [`mmap(2)`](https://man7.org/linux/man-pages/man2/mmap.2.html)
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum HugePageSize {
    /// 2 MiB.
    #[default]
    Mib2,
    /// 1 GiB.
    Gib1,
}

impl HugePageSize {
    /// Returns the size of one page in bytes.
    pub const fn bytes(self) -> usize {
        match self {
            Self::Mib2 => 1 << 21,
            Self::Gib1 => 1 << 30,
        }
    }

    /// Returns the `mmap` flags for this size.
    pub(crate) const fn map_flags(self) -> i32 {
        let size = match self {
            Self::Mib2 => libc::MAP_HUGE_2MB,
            Self::Gib1 => libc::MAP_HUGE_1GB,
        };
        libc::MAP_HUGETLB | size
    }

    /// Returns help for reserving pages of this size.
    pub(crate) const fn help(self) -> &'static str {
        match self {
            Self::Mib2 => {
                "reserve 2 MiB pages: echo N > /sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages"
            }
            Self::Gib1 => {
                "reserve 1 GiB pages: echo N > /sys/kernel/mm/hugepages/hugepages-1048576kB/nr_hugepages"
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_those_of_the_flags_and_of_the_help() {
        for size in [HugePageSize::Mib2, HugePageSize::Gib1] {
            // The flags of `mmap` have the binary logarithm of the size.
            let flag = size.map_flags() & !libc::MAP_HUGETLB;
            assert_eq!(size.bytes(), 1 << (flag >> libc::MAP_HUGE_SHIFT));
            let directory = format!("hugepages-{}kB/nr_hugepages", size.bytes() >> 10);
            assert!(size.help().ends_with(&directory), "{}", size.help());
        }
    }
}
