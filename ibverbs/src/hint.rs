//! The usual causes: from a verb and its errno to a remedy.

#![allow(unsafe_code)]

use std::borrow::Cow;

use crate::errno::Errno;

/// What to do, for the causes that people meet.
pub(crate) fn hint_for(verb: &str, errno: Errno) -> Option<Cow<'static, str>> {
    Some(match (verb, errno.0) {
        ("ibv_reg_mr", libc::ENOMEM | libc::EAGAIN) => locked_memory_hint(),
        ("ibv_reg_mr", libc::EFAULT) => "the memory is not mapped, or not writable as the access flags ask".into(),
        ("ibv_get_device_list", libc::ENOSYS) => "the kernel has no RDMA: load ib_uverbs and a driver, for example `modprobe rdma_rxe`".into(),
        ("ibv_open_device", libc::EPERM | libc::EACCES) => {
            "no right to the device node: check the mode of /dev/infiniband/uverbs*".into()
        }
        ("ibv_open_device", libc::ENOENT | libc::ENODEV | libc::ENXIO) => {
            "is /dev/infiniband/uverbs* there, and may you open it? load ib_uverbs".into()
        }
        ("ibv_create_qp", 0) => "the siw driver fails so after some sequences of objects: destroy the newest queue pair and \
             create a larger one, or try another depth"
            .into(),
        ("ibv_create_qp" | "ibv_create_flow", libc::EPERM | libc::EACCES) => {
            "raw packets and flow rules need the capability CAP_NET_RAW".into()
        }
        ("ibv_create_qp" | "ibv_create_cq", libc::EINVAL) => {
            "a depth, scatter or inline size above what the device has: see max_qp_wr, max_sge and max_cqe of ibv_devinfo -v".into()
        }
        ("ibv_create_qp" | "ibv_create_cq", libc::ENOMEM) => {
            "too deep for the device or for the locked-memory limit (`ulimit -l`)".into()
        }
        ("ibv_modify_qp", libc::ENETUNREACH | libc::EHOSTUNREACH | libc::ENODATA) => {
            "no route to the peer's GID: check the GID index, its RoCE version and the netdev's address".into()
        }
        ("ibv_modify_qp", libc::ETIMEDOUT) => "the peer's address did not resolve: is the link up and the peer there?".into(),
        ("ibv_modify_qp", libc::EINVAL) => {
            "refused by the driver: check the port's state, the MTU and the GID index; iWARP connects by rdma_cm only".into()
        }
        (_, libc::EMFILE) => "the limit on open files of this process: raise it with `ulimit -n`".into(),
        _ => return None,
    })
}

fn locked_memory_hint() -> Cow<'static, str> {
    match locked_memory_limit() {
        Some(bytes) => format!(
            "the locked-memory limit is {} KiB: raise it with `ulimit -l unlimited`, or `@rdma - memlock unlimited` in \
             /etc/security/limits.conf and a new login",
            bytes / 1024
        )
        .into(),
        None => "the device or the system is out of memory for registrations: register less".into(),
    }
}

/// The soft limit on locked memory in bytes; `None` when there is none.
fn locked_memory_limit() -> Option<u64> {
    let mut limit = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: the structure is valid for writing and belongs to this frame.
    let returned = unsafe { libc::getrlimit(libc::RLIMIT_MEMLOCK, &raw mut limit) };
    (returned == 0 && limit.rlim_cur != libc::RLIM_INFINITY).then_some(limit.rlim_cur)
}
