//! The server `ribping -S`. It answers pings of both transports on all ports.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::thread::{self, ScopedJoinHandle};
use std::time::{Duration, Instant};

use base::device_id::is_iwarp;
use base::error::{Error, Result};
use base::log::log;
use base::ports;
use base::system::raise_open_files_limit;
use base::threads::spawn_scoped;
use host::netdev::needs_interface;
use ibumad::{Ca, PortAttr};
use ibverbs::{Device, device::TransportType};
use session::restart::holds_removed_device;
use session::server::Ended;

use super::args::{PingArgs, TransportArg};
use super::rping::server::{self, ObservedListener};
use super::stop::{POLL_INTERVAL, StopFlag};
use super::transport_choice::check_devices;
use super::umad::UmadServer;

/// Interval of the checks for removed devices.
const DEVICE_CHECK_INTERVAL: Duration = Duration::from_secs(1);

/// Serves until `stop` is set, or until the process must end to let the kernel remove a device.
///
/// # Errors
/// Returns [`Kind::Device`](base::error::Kind::Device) if there is nothing to serve on, or
/// if serving failed on a port. The reason for each port is logged.
pub(super) fn run(args: &PingArgs, stop: &StopFlag) -> Result<Ended> {
    check_devices()?;
    let datagrams = if args.via == TransportArg::RdmaCm {
        Vec::new()
    } else {
        datagram_servers(args)?
    };
    let connections = if args.via == TransportArg::Umad {
        Ok(Vec::new())
    } else {
        listeners(args)
    };
    raise_open_files_limit();
    if datagrams.is_empty() && matches!(&connections, Err(error) if ports::is_taken(error)) {
        let text = format!("start the server: port {} is taken", args.cm_port);
        return Err(Error::device(text).with_help(
            "another `ribping -S` or `rping -s` runs on this host; stop it, or use --cm-port",
        ));
    }
    let connections = connections.unwrap_or_default();
    if datagrams.is_empty() && connections.is_empty() {
        return Err(Error::device(
            "start the server: no port accepts management datagrams or connections",
        )
        .with_help("load the modules as root: `modprobe -a ib_umad rdma_ucm`"));
    }
    let mut result = Ok(Ended::Stopped);
    thread::scope(|scope| {
        let mut workers: Vec<_> = datagrams
            .iter()
            .map(|server| spawn_scoped(scope, "port", || server.run(stop, args.verbosity())))
            .collect();
        workers.extend(connections.into_iter().map(|listener| {
            spawn_scoped(scope, "port", move || server::run(listener, args, stop))
        }));
        let is_finished = |worker: &Result<ScopedJoinHandle<'_, Result<()>>>| {
            worker.as_ref().map_or(true, ScopedJoinHandle::is_finished)
        };
        let is_removed = wait_for_removal(stop, || workers.iter().all(is_finished));
        for worker in workers {
            match worker.map(ScopedJoinHandle::join) {
                Ok(Ok(Ok(()))) => {}
                Ok(Ok(Err(error))) | Err(error) => {
                    log(format_args!("ribping: {error}"));
                    result = Err(Error::device("answer pings: a port failed"));
                }
                Ok(Err(_)) => result = Err(Error::device("answer pings: a server thread panicked")),
            }
        }
        // The listeners of the device may have failed before.
        if is_removed {
            result = Ok(Ended::DeviceRemoved);
        }
    });
    result
}

/// Waits until `stop` is set or all workers have ended. If a device that this process has open is
/// removed before that, sets `stop` and returns `true`.
fn wait_for_removal(stop: &StopFlag, have_ended: impl Fn() -> bool) -> bool {
    let mut next_check = Instant::now();
    while !stop.is_set() {
        let is_last = have_ended();
        if is_last {
            // The kernel can notify a listener before it removes the files of the device.
            thread::sleep(DEVICE_CHECK_INTERVAL);
        }
        if is_last || Instant::now() >= next_check {
            next_check = Instant::now() + DEVICE_CHECK_INTERVAL;
            if holds_removed_device() {
                stop.set();
                return true;
            }
        }
        if is_last {
            return false;
        }
        thread::sleep(POLL_INTERVAL);
    }
    false
}

