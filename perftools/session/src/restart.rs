//! Restarts of servers whose devices are being removed.
//!
//! `rdma link delete` waits until every process has closed a device of Soft-RoCE or Soft-iWARP,
//! because these drivers cannot revoke open ones. librdmacm keeps each device that it has used open
//! until its process ends, and offers no call that closes it. A server therefore runs its program
//! again in the same process when such a device is removed, which closes all its files.

use std::env;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use base::error::Error;
use base::log;
use nix::sys::stat::{major, minor};

/// Returns `true` if this process has a verbs device open that the kernel is removing.
///
/// The kernel removes the device's files before it waits. It sends no event to its users.
pub fn holds_removed_device() -> bool {
    let Ok(files) = fs::read_dir("/proc/self/fd") else {
        return false;
    };
    files.flatten().any(|file| is_removed_device(&file.path()))
}

/// Returns `true` if a link in `/proc/self/fd` leads to a verbs device that is being removed.
fn is_removed_device(link: &Path) -> bool {
    let Ok(target) = fs::read_link(link) else {
        return false;
    };
    let name = target.file_name().unwrap_or_default().to_string_lossy();
    if !name.starts_with("uverbs") {
        return false;
    }
    // A container can have device files that are never deleted.
    name.ends_with(" (deleted)")
        || fs::metadata(link).is_ok_and(|file| {
            let device = format!("{}:{}", major(file.rdev()), minor(file.rdev()));
            !Path::new("/sys/dev/char").join(device).exists()
        })
}

/// Runs this program again with the same arguments and process ID, and with this standard input.
/// Returns only if that fails.
pub fn restart(stdin: Stdio) -> Error {
    log::flush();
    // The program may have been deleted or replaced. The path keeps the name of the process.
    let program = env::current_exe().ok().filter(|path| path.exists());
    let program = program.unwrap_or_else(|| PathBuf::from("/proc/self/exe"));
    let mut args = env::args_os();
    let name = args.next().unwrap_or_else(|| program.clone().into());
    let failure = Command::new(program)
        .arg0(name)
        .args(args)
        .stdin(stdin)
        .exec();
    Error::system("cannot restart to close a removed device", &failure)
        .with_help("stop this server; until then the device is not removed")
}
