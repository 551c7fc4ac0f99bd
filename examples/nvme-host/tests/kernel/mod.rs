//! The kernel's target and host, configured with the files that `nvmetcli` and `nvme` use.

use std::fs::{self, File, OpenOptions};
use std::io::{Read, Write};
use std::net::SocketAddr;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use nvme_host::controller::Subsystem;
use test_support::process;

const NVMET: &str = "/sys/kernel/config/nvmet";
/// Time limit for a block device to appear.
const TIMEOUT: Duration = Duration::from_secs(20);

/// Writes a setting of the kernel.
fn set(path: impl AsRef<Path>, value: &str) {
    let path = path.as_ref();
    fs::write(path, value).unwrap_or_else(|error| panic!("{}: {value}: {error}", path.display()));
}

/// Loads the modules of the target and of the host. Returns `false` if the kernel has none.
///
/// # Panics
/// Panics if they are missing in a virtual machine of the lab, whose kernel has them.
pub(crate) fn has_nvme() -> bool {
    let loaded = process::output(&mut process::command("modprobe -a nvmet-rdma nvme-rdma"));
    let backend = std::env::var("RDMA_LAB_BACKEND").unwrap_or_default();
    assert!(
        loaded.success() || !backend.starts_with("vm-"),
        "{loaded:?}"
    );
    loaded.success()
}

/// A subsystem of the kernel's target with one namespace, a file in memory, on a port for one
/// address. Dropping it removes both.
pub(crate) struct Target {
    address: SocketAddr,
    nqn: String,
    file: PathBuf,
    subsystem: PathBuf,
    port: PathBuf,
}

impl Target {
    pub(crate) fn new(address: SocketAddr, mib: u64) -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(1);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let nqn = format!("nqn.2014-08.org.example:{}-{number}", std::process::id());
        let file = PathBuf::from(format!(
            "/dev/shm/nvme-host-{}-{number}",
            std::process::id()
        ));
        File::create(&file)
            .and_then(|file| file.set_len(mib << 20))
            .expect("a file in memory");
        let subsystem = Path::new(NVMET).join("subsystems").join(&nqn);
        let namespace = subsystem.join("namespaces/1");
        fs::create_dir(&subsystem).expect("a subsystem");
        set(subsystem.join("attr_allow_any_host"), "1");
        fs::create_dir(&namespace).expect("a namespace");
        set(
            namespace.join("device_path"),
            file.to_str().expect("a path"),
        );
        set(namespace.join("buffered_io"), "1");
        set(namespace.join("enable"), "1");
        let port = Path::new(NVMET).join("ports").join(number.to_string());
        fs::create_dir(&port).expect("a port");
        for (name, value) in [
            ("addr_trtype", "rdma".to_owned()),
            (
                "addr_adrfam",
                if address.is_ipv4() { "ipv4" } else { "ipv6" }.to_owned(),
            ),
            ("addr_traddr", address.ip().to_string()),
            ("addr_trsvcid", address.port().to_string()),
        ] {
            set(port.join(name), &value);
        }
        let target = Self {
            address,
            nqn,
            file,
            subsystem,
            port,
        };
        target.start();
        target
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    pub(crate) fn nqn(&self) -> &str {
        &self.nqn
    }

    pub(crate) fn subsystem(&self) -> Subsystem {
        Subsystem {
            target: self.address,
            nqn: self.nqn.clone(),
            host_id: "0d1f3a52-8f3e-4b6e-9d6c-0f3c3b1f6a11".into(),
        }
    }

    /// Changes the name that hosts are started with.
    pub(crate) fn set_nqn(&mut self, nqn: &str) {
        nqn.clone_into(&mut self.nqn);
    }

    fn link(&self) -> PathBuf {
        self.port
            .join("subsystems")
            .join(self.subsystem.file_name().expect("a name"))
    }

