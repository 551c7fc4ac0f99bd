//! The state of the model, its lock and its engine.
#![allow(unsafe_code, reason = "registers handlers for fork")]

use std::ffi::{c_int, c_void};
use std::os::fd::{IntoRawFd, RawFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, Once, PoisonError};
use std::thread;
use std::time::Duration;

use crate::abi::core::event;
use crate::adapters;
use crate::attr::Attrs;
use crate::channels::Channels;
use crate::clock::Clock;
use crate::cm::{Cm, Command};
use crate::descriptors::{Descriptors, Meaning};
use crate::errno::{Errno, Result};
use crate::fault::{DeviceFault, DeviceFaults, Effect};
use crate::keys::Keys;
use crate::network::{Network, packet};
use crate::nic::{Nic, Shared};
use crate::options::{Device, Drive, Link, Options};
use crate::syscall;
use crate::sysfs;
use crate::table::Table;
use crate::uverbs::objects::Kind;
use crate::uverbs::{Call, Core, File};

/// Steps that the adapter makes at most before a command.
const CATCH_UP_STEPS: usize = 64;
/// Packets that one step delivers at most.
const PACKETS_PER_STEP: usize = 64;

/// An adapter and its driver.
pub(crate) struct Model {
    /// Name of the device.
    pub(crate) name: &'static str,
    number: usize,
    pub(crate) options: Options,
    pub(crate) shared: Shared,
    nic: Box<dyn Nic>,
    core: Core,
    pub(crate) cm: Cm,
    files: Table<File>,
    descriptors: Descriptors,
    faults: DeviceFaults,
}

/// The adapters. Empty before the start.
static MODELS: Mutex<Vec<Model>> = Mutex::new(Vec::new());
static STARTED: AtomicBool = AtomicBool::new(false);
/// The thread that runs the adapters was started in this process.
static ENGINE_RUNS: AtomicBool = AtomicBool::new(false);

/// Returns `true` if the model has been started in this process.
pub(crate) fn is_started() -> bool {
    STARTED.load(Ordering::Acquire)
}

/// Locks all adapters.
pub(crate) fn lock() -> MutexGuard<'static, Vec<Model>> {
    MODELS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Starts the model. Returns `false` if it was started before.
pub(crate) fn start(options: Options) -> std::io::Result<bool> {
    static FORK: Once = Once::new();

    let mut models = lock();
    if !models.is_empty() {
        return Ok(false);
    }
    sysfs::install(options)?;
    let numbers = 0..options.adapters;
    *models = numbers.map(|number| Model::new(options, number)).collect();
    STARTED.store(true, Ordering::Release);
    FORK.call_once(|| {
        // SAFETY: the handlers are functions without arguments.
        unsafe { libc::pthread_atfork(Some(before_fork), Some(after_fork), Some(in_child)) };
    });
    Ok(true)
}

/// Returns the adapter that a descriptor belongs to.
pub(crate) fn owner(models: &mut [Model], fd: RawFd) -> Option<&mut Model> {
    models
        .iter_mut()
        .find(|model| model.descriptors.get(fd).is_some())
}

/// Runs all adapters for a moment. Returns `true` if there was work.
pub(crate) fn step(models: &mut [Model]) -> bool {
    models
        .iter_mut()
        .fold(false, |worked, model| model.step() | worked)
}

/// Guard that is held while the process forks.
static FORKING: Mutex<Option<ForkGuard>> = Mutex::new(None);

