//! The PCI function as vfio-user serves it: regions, interrupts and the guest's memory.

use std::error::Error;
use std::fs::{self, File};
use std::io::{self, BufRead};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, Weak};
use std::thread;
use std::time::Duration;

use vfio_bindings::bindings::vfio::{
    VFIO_IRQ_INFO_EVENTFD, VFIO_IRQ_SET_DATA_EVENTFD, VFIO_PCI_BAR0_REGION_INDEX,
    VFIO_PCI_CONFIG_REGION_INDEX, VFIO_PCI_MSIX_IRQ_INDEX, VFIO_PCI_NUM_IRQS, VFIO_PCI_NUM_REGIONS,
    VFIO_REGION_INFO_FLAG_READ, VFIO_REGION_INFO_FLAG_WRITE, vfio_region_info,
};
use vfio_user::{DmaMapFlags, DmaUnmapFlags, IrqInfo, Server, ServerBackend, ServerRegion};

use nic_model::{DeviceFault, Engine};

use crate::adapter::Adapter;
use crate::addresses;
use crate::bar;
use crate::config_space::{self, ConfigSpace};
use crate::device::Device;
use crate::mads;

/// Serves the function at a socket until the client disconnects. It reaches the functions whose
/// sockets are in the same directory.
///
/// # Errors
///
/// Fails if the socket exists already or cannot be opened, or if the connection fails.
pub fn serve(socket: &Path) -> Result<(), Box<dyn Error>> {
    let server = Server::new(socket, true, interrupts(), regions())?;
    let mut engine = Engine::connected(&network(socket)?)?;
    engine.set_gid(addresses::gid(engine.number()));
    engine.set_agent(mads::answer);
    let adapter = Adapter::new(engine);
    let device = Arc::new(Mutex::new(Device::new(adapter)));
    let runs = Arc::downgrade(&device);
    thread::spawn(move || run(&runs));
    let takes_orders = Arc::downgrade(&device);
    thread::spawn(move || take_orders(&takes_orders, &mut io::stdin().lock()));
    println!("serving at {}", socket.display());
    Ok(server.run(&mut Function {
        config: ConfigSpace::new(),
        device,
    })?)
}

/// Returns the name of the network of a socket, which is that of its directory.
fn network(socket: &Path) -> io::Result<String> {
    let directory = socket.parent().filter(|path| !path.as_os_str().is_empty());
    let directory = fs::metadata(directory.unwrap_or(Path::new(".")))?;
    Ok(format!("{:x}-{:x}", directory.dev(), directory.ino()))
}

/// Pause of the adapter when it has nothing to do. Timers and packets of others wait for it.
const PAUSE: Duration = Duration::from_micros(200);

/// Runs the adapter beside the commands of the client, until the function is gone.
fn run(device: &Weak<Mutex<Device>>) {
    while let Some(device) = device.upgrade() {
        let worked = lock(&device).work();
        drop(device);
        if worked {
            thread::yield_now();
        } else {
            thread::sleep(PAUSE);
        }
    }
}

/// Pause until the end of the orders is read again: they may be a file that grows.
const ORDERS_PAUSE: Duration = Duration::from_millis(50);

/// Takes faults from lines with their names, and their end (`repair`), until the function is gone.
fn take_orders(device: &Weak<Mutex<Device>>, orders: &mut impl BufRead) {
    let mut line = String::new();
    while orders.read_line(&mut line).is_ok() {
        let Some(device) = device.upgrade() else {
            return;
        };
        if !line.ends_with('\n') {
            drop(device);
            thread::sleep(ORDERS_PAUSE);
            continue;
        }
        let name = line.trim();
        let engine = &mut lock(&device).adapter.engine;
        match DeviceFault::from_name(name) {
            Some(fault) => engine.fail(fault),
            None if name == "repair" => engine.repair(),
            None => eprintln!("unknown fault {name}"),
        }
        println!("fault: {name}");
        line.clear();
    }
}