    /// Makes the subsystem available on the port.
    pub(crate) fn start(&self) {
        symlink(&self.subsystem, self.link()).expect("the subsystem on the port");
    }

    /// Closes the port. The kernel ends all connections and destroys their controllers.
    pub(crate) fn stop(&self) {
        fs::remove_file(self.link()).expect("the subsystem on the port");
    }
}

impl Drop for Target {
    fn drop(&mut self) {
        let _ = fs::remove_file(self.link());
        let _ = fs::remove_dir(&self.port);
        let _ = fs::remove_dir(self.subsystem.join("namespaces/1"));
        let _ = fs::remove_dir(&self.subsystem);
        let _ = fs::remove_file(&self.file);
    }
}

/// A connection of the kernel's host. Dropping it disconnects.
pub(crate) struct KernelHost {
    controller: PathBuf,
    block_device: String,
}

impl KernelHost {
    pub(crate) fn connect(target: &Target) -> Self {
        let (ip, port) = (target.address.ip(), target.address.port());
        let options = format!(
            "transport=rdma,traddr={ip},trsvcid={port},nqn={},nr_io_queues=2,queue_size=33",
            target.nqn
        );
        // The kernel answers in the same open file.
        let mut file = OpenOptions::new()
            .read(true)
            .write(true)
            .open("/dev/nvme-fabrics")
            .expect("nvme-fabrics");
        file.write_all(options.as_bytes())
            .unwrap_or_else(|error| panic!("{options}: {error}"));
        let mut answer = String::new();
        file.read_to_string(&mut answer).expect("an answer");
        let instance = answer
            .split(',')
            .find_map(|field| field.strip_prefix("instance="));
        let instance = instance.unwrap_or_else(|| panic!("no instance: {answer}"));
        let controller = PathBuf::from(format!("/sys/class/nvme/nvme{instance}"));
        let mut block_device = None;
        process::wait_until(TIMEOUT, || {
            block_device = block_device_of(&controller);
            block_device.is_some()
        });
        let block_device = block_device.expect("a block device");
        Self {
            controller,
            block_device,
        }
    }

    pub(crate) fn block_device(&self) -> &str {
        &self.block_device
    }

    /// Measures random requests of 4 KiB, `read` or `write`, without the page cache: two jobs with
    /// 32 requests in flight each. Returns the requests per second and the mean latency in
    /// microseconds.
    pub(crate) fn measure(&self, kind: &str, seconds: &str) -> (f64, f64) {
        let output = process::run_line(&format!(
            "fio --name=beside --filename={} --rw=rand{kind} --bs=4k --direct=1 --thread \
             --ioengine=libaio --iodepth=32 --numjobs=2 --time_based --runtime={seconds} \
             --group_reporting --output-format=terse --terse-version=3",
            self.block_device
        ));
        let line = output.lines().find(|line| line.starts_with("3;"));
        let fields: Vec<&str> = line.expect("a terse line").split(';').collect();
        // Of the fields of reads and of writes, IOPS is the third and the mean latency the 35th.
        let first = if kind == "read" { 5 } else { 46 };
        let field = |index: usize| fields[first + index].parse().expect("a number");
        (field(2), field(34))
    }
}

/// Returns the block device of a controller's namespace. With multipath, the controller has a
/// hidden path `nvme0c1n1` of the device `nvme0n1`.
fn block_device_of(controller: &Path) -> Option<String> {
    let entries = fs::read_dir(controller).ok()?.flatten();
    let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
    let name = names
        .into_iter()
        .find(|name| name.starts_with("nvme") && name[4..].contains('n'))?;
    let (subsystem, namespace) = name[4..].split_once('n')?;
    let subsystem = subsystem.split('c').next()?;
    let device = format!("/dev/nvme{subsystem}n{namespace}");
    Path::new(&device).exists().then_some(device)
}

impl Drop for KernelHost {
    fn drop(&mut self) {
        let _ = fs::write(self.controller.join("delete_controller"), "1");
    }
}
