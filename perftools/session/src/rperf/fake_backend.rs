//! A backend for tests that connects both endpoints within one process.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use base::error::{Error, Result};
use host::hardware::Hardware;
use ibverbs::Gid;
use measure::data_key::DatagramKey;
use measure::engine::fake::{self, FakeDataPath};
use measure::spec::connection::ConnectionInfo;
use measure::spec::modes::Wait;
use measure::spec::plan::Service;
use measure::spec::{Bounds, Spec};
use measure::transport::address::PortAddress;
use measure::transport::{
    Backend, ClientEndpoints, ClientInfo, ClientSetup, ConnectMethod, ConnectedEndpoint,
    ControlAddrs, LinkType, Offer, QpEndpoint, ServerSetup,
};

/// A [`Backend`] without devices. A number in the offer identifies the endpoints that are
/// connected.
#[derive(Default)]
pub(super) struct FakeBackend {
    next_qpn: AtomicU32,
    clients: Mutex<HashMap<u32, Vec<FakeDataPath>>>,
    /// RDMA addresses that the client names.
    pub(super) client_addresses: Vec<PortAddress>,
    /// RDMA address that the server names; none: 127.0.0.1.
    pub(super) server_address: Option<IpAddr>,
}

pub(super) struct FakeClient<'a> {
    backend: &'a FakeBackend,
    spec: Spec,
}

pub(super) struct FakeServer {
    data_paths: Vec<FakeDataPath>,
    spec: Spec,
    depth: u32,
}

fn bounds() -> Bounds {
    Bounds {
        device: "fake0".into(),
        max_msg: 1 << 20,
        max_qp_wr: 1000,
        max_cqe: 2000,
        mtu: 1024,
        services: vec![Service::Rc, Service::Uc, Service::Ud],
        infiniband: true,
        max_read: 1 << 20,
        max_write: 1 << 20,
        signaled_sizes: 0..0,
        atomics: true,
        max_srq_wr: 100,
    }
}

pub(super) fn connection_info() -> ConnectionInfo {
    ConnectionInfo {
        device: "fake0".into(),
        port: 1,
        link: "fake".into(),
        gid_index: None,
        address: "localhost".into(),
        cm: false,
        mtu: None,
        port_mtu: None,
        memory: None,
        hardware: Hardware::default(),
        wait: Wait::Adaptive,
    }
}

impl<'a> Backend for &'a FakeBackend {
    type DataPath = FakeDataPath;
    type Client = FakeClient<'a>;
    type Server = FakeServer;

    fn client(&self, spec: &Spec, _: ControlAddrs) -> Result<(FakeClient<'a>, ClientInfo)> {
        let client_info = ClientInfo {
            link: LinkType::Roce,
            addresses: self.client_addresses.clone(),
            mtu: 1024,
            depth: spec.depth,
            plan: spec.test.plan().unwrap(),
        };
        Ok((
            FakeClient {
                backend: self,
                spec: spec.clone(),
            },
            client_info,
        ))
    }

    fn server(
        &self,
        spec: &Spec,
        client_info: &ClientInfo,
        _: ControlAddrs,
    ) -> Result<(FakeServer, Offer)> {
        let depth = spec.fit(&bounds())?.depth.min(client_info.depth);
        let shape = spec.shape_for_depth(depth, client_info.plan, &bounds())?;
        let (clients, data_paths) = (0..spec.threads)
            .map(|_| {
                let [(client, _), (data_path, _)] = fake::pair(&shape);
                (client, data_path)
            })
            .unzip();
        let qpn = self.next_qpn.fetch_add(1, Ordering::Relaxed);
        self.clients.lock().unwrap().insert(qpn, clients);
        let method = ConnectMethod::Direct(vec![QpEndpoint {
            qpn,
            psn: 0,
            lid: 0,
            gid: Gid::from(self.server_address.unwrap_or(Ipv4Addr::LOCALHOST.into())).to_string(),
            rd_atomic: 1,
            xrc: None,
            dc: Vec::new(),
        }]);
        let offer = Offer {
            depth,
            mtu: 1024,
            client_address: 0,
            method,
            datagrams: DatagramKey::random(),
            group: None,
            via: connection_info(),
        };
        Ok((
            FakeServer {
                data_paths,
                spec: spec.clone(),
                depth,
            },
            offer,
        ))
    }
}

impl ClientSetup for FakeClient<'_> {
    type DataPath = FakeDataPath;

    fn accept_offer(&mut self, _: &Offer) -> Result<ClientEndpoints> {
        Ok(ClientEndpoints { ends: vec![] })
    }

    fn connect(self, offer: &Offer, _: Duration) -> Result<ConnectedEndpoint<FakeDataPath>> {
        let ConnectMethod::Direct(endpoints) = &offer.method else {
            return Err(Error::protocol("unexpected connection method"));
        };
        let data_paths = self
            .backend
            .clients
            .lock()
            .unwrap()
            .remove(&endpoints[0].qpn)
            .unwrap();
        Ok(ConnectedEndpoint {
            data_paths,
            via: connection_info(),
            shape: self.spec.shape_for_depth(
                offer.depth,
                self.spec.test.plan().unwrap(),
                &bounds(),
            )?,
        })
    }
}

impl ServerSetup for FakeServer {
    type DataPath = FakeDataPath;

    fn accept(
        self,
        _: &ClientEndpoints,
        _: Duration,
        _: &dyn Fn() -> bool,
    ) -> Result<ConnectedEndpoint<FakeDataPath>> {
        Ok(ConnectedEndpoint {
            data_paths: self.data_paths,
            via: connection_info(),
            shape: self.spec.shape_for_depth(
                self.depth,
                self.spec.test.plan().unwrap(),
                &bounds(),
            )?,
        })
    }
}
