//! The RDMA objects of this process and the counters of its ports, as the kernel lists them.

use std::fs;

use host::counters::Counters;
use host::resources::{self, Kind, Owner, Resource};
use host::root::Root;
use ibverbs::{CqOptions, Device};

use super::program::{devices, roce_devices};

/// Returns the objects of this process on a device.
fn own(device: &str) -> Vec<Resource> {
    let mut found = resources::query().expect("the objects").objects;
    let this =
        |owner: &Owner| matches!(owner, Owner::Process { pid, .. } if *pid == std::process::id());
    found.retain(|found| found.device == device && this(&found.owner));
    found
}

fn count(found: &[Resource], kind: Kind) -> usize {
    found.iter().filter(|found| found.kind == kind).count()
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn objects_of_this_process_are_listed() {
    const LEN: usize = 12_345;
    let program = fs::read_to_string("/proc/self/comm").expect("a name");
    for name in devices() {
        assert_eq!(own(&name), []);
        // The kernel reports the thread that creates an object, here that of the test.
        let context = Device::by_name(&name)
            .and_then(|device| device.open())
            .expect("the device");
        let pd = context.alloc_pd().expect("a domain");
        let cq = context
            .create_cq(CqOptions::new().depth(77))
            .expect("a queue");
        let before = own(&name);
        let buffer = pd.buf(LEN).expect("a buffer");
        let found = own(&name);
        assert_eq!(count(&found, Kind::Mr), count(&before, Kind::Mr) + 1);
        for (kind, wanted) in [(Kind::Ctx, 1), (Kind::Pd, 1), (Kind::Cq, 1), (Kind::Qp, 0)] {
            assert_eq!(count(&found, kind), wanted, "{kind} in {found:?}");
        }
        assert!(
            found.iter().all(|found| matches!(&found.owner, Owner::Process { name, .. } if name == program.trim_end())),
            "{found:?}"
        );
        assert!(
            found.iter().any(|found| found.bytes >= Some(LEN as u64)),
            "{found:?}"
        );
        assert!(
            found.iter().any(|found| found.entries >= Some(77)),
            "{found:?}"
        );
        let usage = resources::usage(&found);
        assert_eq!(usage.len(), 1);
        assert!(usage[0].registered_bytes >= LEN as u64);
        drop((buffer, cq, pd, context));
        assert_eq!(own(&name), []);
    }
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn counters_are_those_of_sysfs() {
    let counters = resources::counters().expect("the counters");
    for device in roce_devices() {
        let of_port = Counters::of_port(&Root::host(), &device, 1);
        let directory = format!("/sys/class/infiniband/{device}/ports/1/hw_counters");
        let names = fs::read_dir(&directory).expect(&directory);
        for name in names.map(|file| {
            file.expect("a file")
                .file_name()
                .into_string()
                .expect("UTF-8")
        }) {
            if name == "lifespan" {
                continue;
            }
            let sysfs = fs::read_to_string(format!("{directory}/{name}")).expect("a value");
            let sysfs: u64 = sysfs.trim().parse().expect("a number");
            let found = counters
                .iter()
                .find(|found| found.device == device && found.port == 1 && found.name == name);
            // Traffic of the kernel may increase it in the meantime.
            assert!(
                found.is_some_and(|found| found.value <= sysfs),
                "{name} is {sysfs}: {found:?}"
            );
            let value = of_port.get(&format!("hw_counters/{name}"));
            assert!(
                value.is_some_and(|value| value <= sysfs),
                "{name} is {sysfs}: {value:?}"
            );
        }
    }
}
