//! Memory windows: binding them, access through them, and invalidating them.

use ibverbs::{ErrorKind, RemoteMemory, Retired, wr};
use test_support::random::Random;

use crate::model::{
    AnyBound, AnyWindow, Effect, Entry, FreeWindow, Message, QpIndex, WindowModel, WindowRequest,
};
use crate::transport::{Flags, Operation, Outbound, post, with_connected};
use crate::violation::{Violation, unexpected};
use crate::world::{World, pick};

/// Number of windows of a queue pair.
const MAX_WINDOWS: usize = 4;

impl World<'_> {
    pub(crate) fn bind_window(&mut self, random: &mut Random) -> Result<bool, Violation> {
        let Some(at) = self.pick_windowed_end(random) else {
            return Ok(false);
        };
        let (pd, windows) = (self.end(at).pd, self.end(at).windows.len());
        let regions = &self.memory.regions;
        let usable: Vec<usize> = (0..regions.len())
            .filter(|&region| regions[region].pd == pd)
            .collect();
        let region = pick(&usable, random).filter(|_| windows < MAX_WINDOWS);
        let Some(region) = region.map(|region| &regions[usable[region]]) else {
            return Ok(false);
        };
        // A window covers some cells of the region.
        let first = random.below(region.cells.len());
        let last = first + random.below(region.cells.len() - first);
        let (start, end) = (region.range(first).start, region.range(last).end);
        let memory = region.region.slice(start..end).expect("within the region");
        let id = region.id;
        let (tag, name) = (self.new_id(), self.name(at));
        self.note(|| format!("{name}: bind {tag}, cells {first} to {last} of region {id}"));
        let access = self.remote_access();
        let free = pick(&self.windows, random).map(|index| self.windows.swap_remove(index));
        let end = self.end(at);
        let domain = with_connected!(&mut end.qp, qp => qp.pd().clone());
        let free = free.filter(|free| free.pd == pd);
        let fits = free
            .as_ref()
            .is_none_or(|free| free.bound_to.is_none_or(|bound_to| bound_to == id));
        let window = match free.map(|free| free.window) {
            Some(AnyWindow::Type2(window)) if !fits => {
                return match window.bind(&memory, access) {
                    Err(error) if error.kind() == ErrorKind::Mismatch => Ok(true),
                    bound => Err(Violation(format!("bound to another region: {bound:?}"))),
                };
            }
            Some(window) => window,
            None if random.below(2) == 0 => AnyWindow::Type1(domain.alloc_mw()?),
            None => AnyWindow::Type2(domain.alloc_mw()?),
        };
        let bound = match window {
            AnyWindow::Type1(window) => AnyBound::Type1(
                with_connected!(&mut end.qp, qp => qp.bind_mw(window, &memory, access, tag))?,
            ),
            AnyWindow::Type2(window) => {
                let (bound, binding) = window.bind(&memory, access)?;
                with_connected!(&mut end.qp, qp => qp.post_send(wr::bind(binding).tag(tag)))
                    .map_err(|error| unexpected(&name, error))?;
                AnyBound::Type2(bound)
            }
        };
        let mut entry = Entry::without_memory(tag, "bind");
        entry.window = Some(WindowRequest::Bind);
        end.sends.push_back(entry);
        end.unpolled_sends.push_back(tag);
        end.windows.push(WindowModel {
            tag,
            bound,
            region: id,
            is_active: false,
        });
        Ok(true)
    }

    /// Invalidates a window that no request of the peer uses.
    pub(crate) fn invalidate_window(&mut self, random: &mut Random) -> Result<bool, Violation> {
        let Some(at) = self.pick_windowed_end(random) else {
            return Ok(false);
        };
        let unused = self.peer(at).is_none_or(|peer| peer.sends.is_empty());
        let index = pick(&self.end(at).windows, random);
        let Some(index) = index.filter(|&index| unused && self.end(at).windows[index].is_active)
        else {
            return Ok(false);
        };
        let (tag, name) = (self.new_id(), self.name(at));
        let end = self.end(at);
        let WindowModel { bound, .. } = end.windows.swap_remove(index);
        end.stale = Some(bound.remote());
        let is_type_2 = matches!(bound, AnyBound::Type2(_));
        match bound {
            AnyBound::Type1(bound) => with_connected!(&mut end.qp, qp => qp.unbind_mw(bound, tag))?,
            AnyBound::Type2(bound) => {
                with_connected!(&mut end.qp, qp => qp.post_send(wr::invalidate(bound).tag(tag)))
                    .map_err(|error| unexpected(&name, error))?;
            }
        }
        let mut entry = Entry::without_memory(tag, "invalidate");
        entry.window = Some(WindowRequest::Invalidate { is_type_2 });
        end.sends.push_back(entry);
        end.unpolled_sends.push_back(tag);
        self.note(|| format!("{name}: invalidate {tag}"));
        Ok(true)
    }

    /// Sends a message that invalidates a window of the peer.
    pub(crate) fn invalidate_by_peer(&mut self, random: &mut Random) -> Result<bool, Violation> {
        let Some(at) = self.pick_windowed_end(random) else {
            return Ok(false);
        };
        let (free, name) = (self.end(at).send_slots_free(), self.name(at));
        // A READ that is repeated, because packets were lost, must still find the window.
        let fetches = self
            .end(at)
            .sends
            .iter()
            .any(|entry| entry.fetched.is_some());
        let QpIndex::Link(link, side) = at else {
            return Ok(false);
        };
        let peer = QpIndex::Link(link, 1 - side);
        let windows = &self.end(peer).windows;
        let usable: Vec<usize> = (0..windows.len())
            .filter(|&index| windows[index].is_active)
            .filter(|&index| matches!(windows[index].bound, AnyBound::Type2(_)))
            .collect();
        let Some(index) = pick(&usable, random).filter(|_| !fetches) else {
            return Ok(false);
        };
        let region = windows[usable[index]].region;
        let cell = self
            .memory
            .region(region)
            .and_then(|region| region.readable(random));
        let Some((cell, max)) = cell.zip(self.credit(at, 0)) else {
            return Ok(false);
        };
        let Some((payload, mut entry, bytes)) = self.pick_payload(at, max, random) else {
            return Ok(false);
        };
        // Keeps the region, because freeing the window first would make the message fail.
        let effect = Effect::Reads { region, cell };
        self.memory.begin(effect, None);
        entry.effects.push(effect);
        entry.what = "SEND_WITH_INV";
        let window = self.end(peer).windows.swap_remove(usable[index]);
        let message = Message {
            invalidates: Some(window.tag),
            ..Message::new(entry.tag, bytes)
        };
        let flags = Flags {
            tag: entry.tag,
            signaled: free < 2 || random.below(3) > 0,
            fenced: random.below(8) == 0,
        };
        let operation = Operation::SendInv(window.bound.remote().rkey);
        let outbound = Outbound::to_peer(operation);
        self.end(peer).invalidating.push(window);
        self.note(|| format!("{name}: {operation:?} {flags:?} {entry:?}"));
        with_connected!(&mut self.end(at).qp, qp => post(qp, outbound, payload, flags))
            .map_err(|(error, _)| unexpected(&name, error))?;
        self.posted(at, flags, entry, Some(message));
        Ok(true)
    }

    /// Checks that a received message invalidated a window if the peer requested that, and none
    /// otherwise.
    pub(crate) fn check_invalidation(
        &mut self,
        at: QpIndex,
        message: &Message,
        received: &Retired,
    ) -> Result<(), Violation> {
        let name = self.name(at);
        let end = self.end(at);
        let Some(tag) = message.invalidates else {
            if let Some(model) = end.windows.pop() {
                let bound = match model.bound {
                    AnyBound::Type1(bound) => AnyBound::Type1(bound),
                    AnyBound::Type2(bound) => {
                        let Err(bound) = bound.invalidated_by(received) else {
                            let what = "a message invalidated a window by mistake";
                            return Err(Violation(format!("{name}: {what}")));
                        };
                        AnyBound::Type2(bound)
                    }
                };
                end.windows.push(WindowModel { bound, ..model });
            }
            return Ok(());
        };
        // The region can have been dropped with its windows.
        let index = end.invalidating.iter().position(|window| window.tag == tag);
        let Some(index) = index else {
            return Ok(());
        };
        let WindowModel { bound, region, .. } = end.invalidating.swap_remove(index);
        let remote = bound.remote();
        let AnyBound::Type2(bound) = bound else {
            unreachable!("only type 2 windows are invalidated by the peer");
        };
        let Ok(window) = bound.invalidated_by(received) else {
            return Err(Violation(format!(
                "{name}: window {tag} was not invalidated"
            )));
        };
        end.stale = Some(remote);
        let pd = end.pd;
        self.windows.push(FreeWindow {
            pd,
            window: AnyWindow::Type2(window),
            bound_to: Some(region),
        });
        Ok(())
    }

    /// Returns a queue pair that can bind windows and has a free slot.
    fn pick_windowed_end(&mut self, random: &mut Random) -> Option<QpIndex> {
        let at = self.pick_working_end(random)?;
        let usable = matches!(at, QpIndex::Link(..)) && !self.is_lossy(at);
        (usable && self.end(at).send_slots_free() > 0).then_some(at)
    }

    /// Checks that a request which invalidates a window returns it. Returns the result of another
    /// request.
    pub(crate) fn retired_window(
        &mut self,
        at: QpIndex,
        entry: &Entry,
        retired: Retired,
    ) -> Result<Option<Retired>, Violation> {
        let name = format!("{}: {} {}", self.name(at), entry.what, entry.tag);
        let pd = self.end(at).pd;
        match entry.window {
            None => return Ok(Some(retired)),
            Some(WindowRequest::Bind) => {}
            Some(WindowRequest::Invalidate { is_type_2 }) => {
                let success = retired.is_success();
                let window = if is_type_2 {
                    retired.into_window().map(AnyWindow::Type2)
                } else {
                    retired.into_window().map(AnyWindow::Type1)
                };
                match window {
                    Some(window) if success => self.windows.push(FreeWindow {
                        pd,
                        window,
                        bound_to: None,
                    }),
                    None if !success => {}
                    _ => return Err(Violation(format!("{name}: a window was not returned"))),
                }
            }
        }
        Ok(None)
    }

    /// Ends the request that binds a window.
    pub(crate) fn bound(&mut self, at: QpIndex, tag: u64, success: bool) {
        let windows = &mut self.end(at).windows;
        if !success {
            windows.retain(|window| window.tag != tag);
        }
        for window in windows.iter_mut().filter(|window| window.tag == tag) {
            window.is_active = true;
        }
    }

    /// Returns how a queue pair addresses a cell of its peer: with the key of the region, or
    /// through a window.
    pub(crate) fn remote_cell(
        &self,
        at: QpIndex,
        region: usize,
        cell: usize,
        random: &mut Random,
    ) -> RemoteMemory {
        let region = &self.memory.regions[region];
        let range = region.range(cell);
        let number = |number: usize| u64::try_from(number).expect("small");
        let whole = region.region.remote();
        let direct = whole.slice(number(range.start)..number(range.end));
        let direct = direct.expect("within the region");
        let windows = self.peer(at).into_iter().flat_map(|peer| &peer.windows);
        let usable = windows.filter(|window| window.is_active && window.region == region.id);
        let through: Vec<RemoteMemory> = usable
            .filter_map(|window| {
                let memory = window.bound.remote();
                let offset = direct.addr.checked_sub(memory.addr)?;
                memory.slice(offset..offset + direct.len)
            })
            .collect();
        match pick(&through, random).filter(|_| random.below(3) > 0) {
            Some(window) => through[window],
            None => direct,
        }
    }

    /// Returns memory that a queue pair may not access anymore: through a window that its peer has
    /// invalidated.
    pub(crate) fn stale_window(&self, at: QpIndex) -> Option<RemoteMemory> {
        let peer = self.peer(at)?;
        let invalidated = peer.sends.iter().all(|entry| entry.window.is_none());
        let mut windows = self
            .ends()
            .flat_map(|end| end.windows.iter().chain(&end.invalidating));
        // A new window can have the key of one that was freed.
        let stale = peer.stale.filter(|_| invalidated)?;
        let is_used = windows.any(|window| window.bound.remote().rkey == stale.rkey);
        stale.slice(0..8).filter(|_| !is_used)
    }
}
