//! `ribinfo check` with an NFS over RDMA mount. The kernel is server and client on one RoCE device.

use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::{fs, io};

use clap::Parser;
use host::peer::PeerFacts;
use host::root::Root;
use perftools::ribinfo::args::Info;
use test_support::lab::{device_names, report_device};
use test_support::process;

/// Expiry time of cache entries: never.
const NEVER: u32 = i32::MAX as u32;

/// Returns the output of `ribinfo check nfs`.
fn check() -> String {
    let info = Info::try_parse_from(["ribinfo", "check", "nfs"]).expect("a valid command line");
    perftools::ribinfo::run(&info).expect("an answer").0
}

/// Runs a command and returns `true` if it succeeds.
fn run(line: &str) -> bool {
    process::output(&mut process::command(line)).success()
}

/// Loads the modules for NFS over RDMA. Returns `true` if the kernel has them.
fn kernel_supports_nfs_over_rdma() -> bool {
    let _ = run("modprobe -a nfsd nfsv4 rpcrdma");
    let file_systems = fs::read_to_string("/proc/filesystems").unwrap_or_default();
    let has_file_system = |name: &str| {
        file_systems
            .lines()
            .any(|line| line.ends_with(&format!("\t{name}")))
    };
    has_file_system("nfsd")
        && has_file_system("nfs4")
        && Path::new("/proc/sys/sunrpc/svc_rdma").exists()
}

/// A directory exported over RDMA, and its mount point. No daemon runs: this test writes the export
/// tables of the kernel itself.
struct NfsExport {
    dir: PathBuf,
    source: String,
}

impl NfsExport {
    fn new(ip: IpAddr) -> io::Result<Self> {
        let dir = PathBuf::from(format!("/run/ribinfo-nfs-{}", std::process::id()));
        let (export, mount) = (dir.join("export"), dir.join("mount"));
        fs::create_dir_all(&export)?;
        fs::create_dir_all(&mount)?;
        let this = Self {
            dir,
            source: format!("{ip}:/"),
        };
        assert!(
            run(&format!("mount -t tmpfs tmpfs {}", export.display())),
            "tmpfs"
        );
        assert!(run("mount -t nfsd nfsd /proc/fs/nfsd"), "nfsd");
        fs::write(export.join("file"), "by RDMA")?;
        // Clients with this address belong to the domain `lab`, which may mount the directory
        // read-write as the root of all exports (fsid 0).
        let path = export.display();
        fs::write(
            "/proc/net/rpc/auth.unix.ip/channel",
            format!("nfsd {ip} {NEVER} lab\n"),
        )?;
        fs::write(
            "/proc/net/rpc/nfsd.export/channel",
            format!("lab {path} {NEVER} 9218 65534 65534 0\n"),
        )?;
        fs::write(
            "/proc/net/rpc/nfsd.fh/channel",
            format!("lab 1 \\x00000000 {NEVER} {path}\n"),
        )?;
        // NFS version 3 would need rpcbind.
        fs::write("/proc/fs/nfsd/versions", "-3\n")?;
        fs::write("/proc/fs/nfsd/threads", "1\n")?;
        fs::write("/proc/fs/nfsd/portlist", "rdma 20049\n")?;
        Ok(this)
    }

    fn mount(&self, ip: IpAddr) {
        let options = format!("vers=4.0,proto=rdma,port=20049,addr={ip},clientaddr={ip}");
        let dir = self.dir.join("mount");
        // `-i` avoids the helper `mount.nfs4`. All options that it would determine are given.
        let line = format!(
            "timeout 120 mount -i -t nfs4 -o {options} {} {}",
            self.source,
            dir.display()
        );
        assert!(run(&line), "{line}");
        // The file is not opened: a new server denies that during its grace period of 90 s.
        assert_eq!(fs::metadata(dir.join("file")).expect("a file").len(), 7);
    }
}

impl Drop for NfsExport {
    fn drop(&mut self) {
        let _ = run(&format!("umount {}", self.dir.join("mount").display()));
        let _ = fs::write("/proc/fs/nfsd/threads", "0\n");
        let _ = run("umount /proc/fs/nfsd");
        let _ = run(&format!("umount {}", self.dir.join("export").display()));
        let _ = fs::remove_dir_all(&self.dir);
    }
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn mount_over_rdma_is_recognized() {
    let names = device_names();
    let ports = PeerFacts::collect(&Root::host()).ports;
    let roce = ports
        .iter()
        .filter(|port| port.is_roce() && names.contains(&port.device));
    let mut tested = 0;
    for port in roce {
        report_device(&port.device);
        tested += 1;
        assert!(check().contains("ok       nfs: not in use"), "{}", check());
        if !kernel_supports_nfs_over_rdma() {
            println!("nothing is mounted: the kernel has no NFS over RDMA");
            continue;
        }
        let ip = *port
            .addresses
            .iter()
            .find(|ip| ip.is_ipv4())
            .expect("an IPv4 address");
        let export = NfsExport::new(ip).expect("a server");
        assert!(
            check().contains("ok       nfs nfsd: serves NFS over RDMA on port 20049"),
            "{}",
            check()
        );
        export.mount(ip);
        let mounted = format!(
            "nfs {}: {ip}:/ is mounted over RDMA, port 20049",
            export.dir.join("mount").display()
        );
        assert!(check().contains(&mounted), "{}", check());
        drop(export);
        assert!(check().contains("ok       nfs: not in use"), "{}", check());
    }
    assert!(tested > 0, "no RoCE device");
}