/// Locks the device. A panic of the other thread ends this one as well, and so the connection.
fn lock(device: &Mutex<Device>) -> MutexGuard<'_, Device> {
    device.lock().expect("the adapter has failed")
}

fn regions() -> Vec<ServerRegion> {
    let size = |index| match index {
        VFIO_PCI_BAR0_REGION_INDEX => bar::SIZE,
        VFIO_PCI_CONFIG_REGION_INDEX => config_space::SIZE as u64,
        _ => 0,
    };
    (0..VFIO_PCI_NUM_REGIONS)
        .map(|index| {
            let argsz = u32::try_from(size_of::<vfio_region_info>()).expect("a small structure");
            let mut region_info = vfio_region_info {
                argsz,
                index,
                size: size(index),
                ..Default::default()
            };
            if region_info.size > 0 {
                region_info.flags = VFIO_REGION_INFO_FLAG_READ | VFIO_REGION_INFO_FLAG_WRITE;
            }
            ServerRegion {
                region_info,
                sparse_areas: Vec::new(),
                mmap_fd: None,
            }
        })
        .collect()
}

fn interrupts() -> Vec<IrqInfo> {
    (0..VFIO_PCI_NUM_IRQS)
        .map(|index| match index {
            VFIO_PCI_MSIX_IRQ_INDEX => IrqInfo {
                index,
                flags: VFIO_IRQ_INFO_EVENTFD,
                count: bar::VECTORS,
            },
            _ => IrqInfo {
                index,
                flags: 0,
                count: 0,
            },
        })
        .collect()
}

struct Function {
    config: ConfigSpace,
    device: Arc<Mutex<Device>>,
}

impl ServerBackend for Function {
    fn region_read(&mut self, region: u32, offset: u64, data: &mut [u8]) -> io::Result<()> {
        match region {
            VFIO_PCI_CONFIG_REGION_INDEX => {
                self.config
                    .read(usize::try_from(offset).unwrap_or(config_space::SIZE), data);
            }
            _ => lock(&self.device).read(offset, data),
        }
        Ok(())
    }

    fn region_write(&mut self, region: u32, offset: u64, data: &[u8]) -> io::Result<()> {
        match region {
            VFIO_PCI_CONFIG_REGION_INDEX => {
                self.config
                    .write(usize::try_from(offset).unwrap_or(config_space::SIZE), data);
            }
            _ => lock(&self.device).write(offset, data),
        }
        Ok(())
    }

    fn dma_map(
        &mut self,
        _flags: DmaMapFlags,
        offset: u64,
        address: u64,
        size: u64,
        file: Option<File>,
    ) -> io::Result<()> {
        lock(&self.device)
            .adapter
            .memory
            .map(address, size, file, offset);
        Ok(())
    }

    fn dma_unmap(&mut self, flags: DmaUnmapFlags, address: u64, size: u64) -> io::Result<()> {
        if flags.contains(DmaUnmapFlags::UNMAP_ALL) {
            lock(&self.device).adapter.memory.unmap_all();
        } else {
            lock(&self.device).adapter.memory.unmap(address, size);
        }
        Ok(())
    }

    fn reset(&mut self) -> io::Result<()> {
        self.config = ConfigSpace::new();
        lock(&self.device).reset();
        Ok(())
    }

    fn set_irqs(
        &mut self,
        index: u32,
        flags: u32,
        start: u32,
        count: u32,
        descriptors: Vec<File>,
    ) -> io::Result<()> {
        if index != VFIO_PCI_MSIX_IRQ_INDEX {
            return Ok(());
        }
        if flags & VFIO_IRQ_SET_DATA_EVENTFD == 0 {
            // Without data and with a count of zero, the client disables all vectors.
            lock(&self.device).adapter.interrupts.clear();
        } else {
            lock(&self.device)
                .adapter
                .interrupts
                .set(start, count, descriptors);
        }
        Ok(())
    }
}
