//! A queue of NVMe over RDMA: a connection, on which a submission queue entry is a SEND of the host
//! and a completion queue entry a SEND of the controller. The controller reads and writes the data
//! of commands in the host's memory.

use std::mem;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use ibverbs::mw::{Binding, BoundWindow, Type2, Window};
use ibverbs::{
    AccessFlags, CompletionChannel, CompletionQueue, Context, CqOptions, Direction, ErrorKind,
    Held, HeldList, QpOptions, QueuePair, Rc, RemoteMemory, Retired, SharedRegion, wr,
};
use rdmacm::{ConnectParams, Connection, Resolver};

use crate::wire::{self, COMMAND_LEN, Command, Completion, RESPONSE_LEN};
use crate::{Error, Result};

/// Time limit for connecting, and for the next completion of a command in flight.
const TIMEOUT: Duration = Duration::from_secs(10);
/// Interval at which a waiting queue looks for the end of its connection.
const EVENT_INTERVAL: Duration = Duration::from_millis(50);
/// Operations of a controller on the host's memory.
const DATA_ACCESS: AccessFlags = AccessFlags::REMOTE_READ.union(AccessFlags::REMOTE_WRITE);

/// A queue with its commands in flight.
#[derive(Debug)]
pub struct Queue {
    qid: u16,
    entries: u16,
    connection: Connection,
    cq: CompletionQueue,
    channel: CompletionChannel,
    capsules: Capsules,
    slots: Vec<Slot>,
    /// Slots without a command.
    free: Vec<usize>,
    max_capsule_data: usize,
    invalidated: u64,
}

/// Memory for one command. The index of its slot is the command's identifier.
#[derive(Debug)]
struct Slot {
    data: SharedRegion,
    held: Held<SharedRegion>,
    /// The last capsule with data, and the length of the data.
    capsule: Option<(usize, HeldList<SharedRegion>)>,
    key: Key,
    /// The SEND of the command has completed.
    is_sent: bool,
    response: Option<(Retired, Completion)>,
}

/// Access of the controller to the data of a slot.
#[derive(Debug)]
enum Key {
    /// The key of all data, which is valid as long as the queue. For devices without windows.
    Region,
    /// A window that gives access to the data of one command. The controller invalidates it with
    /// the response, so it has no access to the memory when the host uses it.
    Window(Option<Window<Type2>>),
    /// The window of a command in flight.
    Bound(BoundWindow<Type2>),
}

impl Queue {
    /// Connects the queue on the connection manager, for at most `depth` commands in flight with at
    /// most `data_len` bytes each. `context` is the open device of the controller's admin queue.
    ///
    /// # Errors
    /// Fails if the target rejects the queue or is unreachable.
    pub fn connect(
        target: SocketAddr,
        qid: u16,
        depth: u16,
        data_len: usize,
        context: Option<&Context>,
    ) -> Result<Self> {
        let route = Resolver::new(target).timeout(TIMEOUT).resolve()?;
        let context = context.map_or_else(|| route.context(), |context| Ok(context.clone()))?;
        let channel = context.create_comp_channel()?;
        // Each command has a binding, a SEND and a response.
        let (commands, sends) = (u32::from(depth), u32::from(depth) * 2);
        let cq = CqOptions::new().depth(commands + sends).channel(&channel);
        let cq = context.create_cq(cq)?;
        let options = QpOptions::new().max_send_wr(sends).max_batch(sends);
        let options = options.max_recv_wr(commands).max_send_sge(2);
        let pd = context.alloc_pd()?;
        let mut qp = pd.create_qp::<Rc>(&cq, &cq, options)?;
        let capsules = Capsules::new(&mut qp, depth.into())?;
        let slots = allocate_slots(&mut qp, depth.into(), data_len, qid != 0)?;

        let mut ready = route.access(DATA_ACCESS).with_qp(qp)?;
        for slot in 0..slots.len() {
            capsules.post_response(ready.qp_mut(), slot)?;
        }
        // The host reads nothing of the controller.
        let private_data = wire::connect_request(qid, depth + 1);
        let params = ConnectParams::new().private_data(&private_data);
        let connection = ready.connect(&params.initiator_depth(0), TIMEOUT);
        let connection = connection.map_err(|error| {
            let rejection = error.rejection();
            match rejection.and_then(|rejection| wire::reject_reason(&rejection.private_data)) {
                Some(reason) => Error::Target(format!("the target rejected queue {qid}: {reason}")),
                None => Error::Verbs(error.into()),
            }
        })?;
        let size = wire::receive_queue_size(connection.private_data());
        if size.is_none_or(|size| size < depth) {
            let what = format!("the target accepted queue {qid} with CRQSIZE {size:?}");
            return Err(Error::Target(what));
        }
        Ok(Self {
            qid,
            entries: depth + 1,
            connection,
            cq,
            channel,
            capsules,
            free: (0..slots.len()).rev().collect(),
            slots,
            max_capsule_data: 0,
            invalidated: 0,
        })
    }

