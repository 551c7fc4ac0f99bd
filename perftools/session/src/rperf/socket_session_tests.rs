//! Tests of the waits in a session over sockets.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::time::Duration;

use measure::data_key::DataKey;
use measure::sockets::endpoint::ListenInfo;
use measure::spec::test::Test;
use measure::spec::{Limit, Spec};
use test_support::text::assert_contains;

use super::fake_backend::FakeBackend;
use super::message::Message;
use super::tests::{connect_with_hello, limited, run, with_server};
use crate::protocol::frame;
use crate::protocol::hello::{self, PROTOCOL};

/// Longer than the timeouts of the tests.
const LATE: Duration = Duration::from_millis(600);

/// Returns a test of one message whose ends wait for 400 ms.
fn one_message() -> Spec {
    let mut spec = limited(Test::TcpBw, Limit::Messages(1));
    spec.client.timeout = Duration::from_millis(400);
    spec.server.timeout = spec.client.timeout;
    spec
}

#[test]
fn a_server_waits_while_its_client_connects() {
    with_server(1, |address, _| {
        let mut stream = connect_with_hello(address, PROTOCOL);
        let request = Message::Request {
            spec: Box::new(one_message()),
            client_info: None,
        };
        frame::write(&mut stream, &request).unwrap();
        let Ok(Message::Listening(listening)) = frame::read(&mut stream) else {
            panic!("no port")
        };
        std::thread::sleep(LATE);
        let mut data = TcpStream::connect(address).unwrap();
        data.write_all(&listening.key.stream_bytes()).unwrap();
        let bound = Message::Bound {
            port: data.local_addr().unwrap().port(),
            more_ports: Vec::new(),
        };
        frame::write(&mut stream, &bound).unwrap();
        let reply = frame::read(&mut stream);
        assert!(matches!(reply, Ok(Message::Ready { .. })), "{reply:?}");
    });
}

#[test]
fn a_client_waits_for_the_error_of_a_late_server() {
    let spec = one_message();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut stream = listener.accept().unwrap().0;
            stream.read_exact(&mut [0; hello::REQUEST_LEN]).unwrap();
            hello::write(&mut stream).unwrap();
            assert!(matches!(
                frame::read(&mut stream),
                Ok(Message::Request { .. })
            ));
            let data = TcpListener::bind("127.0.0.1:0").unwrap();
            let listening = Message::Listening(ListenInfo {
                port: data.local_addr().unwrap().port(),
                more_ports: Vec::new(),
                key: DataKey {
                    client: 7,
                    server: 8,
                },
            });
            frame::write(&mut stream, &listening).unwrap();
            std::thread::sleep(LATE);
            let text = "the first bytes are missing".into();
            frame::write(&mut stream, &Message::Error { text, help: None }).unwrap();
        });
        let outcome = run(address, &spec, &FakeBackend::default());
        assert_contains(outcome.unwrap_err(), &["the first bytes are missing"]);
    });
}
