//! Launching kernels: those of the GPU tests, compiled for the processor.
#![allow(unsafe_code, reason = "the functions of a C library")]
#![allow(unreachable_pub, reason = "programs find the functions by name")]

use std::ffi::{CStr, c_char, c_int, c_uint, c_void};

use crate::memory::memory;
use crate::{INVALID_VALUE, NOT_FOUND, SUCCESS};

/// A kernel, compiled for the processor.
type Kernel = unsafe extern "C" fn(argument: u64);

unsafe extern "C" {
    fn cuda_model_kernel_fill(argument: u64);
    fn cuda_model_kernel_check(argument: u64);
    fn cuda_model_kernel_post(argument: u64);
}

const KERNELS: [(&CStr, Kernel); 3] = [
    (c"fill", cuda_model_kernel_fill),
    (c"check", cuda_model_kernel_check),
    (c"post", cuda_model_kernel_post),
];

/// Returns the address at which a kernel of the model accesses memory.
#[unsafe(no_mangle)]
extern "C" fn cuda_model_at(address: u64) -> *mut c_void {
    if let Some((allocation, at)) = memory().find(address, 0) {
        return allocation.mapping.at(at);
    }
    std::ptr::with_exposed_provenance_mut(address.try_into().expect("an address"))
}

/// `cuModuleLoadData`: every module has the kernels of this model.
///
/// # Safety
/// `module` is valid for writing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuModuleLoadData(
    module: *mut *mut c_void,
    _image: *const c_void,
) -> c_int {
    // SAFETY: as the function's. The handle is only a number.
    unsafe { *module = std::ptr::without_provenance_mut(1) };
    SUCCESS
}

/// `cuModuleGetFunction`
///
/// # Safety
/// `function` is valid for writing, and `name` is a C string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuModuleGetFunction(
    function: *mut *mut c_void,
    _module: *mut c_void,
    name: *const c_char,
) -> c_int {
    // SAFETY: as the function's.
    let name = unsafe { CStr::from_ptr(name) };
    let Some(index) = KERNELS.iter().position(|kernel| kernel.0 == name) else {
        return NOT_FOUND;
    };
    // SAFETY: as the function's. The handle is only a number.
    unsafe { *function = std::ptr::without_provenance_mut(index + 1) };
    SUCCESS
}

/// `cuLaunchKernel`: runs the kernel as one thread.
///
/// # Safety
/// `arguments` has the address of the kernel's only argument, and the kernel may be run with it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuLaunchKernel(
    function: *mut c_void,
    _grid_x: c_uint,
    _grid_y: c_uint,
    _grid_z: c_uint,
    _block_x: c_uint,
    _block_y: c_uint,
    _block_z: c_uint,
    _shared_bytes: c_uint,
    _stream: *mut c_void,
    arguments: *mut *mut c_void,
    _extra: *mut *mut c_void,
) -> c_int {
    let index = function.addr().checked_sub(1);
    let Some((_, kernel)) = index.and_then(|index| KERNELS.get(index)) else {
        return INVALID_VALUE;
    };
    // SAFETY: as the function's.
    unsafe { kernel((*arguments).cast::<u64>().read()) };
    SUCCESS
}
