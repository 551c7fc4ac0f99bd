//! Errors of libibumad's functions, with the remedies for their usual causes.

use std::borrow::Cow;

use rdma_types::{Errno, Error, ErrorKind};

/// Creates the error of a function of libibumad that failed with `errno`.
pub(crate) fn call_failed(
    call: &'static str,
    errno: Errno,
    detail: impl Into<Cow<'static, str>>,
) -> Error {
    let error = Error::from_errno(call, errno, detail);
    match help_for(call, errno) {
        Some(help) => error.with_help(help),
        None => error,
    }
}

/// Loads libibumad with the feature `dlopen`. `call` is the function that the caller calls next.
pub(crate) fn load_libibumad(call: &'static str) -> Result<(), Error> {
    rdma_sys::Library::Ibumad.load().map_err(|error| {
        Error::new(ErrorKind::Unsupported, call, error.to_string()).with_help(error.help())
    })
}

/// Returns the remedy for the usual cause of a failed call.
fn help_for(call: &str, errno: Errno) -> Option<&'static str> {
    Some(match (call, errno.0) {
        ("umad_open_port", libc::EPERM | libc::EACCES) => {
            "run as root, or add a udev rule that grants access to /dev/infiniband/umad*"
        }
        ("umad_open_port", libc::EOPNOTSUPP | libc::ENOENT) => {
            "load the kernel module for management datagrams: `modprobe ib_umad`"
        }
        ("umad_open_port", libc::EINVAL) => {
            "the port has no management device: `modprobe ib_umad`; iWARP ports never have one"
        }
        ("umad_open_port", libc::ENODEV) => "`ribinfo devices` lists the available ports",
        ("umad_get_ca", libc::EIO) => {
            "sysfs could not be read: check that every port has a GID and that its link is up"
        }
        ("umad_register2", libc::EINVAL) => {
            "the kernel does not support this class or version, or another program already serves \
             these methods"
        }
        ("umad_register2", libc::ENOMEM) => "the port has too many agents: close some",
        ("umad_send", libc::EINVAL) => {
            "on RoCE, the address needs a global route between GIDs of the same type"
        }
        ("umad_send", libc::EIO) => "check that the port is up",
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use rdma_types::ErrorKind;

    use super::*;

    #[test]
    fn usual_causes_have_a_remedy() {
        for (call, errno, remedy) in [
            ("umad_open_port", libc::EPERM, "run as root"),
            ("umad_open_port", libc::EACCES, "run as root"),
            ("umad_open_port", libc::EOPNOTSUPP, "load the kernel module"),
            ("umad_open_port", libc::ENOENT, "load the kernel module"),
            ("umad_open_port", libc::EINVAL, "no management device"),
            ("umad_get_ca", libc::EIO, "sysfs"),
            ("umad_register2", libc::EINVAL, "already serves"),
            ("umad_register2", libc::ENOMEM, "too many agents"),
            ("umad_send", libc::EINVAL, "global route"),
            ("umad_send", libc::EIO, "the port is up"),
        ] {
            let error = call_failed(call, Errno(errno), "");
            let help = error.help().expect("a remedy");
            assert!(help.contains(remedy), "{call} {errno}: {help}");
        }
        assert_eq!(
            call_failed("umad_send", Errno(libc::EBADF), "").help(),
            None
        );
    }

    #[test]
    fn failed_call_has_kind_and_help() {
        let error = call_failed("umad_open_port", Errno(libc::ENODEV), "mlx4_0 port 1");
        assert_eq!(error.kind(), ErrorKind::NotFound);
        assert_eq!(
            error.to_string(),
            "umad_open_port: mlx4_0 port 1: No such device (ENODEV); help: `ribinfo devices` lists \
             the available ports"
        );
    }
}