/// The lock of the model. Only the thread that forks takes it and gives it back.
struct ForkGuard(MutexGuard<'static, Vec<Model>>);

// SAFETY: the guard is dropped by the thread that stored it, or by its copy in the child.
unsafe impl Send for ForkGuard {}

extern "C" fn before_fork() {
    let guard = ForkGuard(lock());
    *FORKING.lock().unwrap_or_else(PoisonError::into_inner) = Some(guard);
}

extern "C" fn after_fork() {
    drop(
        FORKING
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take(),
    );
}

/// The child has its own adapter. What it inherited belongs to the parent.
extern "C" fn in_child() {
    let guard = FORKING
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .take();
    ENGINE_RUNS.store(false, Ordering::Release);
    if let Some(mut guard) = guard {
        guard.0.iter_mut().for_each(Model::become_child);
    }
}

impl Model {
    fn new(options: Options, number: usize) -> Self {
        let identity = adapters::numbered(options, number);
        Self {
            name: identity.name,
            number,
            options,
            shared: Shared {
                keys: Keys::new(identity.max_keys),
                channels: Channels::new(),
                network: Network::new(
                    identity.name,
                    identity.qpn_bits,
                    identity.largest_qpn,
                    options.adapters > 1,
                ),
                clock: Clock::new(options.drive == Drive::Step),
                link: options.link,
                lid: 1,
                gids: identity.gids,
                sent: 0,
                received: 0,
                has_failed: false,
            },
            nic: adapters::create(options.device),
            core: Core::new(),
            cm: Cm::new(identity.guid),
            files: Table::new(1 << 16),
            descriptors: Descriptors::default(),
            faults: DeviceFaults::new(options.fault),
        }
    }

    /// Replaces what a child process has inherited. Descriptors of the device stay usable, with
    /// their protection domains. Queues are not: their memory belongs to the parent.
    fn become_child(&mut self) {
        let fresh = Self::new(self.options, self.number);
        let mut parent = std::mem::replace(self, fresh);
        std::mem::swap(&mut self.core, &mut parent.core);
        self.core.forget_targets();
        std::mem::swap(&mut self.files, &mut parent.files);
        for number in self.files.numbers() {
            if let Some(file) = self.files.get_mut(number) {
                file.forget_all_but_pds();
            }
        }
        std::mem::swap(&mut self.descriptors, &mut parent.descriptors);
        self.descriptors.forget_channels();
        // Dropping the channels closes the child's copies of the model's descriptors. Nothing else
        // has an effect outside of this process.
        drop(parent);
    }

    /// Opens the device and returns its descriptor.
    pub(crate) fn open(&mut self) -> Result<RawFd> {
        let fd = syscall::open_stand_in(sysfs::STAND_IN);
        if fd < 0 {
            return Err(Errno::last());
        }
        let file = self.files.insert(File::default())?;
        self.descriptors.add_file(fd, file)?;
        self.run_engine();
        Ok(fd)
    }

    fn run_engine(&mut self) {
        let must_run = self.options.drive == Drive::Thread;
        if must_run && !ENGINE_RUNS.swap(true, Ordering::AcqRel) {
            start_engine();
        }
    }

    /// Returns `true` if the program runs the adapter.
    pub(crate) fn is_stepped(&self) -> bool {
        self.options.drive == Drive::Step
    }

    /// Opens the connection manager and returns its descriptor. Only RoCE has one.
    pub(crate) fn open_cm(&mut self, flags: c_int) -> Result<RawFd> {
        if self.options.device != Device::Mlx5 || self.options.link != Link::Ethernet {
            return Err(Errno::ENOENT);
        }
        // The messages name this process.
        self.shared.network.open();
        let (fd, signal) = syscall::event_descriptor(flags)?;
        let file = self.cm.open(signal)?;
        let fd = fd.into_raw_fd();
        self.descriptors.add_cm(fd, file)?;
        self.run_engine();
        Ok(fd)
    }

    /// Returns `true` if the descriptor is an open connection manager.
    pub(crate) fn is_cm(&self, fd: RawFd) -> bool {
        matches!(self.descriptors.get(fd), Some(Meaning::Cm(_)))
    }

    /// Executes a command of the connection manager. `None` if the descriptor is not one.
    pub(crate) fn write_cm(
        &mut self,
        fd: RawFd,
        address: u64,
        length: usize,
    ) -> Option<Result<()>> {
        let Some(Meaning::Cm(file)) = self.descriptors.get(fd) else {
            return None;
        };
        let descriptors = &self.descriptors;
        let result = Command::parse(file, address, length).and_then(|command| {
            let file_of = |fd| match descriptors.get(fd) {
                Some(Meaning::Cm(file)) => Some(file),
                _ => None,
            };
            let result = self.cm.execute(&mut self.shared, &command, file_of);
            if let Err(errno) = result
                && errno != Errno::EAGAIN
            {
                trace(|| format!("rdma_cm command {}: errno {}", command.number(), errno.0));
            }
            result
        });
        Some(result)
    }

    /// Handles the close of a descriptor. The caller closes it.
    pub(crate) fn close(&mut self, fd: RawFd) {
        match self.descriptors.remove(fd) {
            Some((Meaning::File(file), 0)) => {
                if let Some(mut file) = self.files.remove(file) {
                    #[allow(
                        clippy::redundant_closure_for_method_calls,
                        reason = "the method is not general enough in its lifetime"
                    )]
                    self.call(Attrs::default(), &mut file, |call| call.close());
                }
            }
            Some((Meaning::Channel(channel), 0)) => self.shared.channels.release(channel),
            Some((Meaning::Cm(file), 0)) => self.cm.close(&mut self.shared, file),
            _ => {}
        }
    }

    /// Returns the objects of all open devices.
    pub(crate) fn objects(&self) -> impl Iterator<Item = Kind> {
        self.files.iter().flat_map(|(_, file)| file.objects.kinds())
    }

    /// Returns the number of contexts.
    pub(crate) fn contexts(&self) -> u32 {
        let open = self.files.iter().filter(|(_, file)| file.has_context());
        u32::try_from(open.count()).unwrap_or(u32::MAX)
    }

    /// Reports an event of a port, or of the device if `port` is 0, to all open devices.
    fn report_event(&mut self, event: u32, port: u64) {
        for (_, file) in self.files.iter() {
            if let Some(channel) = file.async_channel() {
                self.shared.channels.asynchronous(channel, port, event);
            }
        }
    }

    /// Notes that `copy` is a duplicate of `fd`.
    pub(crate) fn duplicate(&mut self, fd: RawFd, copy: RawFd) {
        let added = match self.descriptors.get(fd) {
            Some(Meaning::File(file)) => self.descriptors.add_file(copy, file),
            Some(Meaning::Channel(channel)) => self.descriptors.add_channel(copy, channel),
            Some(Meaning::Cm(file)) => self.descriptors.add_cm(copy, file),
            None => Ok(()),
        };
        if added.is_err() {
            eprintln!("nic-model: descriptor {copy} is too large");
        }
    }

    fn call<R>(
        &mut self,
        attrs: Attrs,
        file: &mut File,
        method: impl FnOnce(&mut Call<'_>) -> R,
    ) -> R {
        method(&mut Call {
            attrs,
            file,
            descriptors: &mut self.descriptors,
            core: &mut self.core,
            nic: &mut *self.nic,
            cx: &mut self.shared,
        })
    }

    /// Executes an ioctl of verbs. `Err(EBADF)` if the descriptor is not an open device.
    pub(crate) fn ioctl(&mut self, fd: RawFd, argument: u64) -> Result<()> {
        let Some(Meaning::File(number)) = self.descriptors.get(fd) else {
            return Err(Errno::EBADF);
        };
        let (header, attrs) = Attrs::parse(argument)?;
        self.catch_up();
        let mut file = self.files.remove(number).ok_or(Errno::EBADF)?;
        let result = self.call(attrs, &mut file, |call| {
            call.execute(header.object_id, header.method_id)
        });
        self.files.put_back(number, file);
        if let Err(errno) = result {
            let (object, method) = (header.object_id, header.method_id);
            trace(|| format!("object {object:#x}, method {method:#x}: errno {}", errno.0));
        }
        result
    }

    /// Lets the adapter finish what it can. A command of the kernel takes longer than that.
    fn catch_up(&mut self) {
        if self.options.drive == Drive::Thread {
            for _ in 0..CATCH_UP_STEPS {
                if !self.step() {
                    break;
                }
            }
        }
    }

    /// Maps something of the device. `None` if the descriptor is not an open device.
    pub(crate) fn mmap(
        &mut self,
        fd: RawFd,
        length: usize,
        protection: c_int,
        offset: u64,
    ) -> Option<Result<*mut c_void>> {
        match self.descriptors.get(fd) {
            Some(Meaning::File(_)) => Some(self.nic.mmap(length, protection, offset)),
            _ => None,
        }
    }

    /// Takes the link of the port down or up, and reports it.
    pub(crate) fn set_link(&mut self, up: bool) {
        if self.shared.network.link_up != up {
            self.shared.network.link_up = up;
            let event = if up {
                event::PORT_ACTIVE
            } else {
                event::PORT_ERR
            };
            self.report_event(event, 1);
        }
    }

    /// Orders a fault for the next step.
    pub(crate) fn fail(&mut self, fault: DeviceFault) {
        self.faults.order(fault);
    }

    /// Ends all faults.
    pub(crate) fn repair(&mut self) {
        self.faults.repair();
        self.shared.has_failed = false;
        self.set_link(true);
    }

    fn apply(&mut self, effect: Effect) {
        match effect {
            Effect::Link { up } => self.set_link(up),
            Effect::LoseEvent => self.shared.channels.lose_next = true,
            Effect::Fail => {
                self.shared.has_failed = true;
                self.report_event(event::DEVICE_FATAL, 0);
            }
        }
    }

    /// Returns `true` if the completion queue with this handle has unread entries.
    pub(crate) fn has_completions(&self, handle: u32) -> bool {
        self.files.iter().any(|(_, file)| {
            matches!(file.objects.cq(handle), Ok(number) if self.nic.has_completions(number))
        })
    }

    /// Returns `true` if no posted send is unfinished.
    pub(crate) fn is_idle(&self) -> bool {
        self.nic.is_idle()
    }

    /// Runs the adapter for a moment. Returns `true` if there was work.
    pub(crate) fn step(&mut self) -> bool {
        self.shared.clock.step();
        let now = self.shared.clock.now();
        if let Some(effect) = self.faults.next(self.shared.network.sent, now) {
            self.apply(effect);
        }
        if self.faults.stopped {
            self.shared.channels.flush();
            return false;
        }
        let mut worked = self.shared.network.poll();
        worked |= self.nic.step(&mut self.shared);
        worked |= self.cm.step(&mut self.shared);
        for _ in 0..PACKETS_PER_STEP {
            let Some(packet) = self.shared.network.receive(now) else {
                break;
            };
            worked = true;
            if packet.header.kind == packet::MANAGEMENT {
                self.cm.receive(&mut self.shared, &packet);
            } else {
                self.nic.receive(&mut self.shared, packet);
            }
        }
        self.shared.channels.flush();
        worked
    }
}

