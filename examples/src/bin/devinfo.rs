//! Prints the RDMA devices of this host with their ports and GIDs.

#![forbid(unsafe_code)]

use ibverbs::{Device, Error};

fn main() -> Result<(), Error> {
    for device in Device::list()? {
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
        }
    }
    Ok(())
}
