//! What the peer is: asked over the control port, compared with this end.
//!
//! The conversation is a hello each way (as rperf's), then one frame each way: `"ask_facts"`, `{"facts": …}` or
//! `{"error": {"text": …}}`. `ribinfo serve` answers it.

use std::net::{IpAddr, Ipv6Addr, TcpListener, TcpStream, ToSocketAddrs};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::finding::Finding;
use super::roce;
use crate::control::{frame, hello};
use crate::error::{Error, Kind, Result};
use crate::facts::root::Root;
use crate::facts::verbs::VerbsPort;
use crate::facts::{Facts, device};

/// How long either end waits for the other: a slow host with many devices takes its time to open them.
const PATIENCE: Duration = Duration::from_secs(20);

/// What a host tells another.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PeerFacts {
    /// Its name.
    pub host: String,
    /// Its ports.
    pub ports: Vec<PeerPort>,
}

/// A port of the peer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PeerPort {
    /// The device.
    pub device: String,
    /// From 1.
    pub port: u32,
    /// Whether it is iWARP.
    pub iwarp: bool,
    /// `InfiniBand` or `Ethernet`.
    pub link_layer: String,
    /// Whether it is ready.
    pub active: bool,
    /// What rdma_cm uses on a RoCE port.
    pub roce_mode: Option<String>,
    /// What its GID table has.
    pub kinds: Vec<String>,
    /// The IP addresses in its GID table.
    pub addresses: Vec<IpAddr>,
    /// The subnet prefix of an InfiniBand port.
    pub subnet_prefix: Option<u64>,
    /// The MTU in force, in bytes.
    pub mtu: Option<u32>,
}

/// What is said.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Say {
    AskFacts,
    Facts(Box<PeerFacts>),
    Error { text: String },
}

impl PeerPort {
    /// Whether it speaks RoCE.
    pub fn is_roce(&self) -> bool {
        self.link_layer == "Ethernet" && !self.iwarp
    }

    /// What has to be the same for two ports to reach each other.
    fn technology(&self) -> &'static str {
        technology(&self.link_layer, self.iwarp)
    }
}

fn technology(link_layer: &str, iwarp: bool) -> &'static str {
    match (link_layer, iwarp) {
        ("Ethernet", true) => "iWARP",
        ("Ethernet", false) => "RoCE",
        _ => "InfiniBand",
    }
}

impl PeerFacts {
    /// This host's.
    pub fn here(root: &Root) -> Self {
        let verbs = root.verbs();
        let mut ports = Vec::new();
        for device in device::all(root) {
            for port in &device.ports {
                let roce = roce::is_roce(&device, port);
                let mut kinds: Vec<String> = port.gids.iter().filter_map(|row| row.kind.clone()).collect();
                kinds.sort();
                kinds.dedup();
                ports.push(PeerPort {
                    device: device.name.clone(),
                    port: port.port,
                    iwarp: device.is_iwarp(),
                    link_layer: port.link_layer.clone(),
                    active: port.is_active(),
                    roce_mode: roce.then(|| roce::mode(port).to_owned()),
                    kinds,
                    addresses: if roce {
                        port.gids.iter().filter_map(|row| row.gid.to_ip()).collect()
                    } else {
                        Vec::new()
                    },
                    subnet_prefix: port.subnet_prefix().filter(|_| !port.is_ethernet()),
                    mtu: verbs
                        .device(&device.name)
                        .and_then(|d| d.port(port.port))
                        .and_then(VerbsPort::active_mtu_bytes),
                });
            }
        }
        let host = root.value("/proc/sys/kernel/hostname").unwrap_or_else(|| "?".to_owned());
        Self { host, ports }
    }

    /// Asks a host.
    ///
    /// # Errors
    /// It cannot be reached, or what answers does not know the question.
    pub fn ask(host: &str, port: u16) -> Result<Self> {
        let addresses = (host, port).to_socket_addrs().map_err(|e| Error::system(format!("cannot find {host}"), &e))?;
        let mut failed = Error::new(Kind::System, format!("{host} has no address"));
        for address in addresses {
            match TcpStream::connect_timeout(&address, PATIENCE) {
                Ok(stream) => return ask(stream),
                Err(error) => failed = Error::system(format!("cannot connect to port {port} of {host}"), &error),
            }
        }
        Err(failed)
    }
}

fn patient(stream: &TcpStream) -> Result<()> {
    let set = stream.set_read_timeout(Some(PATIENCE)).and_then(|()| stream.set_write_timeout(Some(PATIENCE)));
    set.map_err(|e| Error::system("cannot set the connection up", &e))
}

