//! RDMA objects of processes as metrics.

use std::fmt;

use host::resources::{Owner, Usage};

use crate::exposition::Metrics;

/// Largest number of owners whose objects are written, so that a host with many processes does not
/// flood Prometheus. Those with the most registered memory come first.
const MAX_OWNERS: usize = 256;

/// Writes the objects of processes and kernel modules.
pub(super) fn write(usages: &[Usage], metrics: &mut Metrics<'_>) -> fmt::Result {
    let mut usages: Vec<&Usage> = usages.iter().collect();
    usages.sort_by_key(|usage| std::cmp::Reverse(usage.registered_bytes));
    usages.truncate(MAX_OWNERS);
    let owners: Vec<(&Usage, String, String)> = usages
        .into_iter()
        .map(|usage| {
            let (name, pid) = match &usage.owner {
                Owner::Process { pid, name } => (name.clone(), pid.to_string()),
                Owner::Kernel(module) => (module.clone(), "kernel".to_owned()),
                Owner::Ended => (String::new(), "ended".to_owned()),
            };
            (usage, name, pid)
        })
        .collect();
    let objects = owners.iter().flat_map(|(usage, name, pid)| {
        usage.counts.iter().map(move |(kind, count)| {
            let labels = [
                ("device", usage.device.as_str()),
                ("process", name),
                ("pid", pid),
                ("kind", kind.name()),
            ];
            (labels, as_f64(*count))
        })
    });
    metrics.gauges(
        "rdma_process_objects",
        "RDMA objects of a process or a kernel module, by kind.",
        objects,
    )?;
    let registered = owners.iter().map(|(usage, name, pid)| {
        let labels = [
            ("device", usage.device.as_str()),
            ("process", name),
            ("pid", pid),
        ];
        (labels, as_f64(usage.registered_bytes))
    });
    metrics.gauges(
        "rdma_process_registered_bytes",
        "Sum of the lengths of the memory regions of a process.",
        registered,
    )
}

#[allow(clippy::cast_precision_loss, reason = "a metric is a 64-bit float")]
fn as_f64(value: u64) -> f64 {
    value as f64
}
