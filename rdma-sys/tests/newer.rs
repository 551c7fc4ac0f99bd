//! Functions that the installed libraries lack fail with `ENOSYS`.

#![cfg(not(miri))] // Miri has no C libraries.
#![allow(missing_docs, unsafe_code, reason = "a test")]

use std::io::Error;
use std::ptr::null_mut;

use rdma_sys::{
    ibv_create_comp_cntr, ibv_create_cq, ibv_dm_export_dmabuf_fd, ibv_export_buf_dmabuf_fd,
    ibv_query_port_speed, ibv_set_comp_cntr, rdma_create_id, rdma_query_addrinfo,
};

/// Returns `true` if the program is linked with libraries that have a function.
fn is_installed(name: &std::ffi::CStr) -> bool {
    // SAFETY: the name ends with a NUL byte.
    !unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) }.is_null()
}

fn last_errno() -> i32 {
    Error::last_os_error().raw_os_error().unwrap_or(0)
}

#[test]
fn missing_functions_fail_as_their_kind_does() {
    // The linker omits a library if the program uses no function of it.
    let used = [ibv_create_cq as *const (), rdma_create_id as *const ()];
    std::hint::black_box(used);
    assert!(is_installed(c"ibv_create_cq") && is_installed(c"rdma_create_id"));
    if is_installed(c"ibv_create_comp_cntr") || is_installed(c"rdma_query_addrinfo") {
        println!("the installed rdma-core has the functions");
        return;
    }
    // SAFETY: the functions are missing, so their arguments are not used.
    unsafe {
        assert!(ibv_create_comp_cntr(null_mut(), null_mut()).is_null());
        assert_eq!(last_errno(), libc::ENOSYS);
        assert_eq!(ibv_set_comp_cntr(null_mut(), 0), libc::ENOSYS);
        let speed = ibv_query_port_speed(null_mut(), 1, null_mut());
        assert_eq!(speed, libc::ENOSYS);
        // A number would be a descriptor.
        *libc::__errno_location() = 0;
        assert_eq!(ibv_dm_export_dmabuf_fd(null_mut()), -1);
        assert_eq!(last_errno(), libc::ENOSYS);
        assert_eq!(ibv_export_buf_dmabuf_fd(null_mut()), -1);
        *libc::__errno_location() = 0;
        assert_eq!(rdma_query_addrinfo(null_mut(), null_mut()), -1);
        assert_eq!(last_errno(), libc::ENOSYS);
    }
}
