//! Connecting queue pairs, and resetting them.

use std::thread;
use std::time::Duration;

use ibverbs::{
    AccessFlags, ConnectedDuplexTransport, ProtectionDomain, QpOptions, QueuePair, Rc,
    RemoteMemory, Uc, qp::QpChange, wr,
};
use rdmacm::{ConnectParams, Connection, Listener, Resolver};
use test_support::random::Random;

use crate::model::{End, Entry, Id, Link, QpIndex};
use crate::transport::{AnyQp, with_connected, with_qp};
use crate::violation::{Violation, unexpected};
use crate::world::{World, pick};

/// Time limit for a connection.
const TIMEOUT: Duration = Duration::from_secs(20);

const MAX_LINKS: usize = 5;

/// The objects on which a queue pair is created.
struct Parts {
    pd: ProtectionDomain,
    pd_id: Id,
    send_cq: usize,
    recv_cq: usize,
    srq: Option<usize>,
    options: QpOptions,
}

impl World<'_> {
    fn pick_parts(&self, random: &mut Random) -> Option<Parts> {
        let domain = &self.domains[pick(&self.domains, random)?];
        let srq = pick(&self.srqs, random)
            .filter(|&srq| self.srqs[srq].pd == domain.id && random.below(2) == 0);
        let options = self.pick_options(random);
        Some(Parts {
            pd: domain.pd.clone(),
            pd_id: domain.id,
            send_cq: pick(&self.cqs, random)?,
            recv_cq: pick(&self.cqs, random)?,
            srq,
            options,
        })
    }

    /// Returns sizes of a queue pair.
    pub(crate) fn pick_options(&self, random: &mut Random) -> QpOptions {
        let support = &self.setup.support;
        let requests = |random: &mut Random| u32::try_from(2 + random.below(15)).expect("small");
        let options = QpOptions::new()
            .max_send_wr(requests(random))
            .max_recv_wr(requests(random));
        let mut coin = || random.below(2) == 0;
        options
            .max_send_sge(if coin() {
                support.max_send_sge.min(3)
            } else {
                1
            })
            .max_recv_sge(if coin() {
                support.max_recv_sge.min(2)
            } else {
                1
            })
            .max_inline_data(if coin() {
                support.max_inline.min(64)
            } else {
                0
            })
            .classic_only(coin())
            .device_addresses(support.device_addresses && coin())
    }

    fn create_qp<T: ConnectedDuplexTransport>(
        &self,
        parts: &Parts,
    ) -> ibverbs::Result<QueuePair<T>> {
        let cq = |index: usize| self.cqs[index].cq.as_ref().expect("not being polled");
        let (send_cq, recv_cq) = (cq(parts.send_cq), cq(parts.recv_cq));
        match parts.srq {
            Some(srq) => {
                let srq = &self.srqs[srq].srq;
                parts
                    .pd
                    .create_qp_with_srq(send_cq, recv_cq, srq, parts.options)
            }
            None => parts.pd.create_qp(send_cq, recv_cq, parts.options),
        }
    }

    pub(crate) fn create_link(&mut self, random: &mut Random) -> Result<bool, Violation> {
        if self.links.len() == MAX_LINKS {
            return Ok(false);
        }
        let (Some(a), Some(b)) = (self.pick_parts(random), self.pick_parts(random)) else {
            return Ok(false);
        };
        let lossy = self.setup.support.uc && random.below(5) == 0;
        let qps = if lossy {
            let (a, b) = self.connected::<Uc>(&a, &b)?;
            (AnyQp::Uc(a), AnyQp::Uc(b))
        } else if let Some(listener) = self
            .listener
            .as_ref()
            .filter(|_| self.setup.path.is_none() || random.below(3) == 0)
        {
            // Soft-iWARP fails to create one in dozens, without an error number.
            let (Ok(qp_a), Ok(qp_b)) = (self.create_qp(&a), self.create_qp(&b)) else {
                return Ok(false);
            };
            let access = self.remote_access();
            let (a, b) = connect_with_cm(listener, qp_a, qp_b, access)?;
            (AnyQp::Cm(a), AnyQp::Cm(b))
        } else {
            let (a, b) = self.connected::<Rc>(&a, &b)?;
            (AnyQp::Rc(a), AnyQp::Rc(b))
        };
        let id = self.new_id();
        self.note(|| {
            let describe =
                |parts: &Parts| format!("{:?}, srq: {}", parts.options, parts.srq.is_some());
            format!("link {id}, UC: {lossy}: {}; {}", describe(&a), describe(&b))
        });
        let ends = [Some(self.new_end(qps.0, &a)), Some(self.new_end(qps.1, &b))];
        self.links.push(Link {
            id,
            ends,
            failed: false,
            lossy,
            landing: Vec::new(),
        });
        Ok(true)
    }

    fn connected<T: ConnectedDuplexTransport>(
        &self,
        a: &Parts,
        b: &Parts,
    ) -> Result<(QueuePair<T>, QueuePair<T>), Violation> {
        let path = self.setup.path.as_ref().expect("a path");
        let (mut a, mut b) = (self.create_qp::<T>(a)?, self.create_qp::<T>(b)?);
        a.init(path)?;
        b.init(path)?;
        a.connect(path, &b.endpoint(path)?)?;
        b.connect(path, &a.endpoint(path)?)?;
        Ok((a, b))
    }

    fn new_end(&self, qp: AnyQp, parts: &Parts) -> End {
        let cqs = [parts.send_cq, parts.recv_cq].map(|cq| self.cqs[cq].id);
        End {
            srq: parts.srq.map(|srq| self.srqs[srq].id),
            in_order: self.setup.in_order,
            device_addresses: parts.options.device_addresses,
            ..End::new(qp, parts.pd_id, cqs)
        }
    }

    /// Moves both queue pairs to RESET, which is refused while requests are in flight, and connects
    /// them again.
    pub(crate) fn reset(&mut self, random: &mut Random) -> Result<bool, Violation> {
        let link = match self.pick_end(random) {
            None => return Ok(false),
            Some(QpIndex::Datagram(index)) => return self.reset_datagram(index),
            Some(QpIndex::Link(link, _)) => link,
        };
        let mut ends = self.links[link].ends.iter();
        if ends.any(|end| {
            end.as_ref()
                .is_none_or(|end| matches!(end.qp, AnyQp::Cm(_)))
        }) {
            return Ok(false);
        }
        // Drivers differ in whether completions of a shared receive queue survive the reset.
        let mut ends = self.links[link].ends.iter().flatten();
        if ends.any(|end| end.srq.is_some() && !end.incoming.is_empty()) {
            return Ok(false);
        }
        for side in 0..2 {
            // A queue pair without requests has nothing to wait for, and its peer's requests fail.
            let at = QpIndex::Link(link, side);
            let name = self.name(at);
            let end = self.end(at);
            let idle = end.is_done();
            let reset = QpChange::to(ibverbs::QpState::RESET);
            let result = with_qp!(&mut end.qp, qp => qp.modify(&reset));
            self.note(|| format!("reset {name}: {result:?}"));
            match result {
                Ok(()) if idle => self.links[link].failed = true,
                Ok(()) => {
                    return Err(Violation(format!(
                        "{name} was reset with requests in flight"
                    )));
                }
                Err(error) if idle => return Err(unexpected("reset", error)),
                Err(_) => return Ok(true),
            }
        }
        let path = self.setup.path.expect("a path");
        let Link {
            ends: [Some(a), Some(b)],
            landing,
            failed,
            ..
        } = &mut self.links[link]
        else {
            return Ok(true);
        };
        for end in [&mut *a, &mut *b] {
            // Messages that were not received are lost.
            end.unpolled_sends.clear();
            end.unpolled_recvs.clear();
            end.windows.clear();
            end.invalidating.clear();
        }
        for effect in std::mem::take(landing) {
            self.memory.ended("a transfer before a reset", effect)?;
        }
        // Completions that were not polled are of no request in flight.
        a.incoming.clear();
        b.incoming.clear();
        match (&mut a.qp, &mut b.qp) {
            (AnyQp::Rc(a), AnyQp::Rc(b)) => reconnect(a, b, &path)?,
            (AnyQp::Uc(a), AnyQp::Uc(b)) => reconnect(a, b, &path)?,
            _ => return Ok(true),
        }
        *failed = false;
        Ok(true)
    }

    /// Posts a WRITE with a key that the peer does not have.
    pub(crate) fn bad_remote(&mut self, random: &mut Random) -> Result<bool, Violation> {
        let Some(at @ QpIndex::Link(link, _)) = self.pick_working_end(random) else {
            return Ok(false);
        };
        if self.links[link].lossy || self.end(at).send_slots_free() == 0 {
            return Ok(false);
        }
        let tag = self.new_id();
        let remote = self.stale_window(at).unwrap_or(RemoteMemory {
            addr: 4096,
            len: 8,
            rkey: 0,
        });
        let end = self.end(at);
        let request = wr::write(wr::Empty, remote).tag(tag);
        let inline = [7; 8];
        let has_inline = with_qp!(&mut end.qp, qp => qp.caps().max_inline_data) >= 8;
        let posted = if has_inline {
            let request = wr::write(wr::Inline(&inline), remote).tag(tag);
            with_connected!(&mut end.qp, qp => qp.post_send(request)).map_err(ibverbs::Error::from)
        } else {
            with_connected!(&mut end.qp, qp => qp.post_send(request)).map_err(ibverbs::Error::from)
        };
        posted.map_err(|error| unexpected("WRITE with an invalid key", error))?;
        end.sends
            .push_back(Entry::without_memory(tag, "invalid WRITE"));
        end.unpolled_sends.push_back(tag);
        self.set_failed(at);
        Ok(true)
    }
}

