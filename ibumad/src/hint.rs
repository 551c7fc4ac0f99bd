//! The usual causes: from a call and its errno to a remedy.

use crate::errno::Errno;

/// What to do, for the causes that people meet.
pub(crate) fn hint_for(call: &str, errno: Errno) -> Option<&'static str> {
    Some(match (call, errno.0) {
        ("umad_open_port", libc::EPERM | libc::EACCES) => {
            "no right to the device node: /dev/infiniband/umad* are root's; run as root or add a udev rule"
        }
        ("umad_open_port", libc::EOPNOTSUPP | libc::ENOENT) => {
            "the kernel has no management devices: `modprobe ib_umad`"
        }
        ("umad_open_port", libc::EINVAL) => {
            "this port has no management device: `modprobe ib_umad`; iWARP ports never have one"
        }
        ("umad_open_port", libc::ENODEV) => "no such port: ribinfo devices lists those there are",
        ("umad_get_ca", libc::EIO) => {
            "sysfs could not be read: is a port without GIDs, its link down?"
        }
        ("umad_register2", libc::EINVAL) => {
            "no such class or version here, or another program serves it with these methods"
        }
        ("umad_register2", libc::ENOMEM) => "too many agents on this port",
        ("umad_send", libc::EINVAL) => {
            "the address cannot be used: on RoCE it needs a GRH with a GID of the port's own kind"
        }
        ("umad_send", libc::EIO) => "the port did not take it: is it down?",
        _ => return None,
    })
}
