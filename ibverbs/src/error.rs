//! Errors of verbs, with the remedies for their usual causes.

use std::borrow::Cow;

pub(crate) use rdma_types::{Errno, Error, ErrorKind, Result};

/// Implements what an error with a field `error` has from it.
macro_rules! wraps_error {
    ($type:ty) => {
        impl $type {
            /// Returns the reason.
            pub fn error(&self) -> &Error {
                &self.error
            }
        }

        impl std::fmt::Debug for $type {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                std::fmt::Debug::fmt(&self.error, f)
            }
        }

        impl std::fmt::Display for $type {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                std::fmt::Display::fmt(&self.error, f)
            }
        }

        /// The text is that of [`error`](Self::error), and so is the source.
        impl std::error::Error for $type {
            fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
                std::error::Error::source(&self.error)
            }
        }

        impl From<$type> for Error {
            fn from(failed: $type) -> Self {
                failed.error
            }
        }
    };
}
pub(crate) use wraps_error;

/// Creates the error of a verb that failed with `errno`, with the kind and the remedy that follow
/// from both, and emits a `tracing` event.
///
/// For crates that build on this one. An error that no system call reported is created with
/// [`Error::new`].
///
/// # Example
/// ```
/// use ibverbs::{Errno, ErrorKind, call_failed};
/// let error = call_failed("ibv_reg_mr", Errno(12), "4096 bytes on rxe0");
/// assert_eq!(error.kind(), ErrorKind::LockedMemory);
/// assert_eq!(
///     error.message(),
///     "ibv_reg_mr: 4096 bytes on rxe0: Cannot allocate memory (ENOMEM)"
/// );
/// assert!(error.help().is_some());
/// ```
pub fn call_failed(
    call: &'static str,
    errno: Errno,
    detail: impl Into<Cow<'static, str>>,
) -> Error {
    let detail = detail.into();
    crate::trace::failed(call, errno, &detail);
    let mut error = Error::from_errno(call, errno, detail);
    if let ("ibv_reg_mr", libc::ENOMEM | libc::EAGAIN) = (call, errno.0) {
        error = error.with_kind(ErrorKind::LockedMemory);
    }
    match help_for(call, errno) {
        Some(help) => error.with_help(help),
        None => error,
    }
}

/// Loads libibverbs with the feature `dlopen`. `call` is the function that the caller calls next.
pub(crate) fn load_libibverbs(call: &'static str) -> Result<()> {
    rdma_sys::Library::Ibverbs.load().map_err(|error| {
        Error::new(ErrorKind::Unsupported, call, error.to_string()).with_help(error.help())
    })
}

/// The remedy if the provider cannot copy to and from device memory.
pub(crate) const COPY_DEVICE_MEMORY: &str = "let the device access it: `ProtectionDomain::reg_dm`";

/// Returns the remedy for the usual cause of a failed verb.
fn help_for(call: &str, errno: Errno) -> Option<Cow<'static, str>> {
    let help = match (call, errno.0) {
        ("ibv_reg_mr", libc::ENOMEM | libc::EAGAIN) => return Some(locked_memory_help()),
        ("ibv_reg_mr", libc::EFAULT) => {
            "map the memory first; register read-only memory with `ProtectionDomain::frozen_from`, because other memory must be writable"
        }
        ("ibv_get_device_list", libc::ENOSYS) => {
            "load ib_uverbs and the driver of a device, for example `modprobe rdma_rxe`; if they are \
             loaded, raise this process's limit on open files with `ulimit -n`"
        }
        (call, libc::ENOSYS) if call.starts_with("efadv_") => {
            "install a libefa that has this function"
        }
        (call, libc::ENOSYS) if call.starts_with("mlx5dv_") => {
            "install a libmlx5 that has this function"
        }
        (call, libc::ENOSYS) => match first_version(call) {
            Some(version) => {
                return Some(format!("install rdma-core {version} or newer").into());
            }
            None => return None,
        },
        ("ibv_open_device", libc::EPERM | libc::EACCES) => {
            "check the access rights of /dev/infiniband/uverbs*"
        }
        ("ibv_open_device", libc::ENOENT | libc::ENODEV | libc::ENXIO) => {
            "load ib_uverbs, and check the access rights of /dev/infiniband/uverbs*"
        }
        ("ibv_create_cq" | "ibv_create_qp" | "ibv_create_srq", 0) => {
            "siw fails this way after some 144 objects, depending on their sizes: open the device \
             again and create further objects there, or share completion queues"
        }
        ("ibv_create_qp" | "ibv_create_flow", libc::EPERM | libc::EACCES) => {
            "raw packets and flow rules require the capability CAP_NET_RAW"
        }
        ("ibv_create_qp" | "ibv_create_cq", libc::EINVAL) => {
            "set the depths, scatter entries and inline size at most to the device's limits: see \
             max_qp_wr, max_sge and max_cqe in `ibv_devinfo -v`"
        }
        ("ibv_create_srq" | "ibv_create_srq_ex", libc::EINVAL) => {
            "set the numbers of receives and scatter entries to at least 1, and at most to the \
             device's limits: see max_srq_wr and max_srq_sge in `ibv_devinfo -v`"
        }
        ("ibv_create_qp" | "ibv_create_cq" | "ibv_create_srq", libc::ENOMEM) => {
            "set the depths lower, or raise the locked-memory limit (`ulimit -l`)"
        }
        ("ibv_memcpy_to_dm" | "ibv_memcpy_from_dm", libc::EOPNOTSUPP) => COPY_DEVICE_MEMORY,
        ("ibv_modify_qp", libc::ENETUNREACH | libc::EHOSTUNREACH | libc::ENODATA) => {
            "no route to the peer's GID: check the GID index, its RoCE version and the network \
             interface's address"
        }
        ("ibv_modify_qp", libc::ETIMEDOUT) => {
            "the peer's address did not resolve: check that the link and the peer are up"
        }
        ("ibv_modify_qp", libc::EINVAL) => {
            "check the port state, the MTU and the GID index; use rdma_cm to connect on iWARP"
        }
        (_, libc::EMFILE) => "raise this process's limit on open files with `ulimit -n`",
        _ => return None,
    };
    Some(help.into())
}

/// Returns the version of rdma-core that has introduced a function, if that is newer than 44.
fn first_version(call: &str) -> Option<u32> {
    match call {
        "ibv_alloc_dmah" | "ibv_reg_mr_ex" => Some(59),
        "ibv_dm_export_dmabuf_fd" | "ibv_query_port_speed" => Some(62),
        "ibv_alloc_buf" => Some(64),
        _ if call.contains("_comp_cntr") => Some(65),
        _ => None,
    }
}

fn locked_memory_help() -> Cow<'static, str> {
    match locked_memory_limit() {
        Some(bytes) => format!(
            "the locked-memory limit is {} KiB: raise it with `ulimit -l unlimited`, or with \
             `@rdma - memlock unlimited` in /etc/security/limits.conf and a new login",
            bytes / 1024
        )
        .into(),
        None => "the device or the system is out of memory for registrations: register less".into(),
    }
}

/// Returns the soft limit on locked memory in bytes, or `None` if there is no limit.
fn locked_memory_limit() -> Option<u64> {
    rustix::process::getrlimit(rustix::process::Resource::Memlock).current
}
