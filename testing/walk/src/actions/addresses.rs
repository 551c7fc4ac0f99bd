//! Addresses of datagrams: holding and releasing them, and requests with wrong ones.

use ibverbs::wr::Destination;
use ibverbs::{AhAttr, ErrorKind, Qkey, Qpn};
use test_support::random::Random;

use crate::model::{Datagram, QpIndex};
use crate::transport::{Flags, Operation, Outbound, Payload, post, with_datagram};
use crate::violation::Violation;
use crate::world::{World, choose, pick};

impl World<'_> {
    /// Returns the address of the device.
    fn own_address(&self) -> Result<AhAttr, Violation> {
        let gids = self.setup.context.gids(1)?;
        let own = gids.iter().find(|entry| !entry.gid.is_link_local());
        let own = own.or(gids.first()).expect("an address");
        Ok(AhAttr::for_gid(1, own.index, own.gid))
    }

    /// Holds the address of the device, which is that of every destination.
    pub(super) fn hold_address(&mut self, index: usize) -> Result<(), Violation> {
        let attr = self.own_address()?;
        let end = self.end(QpIndex::Datagram(index));
        let held = with_datagram!(&mut end.qp, qp => {
            let handle = qp.pd().create_ah(&attr)?;
            qp.hold_address(&handle)?
        });
        self.datagrams[index].address = Some(held);
        Ok(())
    }

    /// Holds or releases an address, or tries to hold one of another domain.
    pub(crate) fn change_address(&mut self, random: &mut Random) -> Result<bool, Violation> {
        // Without an address, a queue pair cannot send.
        let without = |one: &Datagram| one.address.is_none();
        if let Some(index) = self.datagrams.iter().position(without) {
            self.hold_address(index)?;
            return Ok(true);
        }
        let Some(index) = pick(&self.datagrams, random) else {
            return Ok(false);
        };
        let name = self.name(QpIndex::Datagram(index));
        let attr = self.own_address()?;
        let domain = pick(&self.domains, random).map(|domain| self.domains[domain].clone());
        let end = self.end(QpIndex::Datagram(index));
        if let Some(domain) = domain.filter(|domain| domain.id != end.pd) {
            let handle = domain.pd.create_ah(&attr)?;
            return match with_datagram!(&mut end.qp, qp => qp.hold_address(&handle)) {
                Err(error) if error.kind() == ErrorKind::Mismatch => Ok(true),
                held => Err(Violation(format!(
                    "{name} holds a foreign address: {held:?}"
                ))),
            };
        }
        let idle = end.sends.is_empty();
        match with_datagram!(&mut end.qp, qp => qp.release_addresses()) {
            Ok(()) if idle => {
                let Datagram {
                    address, released, ..
                } = &mut self.datagrams[index];
                *released = address.take();
            }
            Err(error) if error.kind() == ErrorKind::Busy && !idle => {}
            Ok(()) => return Err(Violation(format!("{name} released an address in use"))),
            Err(error) => return Err(error.into()),
        }
        Ok(true)
    }

    /// Returns the address of the queue pair `to`, as a destination of the queue pair `from`.
    pub(crate) fn destination(&self, from: usize, to: usize) -> Option<Destination> {
        let Datagram { end, qkey, .. } = &self.datagrams[to];
        Some(Destination {
            address: self.datagrams[from].address?,
            qpn: Qpn(end.as_ref()?.qp_num),
            qkey: *qkey,
        })
    }

    /// Posts a request with an address that the queue pair does not hold, or with a flag that its
    /// transport lacks.
    pub(crate) fn post_refused_datagram(
        &mut self,
        index: usize,
        random: &mut Random,
    ) -> Result<bool, Violation> {
        let is_srd = self.datagrams[index].is_srd();
        let released = self.datagrams[index].released;
        let others = self.datagrams.iter().enumerate();
        let others = others.filter(|(other, _)| *other != index);
        let mut held: Vec<_> = others.filter_map(|(_, other)| other.address).collect();
        held.extend(released);
        let own = self.destination(index, index);
        let (fenced, address) = match (own, choose(&held, random)) {
            (Some(own), _) if is_srd && random.below(2) == 0 => (true, own.address),
            (_, Some(address)) => (false, address),
            _ => return Ok(false),
        };
        let name = self.name(QpIndex::Datagram(index));
        let end = self.end(QpIndex::Datagram(index));
        let is_full = end.send_slots_free() == 0;
        let outbound = Outbound {
            operation: Operation::Send,
            to: Some(Destination {
                address,
                qpn: Qpn(end.qp_num),
                qkey: Qkey(1),
            }),
        };
        let flags = Flags {
            fenced,
            ..Flags::plain(0)
        };
        let expected = if fenced {
            ErrorKind::Unsupported
        } else {
            ErrorKind::Mismatch
        };
        match with_datagram!(&mut end.qp, qp => post(qp, outbound, Payload::Empty, flags)) {
            Err((error, _)) if error.kind() == expected => Ok(true),
            Err((error, _)) if is_full && error.kind() == ErrorKind::QueueFull => Ok(true),
            posted => {
                let posted = posted.map_err(|(error, _)| error);
                Err(Violation(format!(
                    "{name}: fenced: {fenced}, {posted:?}, expected {expected:?}"
                )))
            }
        }
    }
}
