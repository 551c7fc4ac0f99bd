//! The version of RoCE that rdma_cm uses where a program does not choose: a setting of each port in
//! configfs.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use super::table::GidType;
use crate::device::Context;
use crate::errno::Errno;
use crate::error::{Error, Result};
use crate::kind::ErrorKind;

const CONFIGFS: &str = "/sys/kernel/config/rdma_cm";
const READ: &str = "read default_roce_mode";
const WRITE: &str = "write default_roce_mode";

/// The kernel's settings of RoCE connections, in configfs.
///
/// A device's directory is made when it is needed, and removed again if this made it; the setting
/// stays.
///
/// # Example
/// ```no_run
/// use ibverbs::gid::{GidType, RoceConfig};
/// let config = RoceConfig::system();
/// println!("{}", config.default_mode("mlx5_0", 1)?);
/// config.set_default_mode("mlx5_0", 1, GidType::ROCE_V2)?; // needs the rights of root
///
/// # Ok::<(), ibverbs::Error>(())
/// ```
///
/// # References
/// [configfs-rdma_cm](https://www.kernel.org/doc/Documentation/ABI/testing/configfs-rdma_cm), cma_roce_mode(8)
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RoceConfig {
    root: PathBuf,
}

impl Default for RoceConfig {
    fn default() -> Self {
        Self::system()
    }
}

impl RoceConfig {
    /// The running kernel's, `/sys/kernel/config/rdma_cm`.
    pub fn system() -> Self {
        Self::at(CONFIGFS)
    }

    /// The same tree elsewhere, where configfs is mounted at another place.
    pub fn at(root: impl Into<PathBuf>) -> Self {
        Self { root: root.into() }
    }

    /// The version of RoCE that connections of this port use by default: [`GidType::ROCE_V1`] or
    /// [`GidType::ROCE_V2`].
    ///
    /// On a port that is not RoCE the kernel answers RoCE v1, which has no meaning there.
    ///
    /// # Errors
    /// [`ErrorKind::Unsupported`] without configfs or the module rdma_cm, [`ErrorKind::NotFound`]
    /// for a device or port that does not exist, [`ErrorKind::PermissionDenied`] where the
    /// device's directory is to be made by root.
    pub fn default_mode(&self, device: &str, port_num: u8) -> Result<GidType> {
        let directory = self.directory(READ, device)?;
        let file = directory.setting(port_num);
        let text = fs::read_to_string(&file).map_err(|error| failure(READ, &file, &error))?;
        parse(&text).ok_or_else(|| {
            Error::new(
                ErrorKind::Os,
                READ,
                format!("{} says {:?}", file.display(), text.trim()),
            )
        })
    }

    /// Sets the version of RoCE that connections of this port use by default.
    ///
    /// # Errors
    /// As [`default_mode`](Self::default_mode), and [`ErrorKind::InvalidInput`] when the port has
    /// not that version (Soft-RoCE has no RoCE v1) or the value is no version of RoCE.
    pub fn set_default_mode(&self, device: &str, port_num: u8, mode: GidType) -> Result<()> {
        let text = match mode {
            GidType::ROCE_V1 => "IB/RoCE v1",
            GidType::ROCE_V2 => "RoCE v2",
            other => {
                return Err(Error::new(
                    ErrorKind::InvalidInput,
                    WRITE,
                    format!("{other} for port {port_num} of {device}"),
                )
                .with_hint("RoCE v1 or RoCE v2"));
            }
        };
        let directory = self.directory(WRITE, device)?;
        let file = directory.setting(port_num);
        // Neither created nor cut: the file is the kernel's.
        let written = fs::OpenOptions::new()
            .write(true)
            .open(&file)
            .and_then(|mut file| io::Write::write_all(&mut file, text.as_bytes()));
        written.map_err(|error| {
            let refused = error.raw_os_error() == Some(libc::EINVAL);
            let error = failure(WRITE, &file, &error);
            if refused {
                error.with_hint(format!("the driver of {device} has no {mode}"))
            } else {
                error
            }
        })
    }

    /// The directory of a device, made if it is not there.
    fn directory(&self, verb: &'static str, device: &str) -> Result<Directory> {
        if device.is_empty() || device.contains('/') || device.starts_with('.') {
            return Err(Error::new(
                ErrorKind::NotFound,
                verb,
                format!("no RDMA device is called {device:?}"),
            ));
        }
        if !self.root.is_dir() {
            return Err(Error::new(
                ErrorKind::Unsupported,
                verb,
                format!("{} is not there", self.root.display()),
            )
            .with_hint("`mount -t configfs none /sys/kernel/config` and `modprobe rdma_cm`"));
        }
        let path = self.root.join(device);
        match fs::create_dir(&path) {
            Ok(()) => Ok(Directory { path, made: true }),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                Ok(Directory { path, made: false })
            }
            Err(error) => Err(failure(verb, &path, &error)),
        }
    }
}

