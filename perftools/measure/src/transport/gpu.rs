//! Memory of a GPU for the messages of one end.

use base::error::{Error, Result};
use gpu_memory::{Gpu, GpuBuffer};
use ibverbs::{AccessFlags, DeviceRegion, ProtectionDomain};

use crate::spec::Shape;
use crate::spec::gpu::GpuId;
use crate::spec::plan::Pattern;

/// A GPU whose memory the RDMA device of this end can register.
#[derive(Clone, Debug)]
pub(super) struct TestGpu {
    id: GpuId,
    gpu: Gpu,
}

impl TestGpu {
    /// Opens a GPU, and checks that the test and the RDMA device can use its memory. Otherwise the
    /// error would come when the ends connect, and the peer would have to wait for it.
    ///
    /// # Errors
    /// Returns an error that says which part cannot use the memory: libcuda, the GPU, its driver,
    /// the RDMA device, or the test.
    pub(super) fn open(id: GpuId, pd: &ProtectionDomain, shape: &Shape) -> Result<Self> {
        // This depends on the device, because not all of them have immediate data.
        if shape.plan.pattern == Pattern::Polled {
            return Err(Error::limit(format!(
                "--gpu {id}: the CPU polls the memory in this test, and cannot read memory of a GPU"
            ))
            .with_help("set --immediate on, or remove --gpu"));
        }
        let gpu = Gpu::cuda(id.number).map_err(|error| gpu_error(id, &error))?;
        let opened = Self { id, gpu };
        let mut probe = GpuMemory::new(&opened);
        probe.register(pd, 1, AccessFlags::LOCAL_WRITE, &[])?;
        Ok(opened)
    }

    /// Returns the description of the memory for the report.
    pub(super) fn description(&self) -> String {
        format!("GPU {} ({})", self.id, self.gpu.name())
    }
}

/// Memory of a GPU in use by one thread. It must outlive its registrations.
#[derive(Debug)]
pub(super) struct GpuMemory {
    gpu: TestGpu,
    buffers: Vec<GpuBuffer>,
}

impl GpuMemory {
    pub(super) fn new(gpu: &TestGpu) -> Self {
        Self {
            gpu: gpu.clone(),
            buffers: Vec::new(),
        }
    }

    /// Allocates `len` bytes that begin with `content`, and registers them. The other bytes are 0.
    pub(super) fn register(
        &mut self,
        pd: &ProtectionDomain,
        len: usize,
        access: AccessFlags,
        content: &[u8],
    ) -> Result<DeviceRegion> {
        let id = self.gpu.id;
        let buffer = self.gpu.gpu.alloc(len).and_then(|mut buffer| {
            buffer.write(0, content)?;
            Ok(buffer)
        });
        let buffer = buffer.map_err(|error| gpu_error(id, &error))?;
        let region = pd.reg_dmabuf(buffer.dmabuf(), 0, len, access);
        let region = region.map_err(|error| {
            let device = pd.context().device_name();
            if error.is_unsupported() {
                return Error::limit(format!(
                    "--gpu {id}: {device} cannot register memory of a GPU, because its driver does not support dma-buf"
                ))
                .with_help("use an adapter whose driver does, such as one with mlx5, or remove --gpu");
            }
            Error::from(error).context(format!("--gpu {id}: registration of its memory"))
        })?;
        self.buffers.push(buffer);
        Ok(region)
    }
}

fn gpu_error(id: GpuId, error: &gpu_memory::Error) -> Error {
    let text = Error::device(format!("--gpu {id}: {error}"));
    match error.help() {
        Some(help) => text.with_help(help),
        None => text,
    }
}
