//! What a connection runs over.

use std::fmt;
use std::net::SocketAddr;

use ibverbs::{
    Context, Device, DuplexTransport, Error, ErrorKind, Qpn, QueuePair, Result,
    device::TransportType,
};

use crate::params::PrivateDataLimits;

/// The device that the connection manager chose, and the two addresses.
#[derive(Clone, Debug)]
pub(crate) struct Path {
    pub(crate) device: String,
    pub(crate) transport: TransportType,
    /// Whether the addresses are IP addresses, rather than GIDs written as such.
    pub(crate) is_ip: bool,
    pub(crate) port_num: u8,
    pub(crate) local: SocketAddr,
    pub(crate) peer: SocketAddr,
}

impl Path {
    pub(crate) fn open(&self) -> Result<Context> {
        Device::by_name(&self.device)?.open()
    }

    /// Whether the kernel moves the queue pair's state by itself.
    pub(crate) fn is_iwarp(&self) -> bool {
        self.transport == TransportType::IWARP
    }

    pub(crate) fn private_data_limits(&self) -> PrivateDataLimits {
        if self.is_ip {
            PrivateDataLimits::new(self.transport)
        } else {
            PrivateDataLimits::AF_IB
        }
    }

    /// Refuses a queue pair of another device.
    pub(crate) fn check<T: DuplexTransport>(
        &self,
        verb: &'static str,
        qp: &QueuePair<T>,
    ) -> Result<()> {
        let its = qp.pd().context().device_name();
        if its == self.device {
            return Ok(());
        }
        Err(Error::new(
            ErrorKind::Mismatch,
            verb,
            format!("{self}: with a queue pair of {its}"),
        )
        .with_hint(format!(
            "make the queue pair on {}, the device that has the address",
            self.device
        )))
    }

    /// Fails on iWARP, where the kernel changes the state of the queue pair itself.
    pub(crate) fn check_external<T: DuplexTransport>(
        &self,
        verb: &'static str,
        qp: &QueuePair<T>,
    ) -> Result<()> {
        self.check(verb, qp)?;
        if !self.is_iwarp() {
            return Ok(());
        }
        let what = format!("{self}: on iWARP the kernel changes the state of the queue pair");
        Err(Error::new(ErrorKind::Unsupported, verb, what)
            .with_hint("give the queue pair to the connection with `with_qp`"))
    }

    /// Fails on iWARP, which has no datagrams.
    pub(crate) fn check_datagram(&self, verb: &'static str) -> Result<()> {
        if !self.is_iwarp() {
            return Ok(());
        }
        let what = format!("{self}: iWARP has no datagrams");
        Err(Error::new(ErrorKind::Unsupported, verb, what)
            .with_hint("use connections on iWARP devices"))
    }

    /// Refuses another queue pair than the one that was given first: `qp_mut` lets a caller put
    /// another in its place.
    pub(crate) fn check_same<T: DuplexTransport>(
        &self,
        verb: &'static str,
        qp: &QueuePair<T>,
        first: Qpn,
    ) -> Result<()> {
        self.check(verb, qp)?;
        if qp.qp_num() == first {
            return Ok(());
        }
        let what = format!("{self}: queue pair {} in the place of {first}", qp.qp_num());
        Err(Error::new(ErrorKind::Mismatch, verb, what)
            .with_hint("the queue pair was replaced after `with_qp`"))
    }
}

impl fmt::Display for Path {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} from {} over {}",
            self.peer,
            self.local.ip(),
            self.device
        )
    }
}

/// What a type with a `path` tells of it: the device and the addresses, the first and the local one
/// in the words given.
macro_rules! path_accessors {
    ($type:ty, $device:literal, $local:literal) => {
        impl $type {
            #[doc = $device]
            pub fn device_name(&self) -> &str {
                &self.path.device
            }

            /// The port of the device, from 1.
            pub fn port_num(&self) -> u8 {
                self.path.port_num
            }

            /// The transport of the device.
            pub fn transport(&self) -> ibverbs::device::TransportType {
                self.path.transport
            }

            #[doc = $local]
            pub fn local_addr(&self) -> std::net::SocketAddr {
                self.path.local
            }

            /// The peer's address.
            pub fn peer_addr(&self) -> std::net::SocketAddr {
                self.path.peer
            }
        }
    };
}

pub(crate) use path_accessors;
