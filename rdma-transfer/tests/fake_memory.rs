//! Memory of values that transfers write, on the fake provider.

mod common;

use common::{SOON, connect, filled, imm, pattern, wait_ready};
use fake_provider::{Fake, Profile};
use rdma_transfer::{Engine, EngineOptions, ErrorKind, Span, TransferOptions};

#[test]
fn a_vector_is_a_target_and_returns() {
    let fakes = [Profile::RXE, Profile::RXE].map(Fake::new);
    let options = EngineOptions::new().stripe(512);
    let names = fakes.each_ref().map(Fake::name);
    let [a, b] = [(); 2].map(|()| Engine::open(&names, options).expect("engine"));
    let (peer, a_of_b) = connect(&a, &b);
    let source = filled(&a, 4096, 1);
    wait_ready(&peer);
    wait_ready(&a_of_b);
    let regions = fakes[0].live().mrs;
    let written = b.register_mut(vec![0; 4096]).expect("registered");
    let read = b
        .register_mut(vec![0; 4096].into_boxed_slice())
        .expect("registered");
    assert!(written.is_writable());
    let all = [Span::new(0, 0, 4096)];
    peer.write(&source, &written.remote(), &all, imm(1))
        .expect("write")
        .wait(SOON)
        .expect("written");
    b.imm_counter(1).wait(1, SOON).expect("arrived");
    a_of_b
        .read(&read, &source.remote(), &all, TransferOptions::new())
        .expect("read")
        .wait(SOON)
        .expect("read");
    let release = read.release();
    release.wait(SOON).expect("released");
    let release = release.into_owner::<Vec<u8>>().expect_err("another type");
    let bytes: Box<[u8]> = release.into_owner().expect("the value");
    assert_eq!(bytes[..], pattern(4096, 1));

    let clone = written.clone();
    let release = written.release();
    let release = release.into_owner::<Vec<u8>>().expect_err("in use");
    drop(clone);
    release.wait(SOON).expect("released");
    let bytes: Vec<u8> = release.into_owner().expect("the value");
    assert_eq!(bytes, pattern(4096, 1));
    assert_eq!(fakes[0].live().mrs, regions);

    let value = a.register(pattern(64, 2)).expect("registered");
    let release = value.release();
    release.wait(SOON).expect("released");
    assert_eq!(release.into_owner::<Vec<u8>>().ok(), Some(pattern(64, 2)));
    let error = b.register_mut(vec![0; 100]).expect_err("no whole words");
    assert_eq!(error.kind(), ErrorKind::InvalidInput, "{error}");
    drop((peer, a_of_b, source, a, b));
    fakes.iter().for_each(Fake::assert_clean);
}
