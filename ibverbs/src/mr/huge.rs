//! Huge pages.

/// The size of huge pages.
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
    /// Bytes of one page.
    pub const fn bytes(self) -> usize {
        match self {
            Self::Mib2 => 1 << 21,
            Self::Gib1 => 1 << 30,
        }
    }

    /// What `mmap` is told.
    pub(super) const fn map_flags(self) -> i32 {
        let size = match self {
            Self::Mib2 => libc::MAP_HUGE_2MB,
            Self::Gib1 => libc::MAP_HUGE_1GB,
        };
        libc::MAP_HUGETLB | size
    }

    /// Where the administrator sets them aside.
    pub(super) const fn hint(self) -> &'static str {
        match self {
            Self::Mib2 => "set 2 MiB pages aside: echo N > /sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages",
            Self::Gib1 => "set 1 GiB pages aside: echo N > /sys/kernel/mm/hugepages/hugepages-1048576kB/nr_hugepages",
        }
    }
}