fn ask(mut stream: TcpStream) -> Result<PeerFacts> {
    patient(&stream)?;
    hello::write(&mut stream)?;
    match hello::read(&mut stream)? {
        hello::Caller::Rperf(server) => hello::check(&server, "the peer")?,
        _ => return Err(Error::protocol("what listens there is neither ribinfo nor rperf")),
    }
    frame::write(&mut stream, &Say::AskFacts)?;
    match frame::read(&mut stream)? {
        Say::Facts(facts) => Ok(*facts),
        Say::Error { text } => {
            Err(Error::new(Kind::Peer, text.chars().filter(|c| !c.is_control()).take(500).collect::<String>()))
        }
        Say::AskFacts => Err(Error::protocol("the peer asks instead of answering")),
    }
}

/// Answers whoever asks, one after the other, until the process ends.
///
/// # Errors
/// The port is taken.
pub fn serve(root: &Root, address: IpAddr, port: u16) -> Result<()> {
    let listener = TcpListener::bind((address, port)).map_err(|e| {
        Error::system(format!("cannot listen on port {port} (perhaps rperf serves there: --port gives another)"), &e)
    })?;
    eprintln!("ribinfo: answering on port {port}");
    for stream in listener.incoming() {
        let answered = stream.map_err(|e| Error::system("cannot accept", &e)).and_then(|stream| answer(stream, root));
        if let Err(error) = answered {
            eprintln!("ribinfo: {error}");
        }
    }
    Ok(())
}

/// Answers one connection.
fn answer(mut stream: TcpStream, root: &Root) -> Result<()> {
    patient(&stream)?;
    if !matches!(hello::read(&mut stream)?, hello::Caller::Rperf(_)) {
        return Err(Error::protocol("neither ribinfo nor rperf: not answered"));
    }
    hello::write(&mut stream)?;
    let reply = match frame::read(&mut stream) {
        Ok(Say::AskFacts) => Say::Facts(Box::new(PeerFacts::here(root))),
        _ => Say::Error { text: "this is `ribinfo serve`, which only tells facts: start `rperf` for tests".to_owned() },
    };
    frame::write(&mut stream, &reply)
}

/// All addresses, for a server.
pub const ANY: IpAddr = IpAddr::V6(Ipv6Addr::UNSPECIFIED);

pub(super) fn check(facts: &Facts<'_>) -> Vec<Finding> {
    let peer = match &facts.peer {
        None => return Vec::new(),
        Some(Err(error)) => {
            return vec![Finding::fault(format!("it does not tell what it is: {error}")).mend(
                "at the peer: ribinfo serve; or: ssh PEER ribinfo facts > FILE && ribinfo check --peer-facts FILE",
            )];
        }
        Some(Ok(peer)) => peer,
    };
    let mut findings = Vec::new();
    for theirs in peer.ports.iter().filter(|port| !port.active) {
        findings.push(
            Finding::warning(format!("{}/{} is not ACTIVE there", theirs.device, theirs.port))
                .on(&peer.host)
                .mend("at the peer: ribinfo check"),
        );
    }
    let mut common = false;
    for (device, port) in facts.ports().filter(|(_, port)| port.is_active()) {
        let ours = technology(&port.link_layer, device.is_iwarp());
        let mtu = facts.verbs_port(&device.name, port.port).and_then(VerbsPort::active_mtu_bytes);
        for theirs in peer.ports.iter().filter(|theirs| theirs.active && theirs.technology() == ours) {
            common = true;
            let name = format!("{}/{} and {}/{} of {}", device.name, port.port, theirs.device, theirs.port, peer.host);
            if let Some((a, b)) = mtu.zip(theirs.mtu).filter(|(a, b)| a != b && ours != "iWARP") {
                findings.push(
                    Finding::warning(format!(
                        "{name}: RDMA MTU {a} here and {b} there: the smaller one holds, where it is known"
                    ))
                    .on(ours)
                    .mend("ip link set NETDEV mtu 4200 on both"),
                );
            } else if ours == "InfiniBand" && port.subnet_prefix() != theirs.subnet_prefix {
                findings.push(
                    Finding::warning(format!("{name} are in different subnets"))
                        .on(ours)
                        .mend("a cable or switch between them, or a router"),
                );
            } else {
                findings.push(Finding::ok(name).on(ours));
            }
        }
    }
    if !common {
        findings.push(
            Finding::fault("no ACTIVE port there speaks what one here does")
                .on(&peer.host)
                .mend("ribinfo links, here and there"),
        );
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv4Addr;

    #[test]
    fn facts_are_asked_for_and_given() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        let server = std::thread::spawn(move || {
            let (stream, _) = listener.accept().unwrap();
            answer(stream, &Root::host())
        });
        let facts = PeerFacts::ask("127.0.0.1", port).unwrap();
        server.join().unwrap().unwrap();
        assert_eq!(facts, PeerFacts::here(&Root::host()));
    }

    #[test]
    fn nobody_there_is_an_error_that_names_the_port() {
        let port = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap().local_addr().unwrap().port();
        let text = PeerFacts::ask("127.0.0.1", port).unwrap_err().to_string();
        assert!(text.contains(&port.to_string()), "{text}");
    }
}
