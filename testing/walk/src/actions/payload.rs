//! Picking the memory of requests that transfer bytes to a peer.

use test_support::random::Random;

use crate::model::{Effect, Entry, HeldModel, OwnedBuf, QpIndex, data};
use crate::transport::{Payload, with_qp};
use crate::world::World;

impl World<'_> {
    /// Picks or takes memory of a queue pair's domain for a request of at most `max` bytes. Returns
    /// it with the model of the request and the bytes that it transfers.
    pub(crate) fn pick_payload(
        &mut self,
        at: QpIndex,
        max: usize,
        random: &mut Random,
    ) -> Option<(Payload, Entry, Vec<u8>)> {
        let tag = self.new_id();
        let mut entry = Entry::without_memory(tag, "send");
        let end = self.end(at);
        let (pd, caps) = (end.pd, with_qp!(&mut end.qp, qp => qp.caps()));
        let held = (!end.held.is_empty()).then(|| end.held[random.below(end.held.len())]);
        let choice = random.below(10);
        let payload = match (choice, held) {
            (0, _) => {
                entry.unsignaled = true;
                (Payload::Empty, Vec::new())
            }
            (1, _) if caps.max_inline_data > 0 => {
                entry.unsignaled = true;
                let len = random.below(max.min(caps.max_inline_data as usize) + 1);
                let bytes = data::bytes(random.next_u64(), len);
                (Payload::Inline(bytes.clone()), bytes)
            }
            (2 | 3, Some(HeldModel::Frozen(..))) if random.below(2) == 0 => {
                self.frozen_list(at, max, caps.max_send_sge, random)?
            }
            (2 | 3, Some(HeldModel::Shared(..))) if random.below(2) == 0 => {
                self.shared_list(at, max, caps.max_send_sge, &mut entry, random)?
            }
            (2 | 3, Some(HeldModel::Frozen(token, _, model))) => {
                entry.unsignaled = model.pool.is_none();
                let len = random.below(model.len.min(max) + 1);
                (
                    Payload::Frozen(token.slice(0..len)?),
                    data::bytes(model.pattern, len),
                )
            }
            (2 | 3, Some(HeldModel::Shared(token, id))) => {
                let region = self.memory.region(id)?;
                let cell = region.readable(random)?;
                let range = region.range(cell);
                let len = range.len().min(max);
                let bytes = region.cells[cell].bytes[..len].to_vec();
                let effect = Effect::Reads { region: id, cell };
                self.memory.begin(effect, None);
                entry.effects.push(effect);
                (
                    Payload::Shared(token.slice(range.start..range.start + len)?),
                    bytes,
                )
            }
            (4, _) if caps.max_send_sge > 1 => {
                let parts = [self.memory.take(pd, random), self.memory.take(pd, random)];
                let (mut bufs, mut bytes) = (Vec::new(), Vec::new());
                for OwnedBuf { mut buf, mut model } in parts.into_iter().flatten() {
                    model.len = model.len.min((max - bytes.len()) / 2);
                    buf.set_len(model.len);
                    bytes.extend_from_slice(&buf);
                    entry.bufs.push(model);
                    bufs.push(buf);
                }
                entry.is_list = true;
                (Payload::List(bufs), bytes)
            }
            _ => {
                let OwnedBuf { mut buf, mut model } = self.memory.take(pd, random)?;
                model.len = model.len.min(max);
                buf.set_len(model.len);
                let bytes = buf.to_vec();
                entry.bufs.push(model);
                (Payload::Buf(buf), bytes)
            }
        };
        Some((payload.0, entry, payload.1))
    }

    /// Holds a list of pieces of frozen memory.
    fn frozen_list(
        &mut self,
        at: QpIndex,
        max: usize,
        entries: u32,
        random: &mut Random,
    ) -> Option<(Payload, Vec<u8>)> {
        let end = self.end(at);
        let (mut pieces, mut bytes) = (Vec::new(), Vec::new());
        for held in &end.held {
            let HeldModel::Frozen(token, _, model) = held else {
                continue;
            };
            if pieces.len() < entries as usize {
                let len = random.below(model.len.min(max - bytes.len()) + 1);
                pieces.push(token.slice(0..len)?);
                bytes.extend(data::bytes(model.pattern, len));
            }
        }
        let list = with_qp!(&mut end.qp, qp => qp.hold_list(&pieces)).ok()?;
        Some((Payload::FrozenList(list), bytes))
    }

    /// Holds a list of cells of shared regions, which `entry` then reads.
    fn shared_list(
        &mut self,
        at: QpIndex,
        max: usize,
        entries: u32,
        entry: &mut Entry,
        random: &mut Random,
    ) -> Option<(Payload, Vec<u8>)> {
        let (mut pieces, mut bytes) = (Vec::new(), Vec::new());
        for held in self.end(at).held.clone() {
            let HeldModel::Shared(token, id) = held else {
                continue;
            };
            let region = self.memory.region(id)?;
            let Some(cell) = region.readable(random) else {
                continue;
            };
            if pieces.len() < entries as usize {
                let start = region.range(cell).start;
                let all = &region.cells[cell].bytes;
                let len = random.below(all.len().min(max - bytes.len()) + 1);
                pieces.push(token.slice(start..start + len)?);
                bytes.extend(&all[..len]);
                let effect = Effect::Reads { region: id, cell };
                entry.effects.push(effect);
            }
        }
        let qp = &mut self.end(at).qp;
        let list = with_qp!(qp, qp => qp.hold_list(&pieces)).ok()?;
        for &effect in &entry.effects {
            self.memory.begin(effect, None);
        }
        Some((Payload::SharedList(list), bytes))
    }
}