    /// Returns the identifier of the queue, 0 for the admin queue.
    pub fn qid(&self) -> u16 {
        self.qid
    }

    /// Returns the maximum number of commands in flight.
    pub fn depth(&self) -> usize {
        self.slots.len()
    }

    /// Returns the number of entries: one of them stays empty, to distinguish a full queue.
    pub(crate) fn entries(&self) -> u16 {
        self.entries
    }

    /// Sets the maximum length of data that is sent in the capsule of its command. Default: 0.
    pub(crate) fn set_max_capsule_data(&mut self, len: usize) {
        self.max_capsule_data = len;
    }

    /// Returns the open device.
    pub fn context(&self) -> &Context {
        self.connection.qp().pd().context()
    }

    /// Returns the number of responses that invalidated the key of their command.
    pub fn invalidated(&self) -> u64 {
        self.invalidated
    }

    /// Ends the connection. Commands in flight are lost.
    pub fn disconnect(&mut self) {
        // It fails if the device was removed, which ends the connection too.
        let _ = self.connection.disconnect();
    }

    /// Executes one command, with data for the controller. Returns its result and its data, which
    /// the controller may have written.
    ///
    /// # Errors
    /// Same as [`run`](Self::run).
    pub fn execute(&mut self, command: Command, data: &[u8]) -> Result<(u64, Vec<u8>)> {
        let mut next = Some(command);
        let mut completed = (0, vec![0; command.data_len()]);
        self.run(
            |_, memory| {
                memory.write(0, data)?;
                Ok(next.take())
            },
            |_, memory, result| {
                completed.0 = result;
                Ok(memory.read(0, &mut completed.1)?)
            },
        )?;
        Ok(completed)
    }

    /// Keeps the queue full until there are no more commands and none is in flight.
    ///
    /// `next` returns the next command. Its arguments are a free slot and the memory of that slot,
    /// into which it writes the data for the controller. `done` reads the data of a successful
    /// command. Its last argument is the result.
    ///
    /// # Errors
    /// Fails if the connection has ended, if a command fails, or if a closure fails. Other commands
    /// can then be in flight, and the queue must be dropped.
    pub fn run(
        &mut self,
        mut next: impl FnMut(usize, &SharedRegion) -> Result<Option<Command>>,
        mut done: impl FnMut(usize, &SharedRegion, u64) -> Result<()>,
    ) -> Result<()> {
        let mut batch = Vec::with_capacity(self.slots.len());
        let mut completed = Vec::with_capacity(self.slots.len());
        let mut has_more = true;
        loop {
            while let (true, Some(&slot)) = (has_more, self.free.last()) {
                if let Some(command) = next(slot, &self.slots[slot].data)? {
                    self.free.pop();
                    batch.push((slot, command));
                } else {
                    has_more = false;
                }
            }
            self.post(&batch).map_err(|error| self.lost(error))?;
            batch.clear();
            if self.free.len() == self.slots.len() {
                return Ok(());
            }
            self.wait(&mut completed)?;
            for completion in completed.drain(..) {
                if !completion.status.is_success() {
                    let (qid, status) = (self.qid, completion.status);
                    let what = format!("queue {qid}: the controller returned {status}");
                    return Err(Error::Target(what));
                }
                let slot = usize::from(completion.command_id);
                done(slot, &self.slots[slot].data, completion.result)?;
                self.free.push(slot);
            }
        }
    }

