//! Settings that a program inherits from its parent, and that tests and their children depend on.
//!
//! `nohup` and the `&` of a shell ignore signals that tests send, a service manager may allow few
//! open files, and help is as wide as `COLUMNS`.

#![allow(unsafe_code, reason = "system calls")]

use std::{mem, ptr};

/// Open files that tests may use, if the hard limit is not lower.
const OPEN_FILES: libc::rlim_t = 4096;

/// The last signal that is not a real-time signal.
const LAST_SIGNAL: libc::c_int = libc::SIGSYS;

/// The loader calls this before `main`.
#[used]
#[unsafe(link_section = ".init_array")]
static BEFORE_MAIN: extern "C" fn() = set;

extern "C" fn set() {
    // SAFETY: the program has one thread, no handler is installed, all zeros are a value of each
    // structure, and the pointers are those of local variables.
    unsafe {
        for signal in 1..=LAST_SIGNAL {
            libc::signal(signal, libc::SIG_DFL);
        }
        let none: libc::sigset_t = mem::zeroed();
        libc::sigprocmask(libc::SIG_SETMASK, &raw const none, ptr::null_mut());
        libc::umask(0o022);
        libc::unsetenv(c"COLUMNS".as_ptr());
        let mut files: libc::rlimit = mem::zeroed();
        libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut files);
        files.rlim_cur = files.rlim_cur.max(files.rlim_max.min(OPEN_FILES));
        libc::setrlimit(libc::RLIMIT_NOFILE, &raw const files);
    }
}

#[cfg(test)]
mod tests {
    use crate::process::{command, run};
    use std::{env, fs};

    /// Set in the process that the test starts.
    const CHILD: &str = "TEST_SUPPORT_STARTUP";

    #[test]
    fn settings_of_the_parent_are_replaced() {
        if env::var_os(CHILD).is_some() {
            let text =
                |file| fs::read_to_string(format!("/proc/thread-self/{file}")).expect("procfs");
            print!("{}{}", text("status"), text("limits"));
            return;
        }
        let mut child = command("env --ignore-signal=HUP,CHLD --block-signal=TERM sh -c");
        child
            .arg("umask 077; ulimit -Sn 64; exec \"$0\" --exact --nocapture \"$1\"")
            .arg(env::current_exe().expect("path of this program"))
            .arg("startup::tests::settings_of_the_parent_are_replaced")
            .env(CHILD, "1");
        let output = run(&mut child);
        assert!(output.contains("SigBlk:\t0000000000000000\n"), "{output}");
        // The runtime of Rust ignores SIGPIPE, but not in children.
        let ignored = output.lines().find(|line| line.starts_with("SigIgn:"));
        let is_default = |line: &str| line.ends_with("0001000");
        assert!(ignored.is_some_and(is_default), "{output}");
        assert!(output.contains("Umask:\t0022\n"), "{output}");
        assert!(
            !output.contains("Max open files            64 "),
            "{output}"
        );
    }
}
