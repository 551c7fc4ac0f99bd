//! Memory windows: binding them, access through them, and invalidating them.

use ibverbs::mw::{BoundWindow, Type1, Type2, Window};
use ibverbs::{RemoteMemory, Retired, wr};
use test_support::random::Random;

use crate::Violation;
use crate::any_qp::with_qp;
use crate::link::Entry;
use crate::memory::Id;
use crate::objects::pick;
use crate::world::{World, unexpected};

/// Number of windows of a queue pair.
const MAX_WINDOWS: usize = 4;

pub(crate) enum AnyWindow {
    Type1(Window<Type1>),
    Type2(Window<Type2>),
}

pub(crate) enum AnyBound {
    Type1(BoundWindow<Type1>),
    Type2(BoundWindow<Type2>),
}

impl AnyBound {
    fn remote(&self) -> RemoteMemory {
        match self {
            Self::Type1(bound) => bound.remote(),
            Self::Type2(bound) => bound.remote(),
        }
    }
}

/// A window that a queue pair has bound. Only the peer uses it.
pub(crate) struct WindowModel {
    /// The request that binds it.
    tag: u64,
    bound: AnyBound,
    pub(crate) region: Id,
    /// The request that binds it has completed.
    is_active: bool,
}

/// The effect of a request on a window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WindowRequest {
    Bind,
    Invalidate { is_type_2: bool },
}

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
        let domain = with_qp!(&mut end.qp, qp => qp.pd().clone());
        let free = free
            .filter(|(owner, _)| *owner == pd)
            .map(|(_, window)| window);
        let window = match free {
            Some(window) => window,
            None if random.below(2) == 0 => AnyWindow::Type1(domain.alloc_mw()?),
            None => AnyWindow::Type2(domain.alloc_mw()?),
        };
        let bound = match window {
            AnyWindow::Type1(window) => AnyBound::Type1(
                with_qp!(&mut end.qp, qp => qp.bind_mw(window, &memory, access, tag))?,
            ),
            AnyWindow::Type2(window) => {
                let (bound, binding) = window.bind(&memory, access)?;
                with_qp!(&mut end.qp, qp => qp.post_send(wr::bind(binding).tag(tag)))
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
        let peer = self.links[at.0].ends[1 - at.1].as_ref();
        let unused = peer.is_none_or(|peer| peer.sends.is_empty());
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
            AnyBound::Type1(bound) => with_qp!(&mut end.qp, qp => qp.unbind_mw(bound, tag))?,
            AnyBound::Type2(bound) => {
                with_qp!(&mut end.qp, qp => qp.post_send(wr::invalidate(bound).tag(tag)))
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

    /// Returns a queue pair that can bind windows and has a free slot.
    fn pick_windowed_end(&mut self, random: &mut Random) -> Option<(usize, usize)> {
        let at = self.pick_working_end(random)?;
        let usable = self.setup.is_ib && !self.links[at.0].lossy;
        (usable && self.end(at).send_slots_free() > 0).then_some(at)
    }

    /// Checks that a request which invalidates a window returns it. Returns the result of another
    /// request.
    pub(crate) fn retired_window(
        &mut self,
        at: (usize, usize),
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
                    Some(window) if success => self.windows.push((pd, window)),
                    None if !success => {}
                    _ => return Err(Violation(format!("{name}: a window was not returned"))),
                }
            }
        }
        Ok(None)
    }

    /// Ends the request that binds a window.
    pub(crate) fn bound(&mut self, at: (usize, usize), tag: u64, success: bool) {
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
        at: (usize, usize),
        region: usize,
        cell: usize,
        random: &mut Random,
    ) -> RemoteMemory {
        let region = &self.memory.regions[region];
        let range = region.range(cell);
        let number = |number: usize| u64::try_from(number).expect("small");
        let whole = region.region.remote();
        let direct = whole.slice(number(range.start), number(range.len()));
        let direct = direct.expect("within the region");
        let peer = self.links[at.0].ends[1 - at.1].as_ref();
        let windows = peer.into_iter().flat_map(|peer| &peer.windows);
        let usable = windows.filter(|window| window.is_active && window.region == region.id);
        let through: Vec<RemoteMemory> = usable
            .filter_map(|window| {
                let memory = window.bound.remote();
                let offset = direct.addr.checked_sub(memory.addr)?;
                memory.slice(offset, direct.len)
            })
            .collect();
        match pick(&through, random).filter(|_| random.below(3) > 0) {
            Some(window) => through[window],
            None => direct,
        }
    }

    /// Returns memory that a queue pair may not access anymore: through a window that its peer has
    /// invalidated.
    pub(crate) fn stale_window(&self, (link, side): (usize, usize)) -> Option<RemoteMemory> {
        let peer = self.links[link].ends[1 - side].as_ref()?;
        let invalidated = peer.sends.iter().all(|entry| entry.window.is_none());
        let ends = self.links.iter().flat_map(|link| &link.ends).flatten();
        let mut windows = ends.flat_map(|end| &end.windows);
        // A new window can have the key of one that was freed.
        let stale = peer.stale.filter(|_| invalidated)?;
        let is_used = windows.any(|window| window.bound.remote().rkey == stale.rkey);
        stale.slice(0, 8).filter(|_| !is_used)
    }
}