    /// Posts commands with one doorbell.
    fn post(&mut self, commands: &[(usize, Command)]) -> ibverbs::Result<()> {
        let (slots, capsules) = (&mut self.slots, &self.capsules);
        let in_capsule = |command: &Command| {
            let to_controller = command.data_access() == AccessFlags::REMOTE_READ;
            to_controller && (1..=self.max_capsule_data).contains(&command.data_len())
        };
        let qp = self.connection.qp_mut();
        for (id, command) in commands.iter().filter(|(_, command)| in_capsule(command)) {
            slots[*id].hold_capsule(qp, capsules.command(*id), command.data_len())?;
        }
        qp.batch(|batch| {
            for &(id, command) in commands {
                let slot = &mut slots[id];
                slot.is_sent = false;
                let mut command = command.with_id(u16::try_from(id).expect("a slot"));
                if in_capsule(&command) {
                    capsules.write_command(&command.with_data_in_capsule(), id)?;
                    let (_, capsule) = slot.capsule.expect("held above");
                    batch.send(wr::send(capsule).tag(id as u64))?;
                    continue;
                }
                if command.data_len() > 0 {
                    let (memory, binding) = slot.expose(&command)?;
                    command = command.with_data(memory, binding.is_some());
                    if let Some(binding) = binding {
                        batch.send(wr::bind(binding).signaled(false))?;
                    }
                }
                capsules.write_command(&command, id)?;
                batch.send(wr::send(capsules.command(id)).tag(id as u64))?;
            }
            Ok(())
        })
    }

    /// Waits until at least one command is complete.
    fn wait(&mut self, completed: &mut Vec<Completion>) -> Result<()> {
        let deadline = Instant::now() + TIMEOUT;
        while Instant::now() < deadline {
            self.poll(completed)?;
            if completed.is_empty() {
                // A completion between a poll and the request for an event causes none.
                self.cq.arm(false)?;
                self.poll(completed)?;
            }
            if !completed.is_empty() {
                return Ok(());
            }
            if self.channel.wait(Some(EVENT_INTERVAL))?.is_none() {
                self.connection.try_event()?;
            }
            if self.connection.is_disconnected() {
                return Err(self.lost("the target disconnected"));
            }
        }
        Err(self.lost(format!("no completion within {} s", TIMEOUT.as_secs())))
    }

    /// Retires the completions that have arrived. A command is complete with its SEND and its
    /// response, which can come in either order.
    fn poll(&mut self, completed: &mut Vec<Completion>) -> Result<()> {
        loop {
            let completions = self.cq.poll()?;
            if completions.is_empty() {
                return Ok(());
            }
            for completion in completions {
                let retired = self.connection.qp_mut().retire(completion);
                let retired = retired.map_err(ibverbs::Error::from)?;
                let lost = |error| Error::Lost(format!("queue {}: {error}", self.qid));
                retired.check().map_err(lost)?;
                let mut slot = usize::try_from(retired.tag()).expect("the tags are slots");
                if retired.direction() == Direction::Send {
                    self.slots[slot].is_sent = true;
                } else {
                    let response = self.capsules.read_response(slot)?;
                    let qp = self.connection.qp_mut();
                    self.capsules.post_response(qp, slot)?;
                    slot = usize::from(response.command_id);
                    match self.slots.get_mut(slot) {
                        Some(Slot {
                            response: empty @ None,
                            ..
                        }) => {
                            *empty = Some((retired, response));
                        }
                        _ => return Err(Error::Target(format!("unexpected {response:?}"))),
                    }
                }
                completed.extend(self.slots[slot].complete(&mut self.invalidated));
            }
        }
    }

    fn lost(&self, reason: impl std::fmt::Display) -> Error {
        Error::Lost(format!("queue {}: {reason}", self.qid))
    }
}

/// Allocates the memory of the slots, with a window for each slot if `has_windows` and the device
/// has windows.
fn allocate_slots(
    qp: &mut QueuePair<Rc>,
    depth: usize,
    data_len: usize,
    has_windows: bool,
) -> ibverbs::Result<Vec<Slot>> {
    let pd = qp.pd();
    let windows = (0..if has_windows { depth } else { 0 }).map(|_| pd.alloc_mw::<Type2>());
    let windows = match windows.collect::<ibverbs::Result<Vec<_>>>() {
        Err(error) if error.kind() == ErrorKind::Unsupported => Vec::new(),
        windows => windows?,
    };
    let access = if windows.is_empty() {
        DATA_ACCESS
    } else {
        AccessFlags::MW_BIND
    };
    let data = pd.shared(depth * data_len, access)?;
    let held = qp.hold(&data)?;
    let mut windows = windows.into_iter();
    let slot = |index: usize| {
        let range = index * data_len..(index + 1) * data_len;
        let window = windows.next();
        Slot {
            data: data.slice(range.clone()).expect("within the region"),
            held: held.slice(range).expect("within the region"),
            capsule: None,
            key: window.map_or(Key::Region, |window| Key::Window(Some(window))),
            is_sent: false,
            response: None,
        }
    };
    Ok((0..depth).map(slot).collect())
}