/// Creates a datagram server for each port that supports them and is selected by -C and -P.
fn datagram_servers(args: &PingArgs) -> Result<Vec<UmadServer>> {
    let oui = args.oui()?;
    let mut servers = Vec::new();
    for name in Ca::names().unwrap_or_default() {
        // libibumad prints a warning about an iWARP device, which has no partition keys.
        if is_iwarp(&name) || args.ca.as_ref().is_some_and(|selected| *selected != name) {
            continue;
        }
        let ca = match Ca::by_name(&name) {
            Ok(ca) => ca,
            Err(error) => {
                log(format_args!("ribping: {error}"));
                continue;
            }
        };
        for port in ca
            .ports
            .iter()
            .filter(|port| args.port.is_none_or(|number| number == port.port_num))
        {
            match UmadServer::new(&name, port.port_num, oui) {
                Ok(server) => {
                    log(format_args!(
                        "ribping: answering management datagrams on {}",
                        describe(port)
                    ));
                    servers.push(server);
                }
                Err(error) => log(format_args!("ribping: {error}")),
            }
        }
    }
    Ok(servers)
}

fn describe(port: &PortAttr) -> String {
    let name = format!("{} port {}", port.ca_name, port.port_num);
    if port.link_layer.is_infiniband() {
        format!(
            "{name} ({}, Lid {}, Guid {:#018x})",
            port.link_layer, port.base_lid, port.port_guid
        )
    } else {
        format!("{name} ({})", port.link_layer)
    }
}

/// Listens for connections. The selection by -C and -P is checked for each request.
///
/// A listener on the IPv6 wildcard address also accepts IPv4 except on iWARP, and no other listener
/// can use the same port beside it. Hosts with iWARP therefore listen on each address.
fn listeners(args: &PingArgs) -> rdmacm::Result<Vec<ObservedListener>> {
    let bind = |ip: IpAddr| ObservedListener::bind(SocketAddr::new(ip, args.cm_port));
    let mut bound = Vec::new();
    if has_iwarp() {
        for ip in own_addresses() {
            match bind(ip) {
                Ok(listener) => bound.push(listener),
                Err(error) if ports::is_taken(&error) => return Err(error),
                // Binding fails for addresses of interfaces without RDMA.
                Err(_) => {}
            }
        }
    }
    if !bound.is_empty() {
        let addresses: Vec<_> = bound
            .iter()
            .map(|listener| listener.local_addr().ip().to_string())
            .collect();
        log(format_args!(
            "ribping: answering connections on port {} of {}",
            args.cm_port,
            addresses.join(", ")
        ));
        return Ok(bound);
    }
    match bind(Ipv6Addr::UNSPECIFIED.into()).or_else(|_| bind(Ipv4Addr::UNSPECIFIED.into())) {
        Ok(listener) => {
            log(format_args!(
                "ribping: answering connections on port {}",
                args.cm_port
            ));
            Ok(vec![listener])
        }
        Err(error) => {
            log(format_args!(
                "ribping: listen for connections on port {}: {error}",
                args.cm_port
            ));
            Err(error)
        }
    }
}

fn has_iwarp() -> bool {
    Device::list().is_ok_and(|devices| {
        devices
            .iter()
            .any(|device| device.transport() == TransportType::IWARP)
    })
}

/// Returns the addresses of this host, except loopback and link-local ones.
fn own_addresses() -> Vec<IpAddr> {
    let Ok(all) = nix::ifaddrs::getifaddrs() else {
        return Vec::new();
    };
    let mut addresses: Vec<IpAddr> = all
        .filter_map(|entry| entry.address)
        .filter_map(
            |address| match (address.as_sockaddr_in(), address.as_sockaddr_in6()) {
                (Some(v4), _) => Some(IpAddr::V4(v4.ip())),
                (_, Some(v6)) => Some(IpAddr::V6(v6.ip())),
                _ => None,
            },
        )
        .filter(|ip| !ip.is_loopback() && !needs_interface(*ip))
        .collect();
    addresses.sort();
    addresses.dedup();
    addresses
}
