//! A controller: its admin queue, its I/O queues and its namespace.

use std::net::SocketAddr;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use crate::queue::Queue;
use crate::session::Direction;
use crate::wire::{self, Command, IDENTIFY_LEN, Property, cc, cns, csts};
use crate::{Error, Result};

/// Number of I/O queues.
const IO_QUEUES: u16 = 2;
/// Maximum number of commands in flight on an I/O queue.
const IO_DEPTH: u16 = 32;
/// Depth of the admin queue: its 32 entries are the minimum of the specification.
const ADMIN_DEPTH: u16 = 31;
/// Maximum length of the data of a command in bytes, if the controller accepts it.
const MAX_TRANSFER: usize = 128 << 10;
/// A controller ends the connections of a host that sends nothing for so long (KATO).
pub const KEEP_ALIVE_TIMEOUT: Duration = Duration::from_secs(5);
/// Time limit for enabling a controller and for its shutdown.
const STATE_TIMEOUT: Duration = Duration::from_secs(10);
const STATE_INTERVAL: Duration = Duration::from_millis(10);

/// A subsystem of a target.
#[derive(Clone, Debug)]
pub struct Subsystem {
    /// Address of the target, such as `10.0.0.1:4420`.
    pub target: SocketAddr,
    /// NVMe qualified name of the subsystem.
    pub nqn: String,
    /// Identifier of this host, a UUID such as `0d1f3a52-8f3e-4b6e-9d6c-0f3c3b1f6a11`.
    pub host_id: String,
}

/// A namespace.
#[derive(Clone, Copy, Debug)]
pub struct Namespace {
    /// Identifier.
    pub nsid: u32,
    /// Size in logical blocks.
    pub blocks: u64,
    /// Length of a logical block in bytes.
    pub block_len: u64,
    /// Maximum length of the data of a command in bytes.
    pub max_transfer: usize,
}

impl Namespace {
    /// Returns the size in bytes.
    pub fn size(&self) -> u64 {
        self.blocks * self.block_len
    }

    /// Returns the command that transfers `len` bytes. Both numbers are multiples of the length of
    /// a block.
    pub(crate) fn command(&self, direction: Direction, position: u64, len: usize) -> Command {
        let lba = position / self.block_len;
        let blocks = u16::try_from(len as u64 / self.block_len).expect("at most `max_transfer`");
        match direction {
            Direction::Read => Command::read(self.nsid, lba, blocks, len),
            Direction::Write(_) => Command::write(self.nsid, lba, blocks, len),
        }
    }
}

/// A connected controller with its first namespace.
#[derive(Debug)]
pub struct Controller {
    admin: Queue,
    /// The I/O queues.
    pub io: Vec<Queue>,
    /// Model, firmware revision, serial number and other data of the controller.
    pub data: wire::ControllerData,
    /// The namespace.
    pub namespace: Namespace,
}

impl Controller {
    /// Connects the admin queue, enables the controller, identifies it, and connects its I/O
    /// queues.
    ///
    /// # Errors
    /// Fails if a queue cannot be connected, or if the controller returns an error.
    pub fn connect(subsystem: &Subsystem) -> Result<Self> {
        let mut admin = Queue::connect(subsystem.target, 0, ADMIN_DEPTH, IDENTIFY_LEN, None)?;
        let id = fabrics_connect(&mut admin, subsystem, wire::CONTROLLER_DYNAMIC)?;
        set_configuration(&mut admin, cc::ENABLED)?;
        wait_for_status(&mut admin, csts::READY, csts::READY)?;

        let data = identify(&mut admin, cns::CONTROLLER, 0)?;
        let data = wire::ControllerData::parse(&data).map_err(Error::Target)?;
        let list = identify(&mut admin, cns::ACTIVE_NAMESPACES, 0)?;
        let missing = || Error::Target("the subsystem has no namespace".into());
        let nsid = wire::first_namespace(&list).ok_or_else(missing)?;
        let format = identify(&mut admin, cns::NAMESPACE, nsid)?;
        let (blocks, block_len) = wire::namespace_size(&format).map_err(Error::Target)?;
        let max_transfer = data.max_transfer.min(MAX_TRANSFER);

        let (granted, _) = admin.execute(Command::set_number_of_queues(IO_QUEUES), &[])?;
        let (cap, _) = admin.execute(Command::property_get(Property::Cap), &[])?;
        let depth = IO_DEPTH.min(wire::max_commands(cap).map_err(Error::Target)?);
        let mut io = Vec::new();
        for qid in 1..=wire::granted_queues(granted).min(IO_QUEUES) {
            let context = Some(admin.context());
            let mut queue = Queue::connect(subsystem.target, qid, depth, max_transfer, context)?;
            queue.set_max_capsule_data(data.max_capsule_data);
            fabrics_connect(&mut queue, subsystem, id)?;
            io.push(queue);
        }
        let namespace = Namespace {
            nsid,
            blocks,
            block_len,
            max_transfer,
        };
        Ok(Self {
            admin,
            io,
            data,
            namespace,
        })
    }

