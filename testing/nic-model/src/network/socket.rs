//! The network to other processes of the same user: one Unix stream socket for each direction.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::io::{self, ErrorKind, Read, Write};
use std::ops::Range;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};

use zerocopy::{FromBytes, IntoBytes};

use crate::network::packet::{Header, Packet};

/// Bytes that are read at once.
const CHUNK: usize = 256 * 1024;

/// The sockets of a process.
pub(crate) struct Sockets {
    device: String,
    listener: UnixListener,
    incoming: Vec<Incoming>,
    outgoing: HashMap<u32, Outgoing>,
    /// Number of bits of a queue pair number below those of its process.
    qpn_bits: u32,
    /// Numbers that processes can have.
    nodes: Range<u32>,
    /// Processes that have ended.
    ended: Vec<u32>,
    /// Room for what is read at once.
    chunk: Vec<u8>,
}

struct Incoming {
    stream: UnixStream,
    bytes: Vec<u8>,
    /// The stream is that of a process. Others carry one packet to a service.
    is_process: bool,
    /// Number of the process, after its first packet.
    node: Option<u32>,
}

struct Outgoing {
    stream: UnixStream,
    bytes: Vec<u8>,
}

/// Returns the address of a process, in the abstract name space.
fn address(device: &str, node: u32) -> io::Result<SocketAddr> {
    let user = crate::syscall::user();
    SocketAddr::from_abstract_name(format!("nic-model-{user}-{device}-{node}"))
}

/// Returns the bytes of a packet on a stream.
pub(super) fn frame(packet: &Packet) -> Vec<u8> {
    let mut bytes = (packet.payload.len() as u64).to_ne_bytes().to_vec();
    bytes.extend_from_slice(packet.header.as_bytes());
    bytes.extend_from_slice(&packet.payload);
    bytes
}

impl Sockets {
    /// Takes the first free number and returns it.
    pub(crate) fn open(device: &str, largest_qpn: u32, qpn_bits: u32) -> io::Result<(u32, Self)> {
        // The last number is not used: the largest queue pair number is that of multicast.
        let nodes = 1..largest_qpn >> qpn_bits;
        for node in nodes.clone() {
            match UnixListener::bind_addr(&address(device, node)?) {
                Ok(listener) => {
                    listener.set_nonblocking(true)?;
                    let sockets = Self {
                        device: device.to_owned(),
                        listener,
                        incoming: Vec::new(),
                        outgoing: HashMap::new(),
                        qpn_bits,
                        nodes,
                        ended: Vec::new(),
                        chunk: vec![0; CHUNK],
                    };
                    return Ok((node, sockets));
                }
                Err(error) if error.kind() == ErrorKind::AddrInUse => {}
                Err(error) => return Err(error),
            }
        }
        Err(ErrorKind::AddrNotAvailable.into())
    }

    /// Sends a packet to another process. It is lost if that process does not exist.
    pub(crate) fn send(&mut self, node: u32, packet: &Packet) {
        if !self.append(node, &frame(packet)) {
            self.ended.push(node);
        }
        self.flush();
    }

    /// Sends a packet to all processes except for this one.
    pub(crate) fn send_to_all(&mut self, own: u32, packet: &Packet) {
        let bytes = frame(packet);
        for node in self.nodes.clone().filter(|node| *node != own) {
            self.append(node, &bytes);
        }
        self.flush();
    }

    /// Adds bytes to those for a process. Returns `false` if it does not exist.
    fn append(&mut self, node: u32, bytes: &[u8]) -> bool {
        let peer = match self.outgoing.entry(node) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(new) => match Outgoing::connect(&self.device, node) {
                Ok(peer) => new.insert(peer),
                Err(_) => return false,
            },
        };
        peer.bytes.extend_from_slice(bytes);
        true
    }

    /// Writes what the sockets accept. A process that has ended loses its packets.
    fn flush(&mut self) {
        self.outgoing.retain(|_, peer| {
            while !peer.bytes.is_empty() {
                match peer.stream.write(&peer.bytes) {
                    Ok(count) => drop(peer.bytes.drain(..count)),
                    Err(error) => return error.kind() == ErrorKind::WouldBlock,
                }
            }
            true
        });
    }

    /// Returns the packets that have arrived. `services` are new streams, with one packet each.
    pub(crate) fn receive(&mut self, services: Vec<UnixStream>) -> Vec<Packet> {
        self.flush();
        while let Ok((stream, _)) = self.listener.accept() {
            if stream.set_nonblocking(true).is_ok() {
                self.incoming.push(Incoming::new(stream, true));
            }
        }
        let services = services.into_iter();
        self.incoming
            .extend(services.map(|stream| Incoming::new(stream, false)));
        let mut packets = Vec::new();
        self.incoming.retain_mut(|peer| {
            let open = peer.fill(&mut self.chunk);
            while let Some(packet) = peer.next() {
                peer.node = Some(packet.header.source >> self.qpn_bits);
                packets.push(packet);
            }
            if !open && peer.is_process {
                self.ended.extend(peer.node);
            }
            open
        });
        for node in &self.ended {
            self.outgoing.remove(node);
        }
        packets
    }

    /// Returns the processes that have ended since the last call.
    pub(crate) fn take_ended(&mut self) -> Vec<u32> {
        std::mem::take(&mut self.ended)
    }

    /// Returns the number of sockets.
    pub(crate) fn count(&self) -> usize {
        1 + self.incoming.len() + self.outgoing.len()
    }
}

impl Outgoing {
    fn connect(device: &str, node: u32) -> io::Result<Self> {
        let stream = UnixStream::connect_addr(&address(device, node)?)?;
        stream.set_nonblocking(true)?;
        Ok(Self {
            stream,
            bytes: Vec::new(),
        })
    }
}

impl Incoming {
    fn new(stream: UnixStream, is_process: bool) -> Self {
        Self {
            stream,
            bytes: Vec::new(),
            is_process,
            node: None,
        }
    }

    /// Reads what has arrived. Returns `false` at the end of the stream.
    fn fill(&mut self, chunk: &mut [u8]) -> bool {
        match self.stream.read(chunk) {
            Ok(count) => {
                self.bytes.extend_from_slice(&chunk[..count]);
                count > 0
            }
            Err(error) => error.kind() == ErrorKind::WouldBlock,
        }
    }

    /// Removes a whole packet from the front.
    fn next(&mut self) -> Option<Packet> {
        let (length, rest) = self.bytes.split_first_chunk::<8>()?;
        let length = usize::try_from(u64::from_ne_bytes(*length)).ok()?;
        let (header, rest) = Header::read_from_prefix(rest).ok()?;
        let payload = rest.get(..length)?.to_vec();
        self.bytes.drain(..8 + size_of::<Header>() + length);
        Some(Packet { header, payload })
    }
}
