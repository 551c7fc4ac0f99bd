//! The default RoCE version of rdma_cm: a setting of each port in configfs.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use super::table::GidType;
use crate::device::Context;
use crate::error::{Errno, Error, ErrorKind, Result, call_failed};

const CONFIGFS: &str = "/sys/kernel/config/rdma_cm";
const READ: &str = "read default_roce_mode";
const WRITE: &str = "write default_roce_mode";

/// The kernel's settings for RoCE connections, in configfs.
///
/// To access a setting, configfs needs a directory for the device. The directory is created if it
/// does not exist and is removed afterwards; the setting is kept.
///
/// # Example
/// ```no_run
/// use ibverbs::gid::{GidType, RoceConfig};
/// let config = RoceConfig::system();
/// println!("{}", config.default_mode("mlx5_0", 1)?);
/// config.set_default_mode("mlx5_0", 1, GidType::ROCE_V2)?; // requires root
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
    /// Uses the settings of the running kernel, in `/sys/kernel/config/rdma_cm`.
    pub fn system() -> Self {
        Self::with_root(CONFIGFS)
    }

    /// Uses the settings in another directory, for a configfs that is mounted elsewhere.
    pub fn with_root(root: impl Into<PathBuf>) -> Self {
        Self { root: root.into() }
    }

    /// Returns the RoCE version that connections through this port use by default:
    /// [`GidType::ROCE_V1`] or [`GidType::ROCE_V2`].
    ///
    /// For a port that is not RoCE, the kernel reports RoCE v1, which has no meaning there.
    ///
    /// # Errors
    /// - [`ErrorKind::Unsupported`]: configfs is not mounted or the module rdma_cm is not loaded.
    /// - [`ErrorKind::NotFound`]: the device or port does not exist.
    /// - [`ErrorKind::PermissionDenied`]: the device's directory must be created, which requires
    ///   root.
    pub fn default_mode(&self, device: &str, port_num: u8) -> Result<GidType> {
        let directory = self.directory(READ, device)?;
        let file = directory.setting(port_num);
        let text = fs::read_to_string(&file).map_err(|error| failure(READ, &file, &error))?;
        parse(&text).ok_or_else(|| {
            Error::new(
                ErrorKind::Os,
                READ,
                format!(
                    "{} holds {:?}, which is not a RoCE version",
                    file.display(),
                    text.trim()
                ),
            )
        })
    }

    /// Sets the RoCE version that connections through this port use by default.
    ///
    /// # Errors
    /// Those of [`default_mode`](Self::default_mode), and [`ErrorKind::InvalidInput`] if `mode` is
    /// not a RoCE version or the port does not support it (Soft-RoCE does not support RoCE v1).
    pub fn set_default_mode(&self, device: &str, port_num: u8, mode: GidType) -> Result<()> {
        let text = match mode {
            GidType::ROCE_V1 => "IB/RoCE v1",
            GidType::ROCE_V2 => "RoCE v2",
            other => {
                return Err(Error::new(
                    ErrorKind::InvalidInput,
                    WRITE,
                    format!("{other} is not a RoCE version"),
                )
                .with_help("use RoCE v1 or RoCE v2"));
            }
        };
        let directory = self.directory(WRITE, device)?;
        let file = directory.setting(port_num);
        // The file belongs to the kernel: it must not be created or truncated.
        let written = fs::OpenOptions::new()
            .write(true)
            .open(&file)
            .and_then(|mut file| io::Write::write_all(&mut file, text.as_bytes()));
        written.map_err(|error| {
            if error.raw_os_error() == Some(libc::EINVAL) {
                let what = format!("the driver of {device} does not support {mode}");
                return call_failed(WRITE, Errno(libc::EINVAL), what);
            }
            failure(WRITE, &file, &error)
        })
    }

    /// Opens the directory of a device and creates it if it does not exist.
    fn directory(&self, verb: &'static str, device: &str) -> Result<Directory> {
        if device.is_empty() || device.contains('/') || device.starts_with('.') {
            return Err(Error::new(
                ErrorKind::NotFound,
                verb,
                format!("no RDMA device named `{device}`"),
            ));
        }
        if !self.root.is_dir() {
            return Err(Error::new(
                ErrorKind::Unsupported,
                verb,
                format!("{} does not exist", self.root.display()),
            )
            .with_help("run `mount -t configfs none /sys/kernel/config` and `modprobe rdma_cm`"));
        }
        let path = self.root.join(device);
        match fs::create_dir(&path) {
            Ok(()) => Ok(Directory {
                path,
                created: true,
            }),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(Directory {
                path,
                created: false,
            }),
            Err(error) => Err(failure(verb, &path, &error)),
        }
    }
}

