//! Device and addresses of a connection.

use std::fmt;
use std::net::SocketAddr;

use ibverbs::{
    Context, Device, DuplexTransport, Error, ErrorKind, QueueId, QueuePair, Result,
    device::TransportType,
};

use crate::params::PrivateDataLimits;

/// The device chosen by the connection manager, and the local and the peer's address.
#[derive(Clone, Debug)]
pub(crate) struct Path {
    pub(crate) device: String,
    pub(crate) transport: TransportType,
    /// `true` if the addresses are IP addresses, `false` if they are GIDs in the form of IPv6
    /// addresses.
    pub(crate) is_ip: bool,
    pub(crate) port_num: u8,
    pub(crate) local: SocketAddr,
    pub(crate) peer: SocketAddr,
}

impl Path {
    pub(crate) fn open(&self) -> Result<Context> {
        Device::by_name(&self.device)?.open()
    }

    /// Returns `true` if the kernel changes the state of the queue pair itself.
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

    /// Fails if the queue pair belongs to another device, or if a scope has destroyed it.
    pub(crate) fn check<T: DuplexTransport>(
        &self,
        verb: &'static str,
        qp: &QueuePair<T>,
    ) -> Result<()> {
        let device = qp.pd().context().device_name();
        if device == self.device {
            // The raw handle would say so too, but not which connection.
            return if qp.is_destroyed() {
                let detail = format!("{self}: a scope has destroyed the queue pair");
                Err(Error::new(ErrorKind::Disconnected, verb, detail).with_help("create a new one"))
            } else {
                Ok(())
            };
        }
        Err(Error::new(
            ErrorKind::Mismatch,
            verb,
            format!("{self}: the queue pair belongs to {device}"),
        )
        .with_help(format!(
            "create the queue pair on {}, the device of the local address",
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
        let detail = format!("{self}: on iWARP the kernel changes the state of the queue pair");
        Err(Error::new(ErrorKind::Unsupported, verb, detail)
            .with_help("give the queue pair to the connection with `with_qp`"))
    }

    /// Fails on iWARP, which has no datagrams.
    pub(crate) fn check_datagram(&self, verb: &'static str) -> Result<()> {
        if !self.is_iwarp() {
            return Ok(());
        }
        let detail = format!("{self}: iWARP has no datagrams");
        Err(Error::new(ErrorKind::Unsupported, verb, detail)
            .with_help("use connections on iWARP devices"))
    }

    /// Fails if the caller has replaced the queue pair through `qp_mut`.
    pub(crate) fn check_same<T: DuplexTransport>(
        &self,
        verb: &'static str,
        qp: &QueuePair<T>,
        expected: QueueId,
    ) -> Result<()> {
        self.check(verb, qp)?;
        if qp.id() == expected {
            return Ok(());
        }
        let detail = format!(
            "{self}: queue pair {} is not that of `with_qp`",
            qp.qp_num()
        );
        Err(Error::new(ErrorKind::Mismatch, verb, detail)
            .with_help("do not replace the queue pair after `with_qp`"))
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

/// Implements the getters of a type with a field `path`, or with another one of the type [`Path`].
/// The literals are the documentation of
/// `device_name` and `local_addr`.
macro_rules! path_accessors {
    ($type:ty, $device:literal, $local:literal) => {
        crate::id::path::path_accessors!($type, path, $device, $local);
    };
    ($type:ty, $($path:ident).+, $device:literal, $local:literal) => {
        impl $type {
            #[doc = $device]
            pub fn device_name(&self) -> &str {
                &self.$($path).+.device
            }

            /// Returns the port number of the device, starting at 1.
            pub fn port_num(&self) -> u8 {
                self.$($path).+.port_num
            }

            /// Returns the transport of the device.
            pub fn transport(&self) -> ibverbs::device::TransportType {
                self.$($path).+.transport
            }

            #[doc = $local]
            pub fn local_addr(&self) -> std::net::SocketAddr {
                self.$($path).+.local
            }

            /// Returns the peer's address.
            pub fn peer_addr(&self) -> std::net::SocketAddr {
                self.$($path).+.peer
            }
        }
    };
}

pub(crate) use path_accessors;