    /// Runs `work` on all I/O queues at the same time, each on a thread of its own, and keeps the
    /// controller alive meanwhile.
    ///
    /// # Errors
    /// The first error of the keep-alive or of `work`.
    ///
    /// # Panics
    /// Panics if `work` panics.
    pub fn with_io_queues<T: Send>(
        &mut self,
        work: impl Fn(&mut Queue) -> Result<T> + Sync,
    ) -> Result<Vec<T>> {
        let (admin, work) = (&mut self.admin, &work);
        thread::scope(|scope| {
            // A thread that ends drops its sender.
            let (running, ended) = mpsc::channel::<()>();
            let start = |queue| {
                let running = running.clone();
                scope.spawn(move || {
                    let _running = running;
                    work(queue)
                })
            };
            let threads: Vec<_> = self.io.iter_mut().map(start).collect();
            drop(running);
            let mut alive = Ok(());
            while ended.recv_timeout(KEEP_ALIVE_TIMEOUT / 2) == Err(RecvTimeoutError::Timeout) {
                alive = alive.and_then(|()| admin.execute(Command::keep_alive(), &[]).map(drop));
            }
            let results = threads.into_iter().map(thread::ScopedJoinHandle::join);
            let results = results.map(|result| result.expect("`work` did not panic"));
            alive.and(results.collect())
        })
    }

    /// Writes the volatile cache of the namespace.
    ///
    /// # Errors
    /// Those of [`Queue::execute`].
    pub fn flush(&mut self) -> Result<()> {
        let command = Command::flush(self.namespace.nsid);
        self.io[0].execute(command, &[]).map(drop)
    }

    /// Ends all connections without a shutdown, so that no command of this host is executed after
    /// it has connected again.
    pub fn abandon(&mut self) {
        for queue in self.io.iter_mut().chain([&mut self.admin]) {
            queue.disconnect();
        }
    }

    /// Shuts the controller down, waits until it has, and disconnects all queues.
    ///
    /// # Errors
    /// Fails if the controller does not complete the shutdown.
    pub fn shut_down(mut self) -> Result<()> {
        set_configuration(&mut self.admin, cc::ENABLED | cc::SHUTDOWN)?;
        wait_for_status(
            &mut self.admin,
            csts::SHUTDOWN_MASK,
            csts::SHUTDOWN_COMPLETE,
        )
    }
}

/// Creates the queue at the controller, and returns the controller's identifier.
fn fabrics_connect(queue: &mut Queue, subsystem: &Subsystem, controller: u16) -> Result<u16> {
    let keep_alive = if queue.qid() == 0 {
        KEEP_ALIVE_TIMEOUT
    } else {
        Duration::ZERO
    };
    let command = Command::connect(queue.qid(), queue.entries(), keep_alive);
    let data = wire::connect_data(&subsystem.host_id, controller, &subsystem.nqn);
    let (result, _) = queue.execute(command, &data.map_err(Error::Target)?)?;
    Ok(wire::controller_id(result))
}

fn identify(admin: &mut Queue, cns: u32, nsid: u32) -> Result<Vec<u8>> {
    let (_, data) = admin.execute(Command::identify(cns, nsid), &[])?;
    Ok(data)
}

fn set_configuration(admin: &mut Queue, value: u32) -> Result<()> {
    let command = Command::property_set(Property::Cc, value);
    admin.execute(command, &[]).map(drop)
}

/// Waits until the bits of CSTS in `mask` have this value.
fn wait_for_status(admin: &mut Queue, mask: u64, value: u64) -> Result<()> {
    let deadline = Instant::now() + STATE_TIMEOUT;
    loop {
        let (status, _) = admin.execute(Command::property_get(Property::Csts), &[])?;
        if status & mask == value {
            return Ok(());
        }
        if status & csts::FATAL != 0 || Instant::now() > deadline {
            let what = format!("the controller did not change its state: CSTS is {status:#x}");
            return Err(Error::Target(what));
        }
        thread::sleep(STATE_INTERVAL);
    }
}
