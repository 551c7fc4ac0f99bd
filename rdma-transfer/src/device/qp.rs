//! The queue pair of a path and its connection: by verbs on InfiniBand and RoCE, by the connection
//! manager on iWARP.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};

use ibverbs::{Error, ErrorKind, Psn, QueuePair, Rc, RcPath, Result};
use rdmacm::active::Resolving;
use rdmacm::{
    Accepting, ConnectParams, ConnectRequest, Connecting, Connection, InProgress, ListenOptions,
    Listener, Resolver, Route,
};

use crate::memory::region::ACCESS;
use crate::protocol::message::Address;

/// A queue pair that waits for the peer over iWARP.
#[derive(Debug)]
pub(crate) struct Offered {
    qp: Box<QueuePair<Rc>>,
    /// Listener, at the side that accepts.
    listener: Option<Listener>,
    secret: u64,
    receives: u32,
}

/// A queue pair.
#[derive(Debug)]
pub(crate) enum Qp {
    /// InfiniBand or RoCE, in INIT or connected.
    Verbs(Box<QueuePair<Rc>>, RcPath),
    /// The other variants are those of iWARP.
    Offered(Offered),
    Resolving(Box<QueuePair<Rc>>, Resolving<Route>),
    Connecting(Box<Connecting>),
    Accepting(Box<Accepting>),
    Connected(Box<Connection>),
    /// Connecting over iWARP has failed, and has destroyed the queue pair.
    Failed,
}

impl Qp {
    /// Prepares a new queue pair for verbs.
    pub(crate) fn verbs(mut qp: QueuePair<Rc>, path: RcPath) -> Result<Self> {
        let path = path.psn(Psn::random());
        qp.init(&path)?;
        Ok(Self::Verbs(Box::new(qp), path))
    }

    /// Prepares a new queue pair for the connection manager.
    pub(crate) fn iwarp(qp: QueuePair<Rc>, accepts: bool, receives: u32) -> Result<Self> {
        let listen = || {
            let options = ListenOptions::new().device(qp.pd().context().device_name());
            let listen = |ip| options.bind(SocketAddr::new(ip, 0));
            let v6 = |_| listen(Ipv6Addr::UNSPECIFIED.into());
            listen(Ipv4Addr::UNSPECIFIED.into()).or_else(v6)
        };
        let listener = accepts.then(listen).transpose()?;
        let secret = getrandom::u64().expect("random numbers of the system");
        Ok(Self::Offered(Offered {
            qp: Box::new(qp),
            listener,
            secret,
            receives,
        }))
    }

    pub(crate) fn address(&self) -> Result<Address> {
        match self {
            Self::Verbs(qp, path) => Ok(Address::Verbs {
                endpoint: qp.endpoint(path)?,
                mtu: path.mtu.0,
            }),
            Self::Offered(offered) => Ok(Address::Cm {
                listener: offered.listener.as_ref().map(Listener::local_addr),
                secret: offered.secret,
                receives: offered.receives,
            }),
            _ => Err(mismatch()),
        }
    }

    /// Returns the queue pair, unless it is being connected over iWARP.
    pub(crate) fn get(&mut self) -> Option<&mut QueuePair<Rc>> {
        match self {
            Self::Verbs(qp, _) => Some(qp),
            Self::Connected(connection) => Some(connection.qp_mut()),
            _ => None,
        }
    }

    /// Takes the next step towards the connection to the peer's queue pair. Does not wait. Returns
    /// `true` if it is connected. `prepare` is called in state INIT over iWARP.
    pub(crate) fn connect(
        &mut self,
        remote: &Address,
        prepare: impl FnOnce(&mut QueuePair<Rc>) -> Result<()>,
    ) -> Result<bool> {
        match (&mut *self, remote) {
            (Self::Verbs(qp, path), Address::Verbs { endpoint, mtu }) => {
                path.mtu.0 = path.mtu.0.min(*mtu);
                qp.connect(path, endpoint)?;
                return Ok(true);
            }
            (Self::Verbs(..), _) | (_, Address::Verbs { .. }) => return Err(mismatch()),
            _ => {}
        }
        let Address::Cm {
            listener, secret, ..
        } = remote
        else {
            return Err(mismatch());
        };
        // After an error, the queue pair is dropped.
        let current = std::mem::replace(self, Self::Failed);
        *self = current.step(*listener, *secret, prepare)?;
        Ok(matches!(self, Self::Connected(_)))
    }

    /// Takes the next step over iWARP.
    fn step(
        self,
        remote: Option<SocketAddr>,
        remote_secret: u64,
        prepare: impl FnOnce(&mut QueuePair<Rc>) -> Result<()>,
    ) -> Result<Self> {
        let params = ConnectParams::new();
        Ok(match self {
            Self::Offered(offered) if offered.listener.is_some() => {
                let Some(request) = offered.request()? else {
                    return Ok(Self::Offered(offered));
                };
                let mut ready = request.access(ACCESS).with_qp(*offered.qp)?;
                prepare(ready.qp_mut())?;
                Self::Accepting(Box::new(ready.start(&params)?))
            }
            Self::Offered(Offered { qp, .. }) => {
                let device = qp.pd().context().device_name();
                let resolver = Resolver::new(remote.ok_or_else(mismatch)?).device(device);
                let resolving = resolver.start()?;
                Self::Resolving(qp, resolving)
            }
            Self::Resolving(qp, mut resolving) => {
                let Some(route) = resolving.try_finish()? else {
                    return Ok(Self::Resolving(qp, resolving));
                };
                let mut ready = route.access(ACCESS).with_qp(*qp)?;
                prepare(ready.qp_mut())?;
                let data = remote_secret.to_le_bytes();
                Self::Connecting(Box::new(ready.start(&params.private_data(&data))?))
            }
            Self::Connecting(mut connecting) => match connecting.try_finish()? {
                Some(connection) => Self::Connected(Box::new(connection)),
                None => Self::Connecting(connecting),
            },
            Self::Accepting(mut accepting) => match accepting.try_finish()? {
                Some(connection) => Self::Connected(Box::new(connection)),
                None => Self::Accepting(accepting),
            },
            Self::Verbs(..) | Self::Connected(_) | Self::Failed => return Err(mismatch()),
        })
    }

    /// Destroys the queue pair. No device accesses memory for it afterwards.
    pub(crate) fn destroy(self) -> Result<()> {
        match self {
            Self::Verbs(qp, _) | Self::Offered(Offered { qp, .. }) | Self::Resolving(qp, _) => {
                qp.destroy().map(drop)
            }
            Self::Connected(connection) => connection.close().map(drop),
            // Only receives were posted, and the peer sends nothing before this side is connected.
            // The connection manager keeps their memory until the kernel releases the queue pair.
            Self::Connecting(_) | Self::Accepting(_) | Self::Failed => Ok(()),
        }
    }
}

impl Offered {
    /// Returns the connect request of the peer, if it has arrived. Rejects others.
    fn request(&self) -> Result<Option<ConnectRequest>> {
        let Some(listener) = &self.listener else {
            return Ok(None);
        };
        while let Some(request) = listener.try_request()? {
            if request
                .private_data()
                .starts_with(&self.secret.to_le_bytes())
            {
                return Ok(Some(request));
            }
            // It can have ended already.
            let _ = request.reject(&[]);
        }
        Ok(None)
    }
}

fn mismatch() -> Error {
    let what = "only one end of the path is iWARP";
    Error::new(ErrorKind::Mismatch, "connect", what)
        .with_help("pass the devices to Engine::open in an order that pairs those of one kind")
}
