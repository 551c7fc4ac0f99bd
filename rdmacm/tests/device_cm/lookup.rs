//! Name resolution whose result is an event (`rdma_resolve_addrinfo`). It needs rdma-core 60 and a
//! kernel with a command that Linux 6.12 lacks. Elsewhere it must be reported as unsupported.

#![allow(unsafe_code, reason = "looks for a function of librdmacm")]

use std::os::fd::AsFd;
use std::time::Duration;

use ibverbs::{Error, ErrorKind};
use rdmacm::active::{start_lookup, start_service_lookup};
use rdmacm::address::{AddrInfo, IbAddr, LookupOptions, lookup};
use rdmacm::{InProgress, PortSpace};
use test_support::lab::{is_model, kernel_is_at_least};

use crate::lab::{Endpoint, TIMEOUT, assert_no_leaks, endpoints};

/// Returns `true` if librdmacm has the function.
fn has_function() -> bool {
    // SAFETY: the names end with NUL bytes. With the feature `dlopen`, the crate loads the same
    // library.
    unsafe {
        let library = libc::dlopen(c"librdmacm.so.1".as_ptr(), libc::RTLD_NOW);
        assert!(!library.is_null(), "librdmacm is not installed");
        !libc::dlsym(library, c"rdma_resolve_addrinfo".as_ptr()).is_null()
    }
}

/// Checks the error where the function or the command is missing.
fn expect_missing(error: &Error) {
    assert!(error.is_unsupported(), "{error}");
    let help = error.help().expect("a remedy");
    if has_function() {
        assert!(help.contains("newer kernel"), "{error}");
    } else {
        assert!(help.contains("rdma-core 60"), "{error}");
    }
    assert!(help.contains("address::lookup"), "{error}");
}

fn look_up(endpoint: &Endpoint) {
    let listener = endpoint.listen();
    let address = listener.local_addr();
    let (host, port) = (endpoint.ip.to_string(), address.port().to_string());
    let options = LookupOptions::new().numeric_host(true);
    let start = || start_lookup(Some(&host), Some(&port), options);
    if !has_function() || !(is_model() || kernel_is_at_least("7.0")) {
        expect_missing(&start().expect_err("missing"));
        return;
    }
    let mut pending = start().expect("started");
    assert!(pending.as_fd().try_clone_to_owned().is_ok());
    // The event is there already.
    let addresses = pending.try_finish().expect("no error");
    let addresses = addresses.expect("a result");
    let same = lookup(Some(&host), Some(&port), options).expect("the same");
    assert_eq!(addresses, same);
    let info = addresses
        .iter()
        .find(|info| info.destination == Some(address));
    let resolver = info.and_then(AddrInfo::resolver).expect("the listener");
    let route = resolver.timeout(TIMEOUT).resolve().expect("resolved");
    assert_eq!(route.device_name(), endpoint.name());
    let again = pending.try_finish().expect_err("finished");
    assert_eq!(again.kind(), ErrorKind::InvalidInput, "{again}");

    let passive = options.passive(true);
    let listen_on = start_lookup(Some(&host), Some(&port), passive).expect("started");
    let listen_on = listen_on.wait(Some(Duration::from_secs(5))).expect("found");
    assert!(listen_on.iter().any(|info| info.source == Some(address)));
    let error = start_lookup(Some("no.such.host.invalid"), None, options);
    let error = error.expect_err("not numeric");
    assert_eq!(error.kind(), ErrorKind::NotFound, "{error}");
    // A lookup can be dropped before its result is read.
    drop(start().expect("started"));
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn a_name_is_looked_up_with_an_event_or_unsupported() {
    for endpoint in endpoints() {
        assert_no_leaks(&endpoint, || look_up(&endpoint));
    }
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn services_of_the_subnet_need_infiniband() {
    for endpoint in endpoints() {
        let context = endpoint.resources().pd.context().clone();
        let gid = context.gids(1).expect("GID table")[0].gid;
        let source = IbAddr::new(gid, PortSpace::IB, 0);
        let error = start_service_lookup(source, "storage.example");
        let error = error.expect_err("no such service");
        // Only InfiniBand ports have such addresses, and rdma-core 44 lacks the query.
        let expected = if endpoint.is_infiniband() {
            ErrorKind::Unsupported
        } else {
            ErrorKind::NotFound
        };
        assert_eq!(error.kind(), expected, "{error}");
        let error = start_service_lookup(source, "nul\0byte").expect_err("a NUL byte");
        assert_eq!(error.kind(), ErrorKind::InvalidInput, "{error}");
    }
}
