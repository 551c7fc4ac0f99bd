//! Prints the RDMA devices of this host with their ports and GIDs.
//!
//! ```toml
//! [dependencies]
//! rdma-verbs = { git = "https://github.com/rdma-rs/rdma-rs" }
//! ```
//!
//! ```text
//! $ list_devices
//! ```

use ibverbs::{Device, GidQuery};

fn main() {
    if let Err(error) = run() {
        eprintln!("error: {error}");
        std::process::exit(1);
    }
}

fn run() -> ibverbs::Result<()> {
    let devices = Device::list()?;
    if devices.is_empty() {
        println!("no RDMA device; for a software device: rdma link add rxe0 type rxe netdev eth0");
    }
    for device in devices {
        let context = device.open()?;
        let attr = context.query_device()?;
        println!(
            "{} ({}, firmware {})",
            device.name(),
            device.transport(),
            attr.fw_ver
        );
        for port_num in 1..=attr.phys_port_cnt {
            let port = context.query_port(port_num)?;
            println!(
                "  port {port_num}: {}, MTU {} of {}, {}",
                port.state, port.active_mtu, port.max_mtu, port.link_layer
            );
            for entry in context.gids(port_num)? {
                println!("    gid[{}] {} {}", entry.index, entry.gid, entry.kind);
            }
            // The GID that the other examples use.
            if let Ok(choice) = context.select_gid(port_num, &GidQuery::default()) {
                println!("    chosen: gid[{}], {}", choice.entry.index, choice.reason);
            }
        }
    }
    Ok(())
}
