//! The file that a provider's functions come from, as the dynamic loader reports it.

use std::ffi::{CStr, c_int, c_void};
use std::sync::{Mutex, PoisonError};

use rdma_sys::{ibv_cq, ibv_wc};

use crate::cq::poll_cq;
use crate::profile::Provider;

/// Type of `poll_cq`.
type PollCq = unsafe extern "C" fn(*mut ibv_cq, c_int, *mut ibv_wc) -> c_int;

/// The addresses of the functions that devices poll with, and their providers.
static FUNCTIONS: Mutex<Vec<(usize, Provider)>> = Mutex::new(Vec::new());

impl Provider {
    /// Returns the function `poll_cq` of the provider. Each provider has one of its own.
    pub(crate) fn poll_cq(self) -> PollCq {
        let function: PollCq = match self {
            Self::BnxtRe => poll_as::<0>,
            Self::Cxgb4 => poll_as::<1>,
            Self::Efa => poll_as::<2>,
            Self::Hns => poll_as::<3>,
            Self::Qedr => poll_as::<4>,
            Self::Rxe => poll_as::<5>,
            Self::Siw => poll_as::<6>,
            Self::Unknown => poll_as::<7>,
            Self::Irdma => poll_as::<8>,
            Self::Mana => poll_as::<9>,
            Self::Mlx4 => poll_as::<10>,
            Self::Ocrdma => poll_as::<11>,
        };
        let mut functions = FUNCTIONS.lock().unwrap_or_else(PoisonError::into_inner);
        let known = (function as usize, self);
        if !functions.contains(&known) {
            functions.push(known);
        }
        function
    }

    fn file(self) -> &'static CStr {
        match self {
            Self::BnxtRe => c"/fake/libbnxt_re-rdmav34.so",
            Self::Cxgb4 => c"/fake/libcxgb4-rdmav34.so",
            Self::Efa => c"/fake/libefa.so.1",
            Self::Hns => c"/fake/libhns.so.1",
            Self::Irdma => c"/fake/libirdma-rdmav57.so",
            Self::Mana => c"/fake/libmana.so.1",
            Self::Mlx4 => c"/fake/libmlx4.so.1",
            Self::Ocrdma => c"/fake/libocrdma-rdmav34.so",
            Self::Qedr => c"/fake/libqedr-rdmav34.so",
            Self::Rxe => c"/fake/librxe-rdmav34.so",
            Self::Siw => c"/fake/libsiw-rdmav34.so",
            Self::Unknown => c"/fake/program",
        }
    }
}

/// Polls. The number keeps the compiler from merging the functions of two providers.
#[inline(never)]
unsafe extern "C" fn poll_as<const PROVIDER: u8>(
    cq: *mut ibv_cq,
    max: c_int,
    wcs: *mut ibv_wc,
) -> c_int {
    std::hint::black_box(PROVIDER);
    // SAFETY: guaranteed by the caller.
    unsafe { poll_cq(cq, max, wcs) }
}

/// `dladdr(3)`, for the functions of this module only.
#[unsafe(no_mangle)]
unsafe extern "C" fn dladdr(address: *const c_void, info: *mut libc::Dl_info) -> c_int {
    let functions = FUNCTIONS.lock().unwrap_or_else(PoisonError::into_inner);
    let provider = functions
        .iter()
        .find(|&&(known, _)| known == address.addr());
    let Some(&(_, provider)) = provider else {
        return 0;
    };
    // SAFETY: the caller passes a pointer that is valid for writes.
    unsafe { (*info).dli_fname = provider.file().as_ptr() };
    1
}

pub(crate) const ENTRY_POINTS: &[*const ()] = &[dladdr as *const ()];
