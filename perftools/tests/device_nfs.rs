//! `ribinfo check` with an NFS over RDMA mount. The kernel is server and client on one RoCE device.

use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::{fs, io};

use clap::Parser;
use perftools::ribinfo::args::Info;
use perftools::ribinfo::collect::peer::PeerFacts;
use perftools::ribinfo::collect::root::Root;

/// Expiry time of cache entries: never.
const NEVER: u32 = i32::MAX as u32;

/// Returns the output of `ribinfo check nfs`.
fn check() -> String {
    let info = Info::try_parse_from(["ribinfo", "check", "nfs"]).expect("a sound command line");
    perftools::ribinfo::run(&info).expect("an answer").0
}

/// Runs a command and returns `true` if it succeeds.
fn run(line: &str) -> bool {
    let mut words = line.split_whitespace();
    let program = words.next().expect("a program");
    Command::new(program)
        .args(words)
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|status| status.success())
}

/// Loads the modules for NFS over RDMA. Returns `true` if the kernel has them.
fn kernel_has_it() -> bool {
    let _ = run("modprobe -a nfsd nfsv4 rpcrdma");
    let systems = fs::read_to_string("/proc/filesystems").unwrap_or_default();
    let has = |name: &str| {
        systems
            .lines()
            .any(|line| line.ends_with(&format!("\t{name}")))
    };
    has("nfsd") && has("nfs4") && Path::new("/proc/sys/sunrpc/svc_rdma").exists()
}

/// A directory exported over RDMA, and its mount point. No daemon runs: this test writes the export
/// tables of the kernel itself.
struct Shared {
    place: PathBuf,
    source: String,
}

impl Shared {
    fn by(ip: IpAddr) -> io::Result<Self> {
        let place = PathBuf::from(format!("/run/ribinfo-nfs-{}", std::process::id()));
        let (export, mount) = (place.join("export"), place.join("mount"));
        fs::create_dir_all(&export)?;
        fs::create_dir_all(&mount)?;
        let shared = Self {
            place,
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
        Ok(shared)
    }

    fn mount(&self, ip: IpAddr) {
        let options = format!("vers=4.0,proto=rdma,port=20049,addr={ip},clientaddr={ip}");
        let place = self.place.join("mount");
        // `-i` avoids the helper `mount.nfs4`. All options that it would determine are given.
        let line = format!(
            "timeout 120 mount -i -t nfs4 -o {options} {} {}",
            self.source,
            place.display()
        );
        assert!(run(&line), "{line}");
        // The file is not opened: a new server denies that during its grace period of 90 s.
        assert_eq!(fs::metadata(place.join("file")).expect("a file").len(), 7);
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        let _ = run(&format!("umount {}", self.place.join("mount").display()));
        let _ = fs::write("/proc/fs/nfsd/threads", "0\n");
        let _ = run("umount /proc/fs/nfsd");
        let _ = run(&format!("umount {}", self.place.join("export").display()));
        let _ = fs::remove_dir_all(&self.place);
    }
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn mount_over_rdma_is_recognized() {
    let names = std::env::var("RDMA_LAB_DEVICES")
        .expect("RDMA_LAB_DEVICES names the devices: run by ci/lab");
    let ports = PeerFacts::of_this_host(&Root::host()).ports;
    let roce = ports
        .iter()
        .filter(|port| port.is_roce() && names.split_whitespace().any(|name| name == port.device));
    let mut seen = 0;
    for port in roce {
        println!("device: {}", port.device);
        seen += 1;
        assert!(check().contains("ok       nfs: not in use"), "{}", check());
        if !kernel_has_it() {
            println!("this kernel has no NFS over RDMA: nothing is mounted");
            continue;
        }
        let ip = *port
            .addresses
            .iter()
            .find(|ip| ip.is_ipv4())
            .expect("an IPv4 address");
        let shared = Shared::by(ip).expect("a server");
        assert!(
            check().contains("ok       nfs nfsd: it serves by RDMA on port 20049"),
            "{}",
            check()
        );
        shared.mount(ip);
        let mounted = format!(
            "nfs {}: {ip}:/ is mounted by RDMA, port 20049",
            shared.place.join("mount").display()
        );
        assert!(check().contains(&mounted), "{}", check());
        drop(shared);
        assert!(check().contains("ok       nfs: not in use"), "{}", check());
    }
    assert!(seen > 0, "no RoCE device here");
}