/// The configfs directory of a device. It is removed on drop if it was created here.
struct Directory {
    path: PathBuf,
    created: bool,
}

impl Directory {
    fn setting(&self, port_num: u8) -> PathBuf {
        self.path
            .join(format!("ports/{port_num}/default_roce_mode"))
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        if self.created {
            // Removal fails if another process uses the directory by now. Leaving it is harmless.
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
            call_failed(verb, Errno(libc::EACCES), what).with_help("run as root")
        }
        Some(number @ (libc::ENODEV | libc::ENOENT)) => call_failed(verb, Errno(number), what)
            .with_help("check the names of the device and the port; ports are numbered from 1"),
        Some(number) => call_failed(verb, Errno(number), what),
        None => Error::new(ErrorKind::Os, verb, format!("{what}: {error}")),
    }
}

impl Context {
    /// Returns the RoCE version that rdma_cm uses by default on this port:
    /// [`RoceConfig::default_mode`].
    ///
    /// # Errors
    /// Those of [`RoceConfig::default_mode`].
    pub fn default_roce_mode(&self, port_num: u8) -> Result<GidType> {
        RoceConfig::system().default_mode(self.device_name(), port_num)
    }

    /// Sets the RoCE version that rdma_cm uses by default on this port, for all programs:
    /// [`RoceConfig::set_default_mode`].
    ///
    /// # Errors
    /// Those of [`RoceConfig::set_default_mode`].
    pub fn set_default_roce_mode(&self, port_num: u8, mode: GidType) -> Result<()> {
        RoceConfig::system().set_default_mode(self.device_name(), port_num, mode)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A fake configfs, removed on drop.
    struct Tree(PathBuf);

    impl Tree {
        fn new(name: &str) -> (Self, RoceConfig) {
            let root =
                std::env::temp_dir().join(format!("ibverbs-roce-{}-{name}", std::process::id()));
            fs::create_dir_all(root.join("d0/ports/1")).expect("tree");
            fs::write(root.join("d0/ports/1/default_roce_mode"), "IB/RoCE v1\n").expect("file");
            let config = RoceConfig::with_root(&root);
            (Self(root), config)
        }
    }

    impl Drop for Tree {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn kernel_text_is_parsed() {
        assert_eq!(parse("IB/RoCE v1\n"), Some(GidType::ROCE_V1));
        assert_eq!(parse("RoCE v2\n"), Some(GidType::ROCE_V2));
        assert_eq!(parse("RoCE v3\n"), None);
    }

    #[test]
    #[cfg_attr(miri, ignore = "files")]
    fn setting_is_read_and_written() {
        let (tree, config) = Tree::new("setting");
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
        assert!(file.exists(), "an existing directory is kept");
    }

    #[test]
    #[cfg_attr(miri, ignore = "files")]
    fn missing_device_port_or_configfs_is_an_error() {
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
            "a created directory is removed"
        );
        assert_eq!(
            config.default_mode("../d0", 1).expect_err("path").kind(),
            ErrorKind::NotFound
        );
        let error = config
            .set_default_mode("d0", 1, GidType::IB)
            .expect_err("no version of RoCE");
        assert_eq!(error.kind(), ErrorKind::InvalidInput);
        let missing = RoceConfig::with_root(tree.0.join("nowhere"));
        assert_eq!(
            missing
                .default_mode("d0", 1)
                .expect_err("no configfs")
                .kind(),
            ErrorKind::Unsupported
        );
    }
}