/// The directory of a device; removed at the end if it was made here.
struct Directory {
    path: PathBuf,
    made: bool,
}

impl Directory {
    fn setting(&self, port_num: u8) -> PathBuf {
        self.path
            .join(format!("ports/{port_num}/default_roce_mode"))
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        if self.made {
            // Somebody else may use it by now; then it stays, which does no harm.
            let _ = fs::remove_dir(&self.path);
        }
    }
}

fn parse(text: &str) -> Option<GidType> {
    match text.trim() {
        "IB/RoCE v1" | "RoCE v1" => Some(GidType::ROCE_V1),
        "RoCE v2" => Some(GidType::ROCE_V2),
        _ => None,
    }
}

fn failure(verb: &'static str, path: &Path, error: &io::Error) -> Error {
    let what = path.display().to_string();
    match error.raw_os_error() {
        Some(libc::EACCES | libc::EPERM) => {
            Error::of_verb(verb, Errno(libc::EACCES), what).with_hint("it takes the rights of root")
        }
        Some(number @ (libc::ENODEV | libc::ENOENT)) => Error::of_verb(verb, Errno(number), what)
            .with_hint("no such device or port; ports count from 1"),
        Some(number) => Error::of_verb(verb, Errno(number), what),
        None => Error::new(ErrorKind::Os, verb, format!("{what}: {error}")),
    }
}

impl Context {
    /// The version of RoCE that rdma_cm uses by default on this port: [`RoceConfig::default_mode`].
    ///
    /// # Errors
    /// As there.
    pub fn default_roce_mode(&self, port_num: u8) -> Result<GidType> {
        RoceConfig::system().default_mode(self.device_name(), port_num)
    }

    /// Sets the version of RoCE that rdma_cm uses by default on this port, for all programs:
    /// [`RoceConfig::set_default_mode`].
    ///
    /// # Errors
    /// As there.
    pub fn set_default_roce_mode(&self, port_num: u8, mode: GidType) -> Result<()> {
        RoceConfig::system().set_default_mode(self.device_name(), port_num, mode)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A made-up configfs, gone at the end.
    struct Tree(PathBuf);

    impl Tree {
        fn new(name: &str) -> (Self, RoceConfig) {
            let root =
                std::env::temp_dir().join(format!("ibverbs-roce-{}-{name}", std::process::id()));
            fs::create_dir_all(root.join("d0/ports/1")).expect("tree");
            fs::write(root.join("d0/ports/1/default_roce_mode"), "IB/RoCE v1\n").expect("file");
            let config = RoceConfig::at(&root);
            (Self(root), config)
        }
    }

    impl Drop for Tree {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn the_kernels_words_are_versions() {
        assert_eq!(parse("IB/RoCE v1\n"), Some(GidType::ROCE_V1));
        assert_eq!(parse("RoCE v2\n"), Some(GidType::ROCE_V2));
        assert_eq!(parse("RoCE v3\n"), None);
    }

    #[test]
    #[cfg_attr(miri, ignore = "files")]
    fn a_setting_is_read_and_written_in_the_kernels_words() {
        let (tree, config) = Tree::new("words");
        assert_eq!(
            config.default_mode("d0", 1).expect("read"),
            GidType::ROCE_V1
        );
        config
            .set_default_mode("d0", 1, GidType::ROCE_V2)
            .expect("write");
        let file = tree.0.join("d0/ports/1/default_roce_mode");
        assert!(
            fs::read_to_string(&file)
                .expect("file")
                .starts_with("RoCE v2")
        );
        fs::write(&file, "RoCE v9\n").expect("file");
        assert!(
            config
                .default_mode("d0", 1)
                .expect_err("unknown")
                .to_string()
                .contains("\"RoCE v9\"")
        );
        assert!(file.exists(), "a directory that was there stays");
    }

    #[test]
    #[cfg_attr(miri, ignore = "files")]
    fn what_is_not_there_is_said() {
        let (tree, config) = Tree::new("absent");
        assert_eq!(
            config.default_mode("d0", 2).expect_err("port").kind(),
            ErrorKind::NotFound
        );
        assert_eq!(
            config.default_mode("d1", 1).expect_err("device").kind(),
            ErrorKind::NotFound
        );
        assert!(
            !tree.0.join("d1").exists(),
            "a directory that was made goes again"
        );
        assert_eq!(
            config.default_mode("../d0", 1).expect_err("path").kind(),
            ErrorKind::NotFound
        );
        let error = config
            .set_default_mode("d0", 1, GidType::IB)
            .expect_err("no version of RoCE");
        assert_eq!(error.kind(), ErrorKind::InvalidInput);
        let nowhere = RoceConfig::at(tree.0.join("nowhere"));
        assert_eq!(
            nowhere
                .default_mode("d0", 1)
                .expect_err("no configfs")
                .kind(),
            ErrorKind::Unsupported
        );
    }
}