fn reconnect<T: ConnectedDuplexTransport>(
    a: &mut QueuePair<T>,
    b: &mut QueuePair<T>,
    path: &ibverbs::RcPath,
) -> Result<(), Violation> {
    a.init(path)?;
    b.init(path)?;
    a.connect(path, &b.endpoint(path)?)?;
    b.connect(path, &a.endpoint(path)?)?;
    Ok(())
}

fn connect_with_cm(
    listener: &Listener,
    a: QueuePair<Rc>,
    b: QueuePair<Rc>,
    access: AccessFlags,
) -> Result<(Connection, Connection), Violation> {
    let params = ConnectParams::default();
    let failed = |error: rdmacm::ConnectError| Violation(format!("connect: {error}"));
    thread::scope(|scope| {
        let passive = scope.spawn(|| {
            let request = listener.next_request(Some(TIMEOUT))?;
            let request = request.ok_or_else(|| Violation("no connection request".to_owned()))?;
            let ready = request.access(access).with_qp(b)?;
            ready.accept(&params, TIMEOUT).map_err(failed)
        });
        let resolver = Resolver::new(listener.local_addr()).timeout(TIMEOUT);
        let active = resolver.resolve()?.access(access).with_qp(a)?;
        let active = active.connect(&params, TIMEOUT).map_err(failed)?;
        Ok((active, passive.join().expect("no panic")?))
    })
}
