//! `ribping -S`: answers on all ports at once, both ways.

use std::net::{Ipv6Addr, SocketAddr};
use std::thread;

use ibumad::{Ca, PortAttr};
use rdmacm::Listener;

use super::datagram::{Server, of_umad};
use super::rping::server;
use super::stop::Stop;
use crate::args::ping::{PingArgs, Via};
use crate::error::{Error, Result};

/// Serves until it shall stop.
///
/// # Errors
/// Nothing can be served; why is said for each port.
pub fn run(args: &PingArgs, stop: &Stop) -> Result<()> {
    let datagrams = if args.via == Via::RdmaCm { Vec::new() } else { datagram_servers(args)? };
    let connections = if args.via == Via::Umad { None } else { listener(args) };
    if datagrams.is_empty() && connections.is_none() {
        return Err(Error::device(
            "nothing to answer on: no port takes management datagrams (`modprobe ib_umad`, as root) or connections (`modprobe rdma_ucm`)",
        ));
    }
    let mut outcome = Ok(());
    thread::scope(|scope| {
        let workers: Vec<_> = datagrams.iter().map(|server| scope.spawn(|| server.run(stop, args.level()))).collect();
        if let Some(listener) = &connections {
            outcome = server::run(listener, args, stop);
        }
        for worker in workers {
            match worker.join() {
                Ok(Ok(())) => {}
                Ok(Err(error)) => {
                    eprintln!("ribping: {error}");
                    outcome = Err(Error::device("a port is gone"));
                }
                Err(_) => outcome = Err(Error::device("a server ended unexpectedly")),
            }
        }
    });
    outcome
}

/// A server of datagrams for each port that has them and that -C and -P allow.
fn datagram_servers(args: &PingArgs) -> Result<Vec<Server>> {
    let oui = args.oui()?;
    let mut servers = Vec::new();
    for name in Ca::names().unwrap_or_default() {
        if args.ca.as_ref().is_some_and(|wanted| *wanted != name) {
            continue;
        }
        let ca = match Ca::by_name(&name).map_err(of_umad) {
            Ok(ca) => ca,
            Err(error) => {
                eprintln!("ribping: {error}");
                continue;
            }
        };
        for port in ca.ports.iter().filter(|port| args.port.is_none_or(|number| number == port.port_num)) {
            match Server::new(&name, port.port_num, oui) {
                Ok(server) => {
                    eprintln!("ribping: answering management datagrams at {}", describe(port));
                    servers.push(server);
                }
                Err(error) => eprintln!("ribping: {error}"),
            }
        }
    }
    Ok(servers)
}

fn describe(port: &PortAttr) -> String {
    let place = format!("{} port {}", port.ca_name, port.port_num);
    if port.link_layer.is_infiniband() {
        format!("{place} ({}, Lid {}, Guid {})", port.link_layer, port.base_lid, port.port_guid)
    } else {
        format!("{place} ({})", port.link_layer)
    }
}

/// Listens on all addresses; a device that was named is asked for at each request.
fn listener(args: &PingArgs) -> Option<Listener> {
    let bind = |ip: std::net::IpAddr| Listener::bind(SocketAddr::new(ip, args.cm_port), 64);
    // IPv6 takes IPv4, too, where there is IPv6.
    let bound = bind(Ipv6Addr::UNSPECIFIED.into());
    match bound {
        Ok(listener) => {
            eprintln!("ribping: answering connections at port {}", listener.local_addr().port());
            Some(listener)
        }
        Err(error) => {
            eprintln!("ribping: no connections: {error}");
            None
        }
    }
}
