//! Asynchronous events: a queue for each opening of a device, and a byte in its pipe for each
//! event.

use std::ffi::c_int;
use std::sync::MutexGuard;
use std::thread;
use std::time::Duration;

use rdma_sys::{ibv_async_event, ibv_async_event__bindgen_ty_1, ibv_context};

use crate::device::FakeDevice;
use crate::event_kind::{Event, Of, of_type};
use crate::fault::Verb;
use crate::set_errno;
use crate::world::{Context, World};

impl World {
    /// An event of this type happens to everything that it can happen to; those of ports, to port
    /// 1.
    pub(crate) fn raise_all(&mut self, event_type: u32) {
        let of = of_type(event_type);
        let queues: Vec<usize> = match of(1) {
            Of::Cq(_) => self.cqs.numbers().collect(),
            Of::Qp(_) => self.qps.numbers().collect(),
            Of::Srq(_) => self.srqs.numbers().collect(),
            of @ Of::Number(_) => {
                for context in self.contexts.numbers().collect::<Vec<_>>() {
                    self.report(context, Event { event_type, of });
                }
                return;
            }
        };
        for queue in queues {
            self.raise(event_type, of(queue));
        }
    }

    /// An event of one queue, which the opening hears of that it was made on.
    pub(crate) fn raise(&mut self, event_type: u32, of: Of) {
        let of_domain = |world: &Self, pd: usize| world.pds.get(pd).map(|pd| pd.context);
        let context = match of {
            Of::Cq(cq) => self.cqs.get(cq).map(|cq| cq.context),
            Of::Qp(qp) => self
                .qps
                .get(qp)
                .filter(|qp| !qp.handle.0.is_null())
                .and_then(|qp| of_domain(self, qp.pd)),
            Of::Srq(srq) => self
                .srqs
                .get(srq)
                .filter(|srq| !srq.handle.0.is_null())
                .and_then(|srq| of_domain(self, srq.pd)),
            Of::Number(_) => None,
        };
        if let Some(context) = context {
            self.report(context, Event { event_type, of });
        }
    }

    fn report(&mut self, context: usize, event: Event) {
        let Some(opening) = self.contexts.get_mut(context) else {
            return;
        };
        opening.events.push_back(event);
        // SAFETY: one byte into a pipe of this crate's own.
        let written = unsafe { libc::write(opening.writer, [1_u8].as_ptr().cast(), 1) };
        if written != 1 {
            self.violation("the pipe of asynchronous events is full");
        }
    }

    /// The count of an object's events that were taken and not yet acknowledged.
    fn taken(&mut self, of: Of) -> Option<&mut u32> {
        match of {
            Of::Cq(cq) => self.cqs.get_mut(cq).map(|cq| &mut cq.events_taken),
            Of::Qp(qp) => self.qps.get_mut(qp).map(|qp| &mut qp.events_taken),
            Of::Srq(srq) => self.srqs.get_mut(srq).map(|srq| &mut srq.events_taken),
            Of::Number(_) => None,
        }
    }

    /// Takes the events away that nobody has taken of an object that is about to go.
    pub(crate) fn forget_events(&mut self, of: Of) {
        for context in self.contexts.iter_mut() {
            let before = context.events.len();
            context.events.retain(|event| event.of != of);
            for _ in context.events.len()..before {
                context.read();
            }
        }
    }
}

impl Context {
    /// Takes a byte out of the pipe, which has one for each event.
    fn read(&self) {
        let mut byte = 0_u8;
        // SAFETY: one byte from a pipe of this crate's own. It does not block: nobody else reads,
        // and there is one.
        unsafe { libc::read(self.reader, (&raw mut byte).cast(), 1) };
    }
}

/// How often destroying looks whether an event was acknowledged, and how long it sleeps in between.
const PATIENCE: u32 = 2000;
const NAP: Duration = Duration::from_millis(1);

/// Waits until all events of an object that were taken are acknowledged, as libibverbs does before
/// it destroys one.
pub(crate) fn settled<'a>(
    device: &'a FakeDevice,
    mut world: MutexGuard<'a, World>,
    of: Of,
) -> MutexGuard<'a, World> {
    for _ in 0..PATIENCE {
        if world.taken(of).is_none_or(|taken| *taken == 0) {
            world.forget_events(of);
            return world;
        }
        drop(world);
        thread::sleep(NAP);
        world = device.world();
    }
    world.violation(format!(
        "{of:?} was destroyed with an event that nobody acknowledges: libibverbs waits for ever"
    ));
    world
}

/// `ibv_get_async_event(3)`, with the descriptor not blocking.
#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_get_async_event(
    context: *mut ibv_context,
    event: *mut ibv_async_event,
) -> c_int {
    // SAFETY: the caller gives an open context.
    let (mut world, number) = unsafe {
        (
            FakeDevice::of_context(context).world(),
            crate::handle::context(context),
        )
    };
    let fault = world.faults.take(Verb::GetAsyncEvent);
    let taken = world
        .contexts
        .get_mut(number)
        .filter(|_| fault.is_none())
        .and_then(|opening| {
            let event = opening.events.pop_front()?;
            opening.read();
            Some(event)
        });
    let Some(Event { event_type, of }) = taken else {
        set_errno(fault.unwrap_or(libc::EAGAIN));
        return -1;
    };
    if let Some(taken) = world.taken(of) {
        *taken += 1;
    }
    let mut element = ibv_async_event__bindgen_ty_1 {
        cq: std::ptr::null_mut(),
    };
    // An event of an object that is gone was taken off the list with it.
    match of {
        Of::Cq(cq) => {
            element.cq = world
                .cqs
                .get(cq)
                .map_or(std::ptr::null_mut(), |cq| cq.handle.0);
        }
        Of::Qp(qp) => {
            element.qp = world
                .qps
                .get(qp)
                .map_or(std::ptr::null_mut(), |qp| qp.handle.0);
        }
        Of::Srq(srq) => {
            element.srq = world
                .srqs
                .get(srq)
                .map_or(std::ptr::null_mut(), |srq| srq.handle.0);
        }
        Of::Number(number) => element.port_num = number,
    }
    // SAFETY: the caller gives a place for the answer.
    unsafe {
        event.write(ibv_async_event {
            element,
            event_type,
        });
    };
    0
}

/// `ibv_ack_async_event(3)`. It looks into the object: Miri finds one that is gone.
#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_ack_async_event(event: *mut ibv_async_event) {
    // SAFETY: the caller gives an event that it took; its object is alive until this has happened.
    let (device, of) = unsafe {
        let ibv_async_event {
            element,
            event_type,
        } = *event;
        let of = of_type(event_type);
        match of(0) {
            Of::Cq(_) => (
                FakeDevice::of_context((*element.cq).context),
                of(crate::handle::cq(element.cq)),
            ),
            Of::Qp(_) => (
                FakeDevice::of_context((*element.qp).context),
                of(crate::handle::qp(element.qp)),
            ),
            Of::Srq(_) => (
                FakeDevice::of_context((*element.srq).context),
                of(crate::handle::srq(element.srq)),
            ),
            Of::Number(_) => return,
        }
    };
    let mut world = device.world();
    let left = world.taken(of).and_then(|taken| {
        *taken = taken.checked_sub(1)?;
        Some(())
    });
    if left.is_none() {
        world.violation("more asynchronous events were acknowledged than taken");
    }
}

pub(crate) fn entry_points() -> Vec<*const ()> {
    vec![
        ibv_get_async_event as *const (),
        ibv_ack_async_event as *const (),
    ]
}