/// Prints a line about the adapter, if the environment asks for it.
pub(crate) fn trace(text: impl FnOnce() -> String) {
    if std::env::var_os("NIC_MODEL_TRACE").is_some() {
        eprintln!("nic-model: {}", text());
    }
}

/// Runs the adapter.
///
/// A panic cannot leave the function, so it aborts the process. Otherwise the program would wait
/// forever for the adapter.
extern "C" fn run_engine() {
    let mut idle = 0_u32;
    loop {
        let worked = step(&mut lock());
        idle = if worked { 0 } else { idle.saturating_add(1) };
        match idle {
            0..=3 => thread::yield_now(),
            4..=1000 => thread::sleep(Duration::from_micros(2)),
            _ => thread::sleep(Duration::from_micros(100)),
        }
    }
}

/// Starts the thread that runs the adapter.
fn start_engine() {
    let mut all = std::mem::MaybeUninit::uninit();
    let mut old = std::mem::MaybeUninit::uninit();
    // Signals of the program are not for this thread, which inherits the mask.
    // SAFETY: both sets are written by the first two calls before they are read.
    unsafe {
        libc::sigfillset(all.as_mut_ptr());
        libc::pthread_sigmask(libc::SIG_SETMASK, all.as_ptr(), old.as_mut_ptr());
    }
    let thread = thread::Builder::new()
        .name("nic-model".to_owned())
        .spawn(|| run_engine());
    // SAFETY: `old` was written above.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, old.as_ptr(), std::ptr::null_mut()) };
    if let Err(error) = thread {
        eprintln!("nic-model: starting the engine: {error}");
        std::process::abort();
    }
}