impl Slot {
    /// Gives the controller access to the data of a command. Returns the memory, and the binding of
    /// its window to post before the command.
    fn expose(&mut self, command: &Command) -> ibverbs::Result<(RemoteMemory, Option<Binding>)> {
        let data = self.data.slice(0..command.data_len());
        let data = data.expect("at most the maximum length");
        let Key::Window(window) = &mut self.key else {
            return Ok((data.remote(), None));
        };
        let window = match window.take() {
            Some(window) => window,
            None => data.pd().alloc_mw()?,
        };
        let (bound, binding) = window.bind(&data, command.data_access())?;
        let memory = bound.remote();
        self.key = Key::Bound(bound);
        Ok((memory, Some(binding)))
    }

    /// Keeps the list of a command and `len` bytes of data, which are sent together.
    fn hold_capsule(
        &mut self,
        qp: &mut QueuePair<Rc>,
        command: Held<SharedRegion>,
        len: usize,
    ) -> ibverbs::Result<()> {
        if self.capsule.is_none_or(|(held, _)| held != len) {
            let data = self.held.slice(0..len).expect("at most the maximum length");
            self.capsule = Some((len, qp.hold_list(&[command, data])?));
        }
        Ok(())
    }

    /// Returns the response if the command is complete. The controller then has no access to the
    /// data, unless the device has no windows.
    fn complete(&mut self, invalidated: &mut u64) -> Option<Completion> {
        let (retired, response) = self.response.take_if(|_| self.is_sent)?;
        self.key = match mem::replace(&mut self.key, Key::Region) {
            Key::Bound(window) => {
                // A controller may ignore the request to invalidate the key. The window is then
                // freed, which ends the access, and replaced by a new one.
                let window = window.invalidated_by(&retired).ok();
                *invalidated += u64::from(window.is_some());
                Key::Window(window)
            }
            key => key,
        };
        Some(response)
    }
}

/// Registered memory without access for the peer: a command and a response capsule for each slot.
#[derive(Debug)]
struct Capsules {
    memory: SharedRegion,
    held: Held<SharedRegion>,
}

impl Capsules {
    fn new(qp: &mut QueuePair<Rc>, slots: usize) -> ibverbs::Result<Self> {
        let len = slots * (COMMAND_LEN + RESPONSE_LEN);
        let memory = qp.pd().shared(len, AccessFlags::LOCAL_WRITE)?;
        let held = qp.hold(&memory)?;
        Ok(Self { memory, held })
    }

    /// Returns the offset of a command, which the response follows.
    fn offset(slot: usize) -> usize {
        slot * (COMMAND_LEN + RESPONSE_LEN)
    }

    fn write_command(&self, command: &Command, slot: usize) -> ibverbs::Result<()> {
        self.memory.write(Self::offset(slot), command.as_bytes())
    }

    fn command(&self, slot: usize) -> Held<SharedRegion> {
        let offset = Self::offset(slot);
        let command = self.held.slice(offset..offset + COMMAND_LEN);
        command.expect("within the region")
    }

    fn post_response(&self, qp: &mut QueuePair<Rc>, slot: usize) -> ibverbs::Result<()> {
        let offset = Self::offset(slot) + COMMAND_LEN;
        let capsule = self.held.slice(offset..offset + RESPONSE_LEN);
        let capsule = capsule.expect("within the region");
        Ok(qp.post_recv(wr::recv(capsule).tag(slot as u64))?)
    }

    fn read_response(&self, slot: usize) -> ibverbs::Result<Completion> {
        let mut bytes = [0; RESPONSE_LEN];
        let offset = Self::offset(slot) + COMMAND_LEN;
        self.memory.read(offset, &mut bytes)?;
        Ok(Completion::parse(&bytes))
    }
}
