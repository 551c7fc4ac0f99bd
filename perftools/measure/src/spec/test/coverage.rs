//! The table of the book with the operations of the library and the tests that measure them.

use std::marker::PhantomData;
use std::path::Path;
use std::{env, fs};

use ibverbs::dc::{Dc, DcDestination, DcStreams, StreamDestination};
use ibverbs::wr::{self, Destination, Empty, ForSrq, Operation, To};
use ibverbs::{Buf, RawPacket, Rc, Uc, Ud, efa::Srd, mw::Binding, xrc::XrcSend};

use super::table::{TESTS, Test};
use crate::spec::plan::{
    Service,
    Verb::{self, CompareSwap, FetchAdd, Read, Send, SendImm, Write, WriteImm},
};

/// Evaluates to `true` if a transport has an operation.
macro_rules! has {
    ($transport:ty, $operation:ty, $payload:ty) => {{
        #[allow(dead_code, reason = "unused if the transport has the operation")]
        trait Lacks {
            const HAS: bool = false;
        }
        impl<T> Lacks for T {}
        struct Probe<O>(PhantomData<O>);
        #[allow(dead_code, reason = "unused if the transport lacks the operation")]
        impl<O: Operation<$transport, $payload>> Probe<O> {
            const HAS: bool = true;
        }
        Probe::<$operation>::HAS
    }};
}

/// The operations of the columns.
const COLUMNS: [&str; 11] = [
    "send",
    "send with immediate",
    "write",
    "write with immediate",
    "read",
    "compare and swap",
    "fetch and add",
    "send with invalidate",
    "bind",
    "atomic write",
    "flush",
];

/// Returns a row: the service of the tests, and which operations the transport has.
macro_rules! row {
    ($name:literal, $service:expr, $transport:ty, $addressed:ident) => {
        (
            $name,
            $service,
            [
                has!($transport, $addressed<wr::Send>, Buf),
                has!($transport, $addressed<wr::SendWithImm>, Buf),
                has!($transport, $addressed<wr::RdmaWrite>, Buf),
                has!($transport, $addressed<wr::RdmaWriteWithImm>, Buf),
                has!($transport, $addressed<wr::RdmaRead>, Buf),
                has!($transport, $addressed<wr::CompareSwap>, Buf),
                has!($transport, $addressed<wr::FetchAdd>, Buf),
                has!($transport, $addressed<wr::SendWithInv>, Buf),
                has!($transport, wr::Bind, Binding),
                has!($transport, wr::AtomicWrite, Empty),
                has!($transport, wr::Flush, Empty),
            ],
        )
    };
}

type Plain<O> = O;
type Datagram<O> = To<O, Destination>;
type Target<O> = To<O, DcDestination>;
type Stream<O> = To<O, StreamDestination>;

type TransportRow = (&'static str, Option<Service>, [bool; COLUMNS.len()]);

fn rows() -> [TransportRow; 8] {
    [
        row!("RC", Some(Service::Rc), Rc, Plain),
        row!("UC", Some(Service::Uc), Uc, Plain),
        row!("UD", Some(Service::Ud), Ud, Datagram),
        row!("XRC", Some(Service::Xrc), XrcSend, ForSrq),
        row!("SRD", Some(Service::Srd), Srd, Datagram),
        row!("DC", Some(Service::Dc), Dc, Target),
        row!("DC with streams", None, DcStreams, Stream),
        row!("raw packets", None, RawPacket, Plain),
    ]
}

/// Returns the first test with a verb on a service.
fn test_of(service: Service, verb: Verb) -> Option<Test> {
    let is_it = |test: &Test| {
        let plan = test.plan();
        plan.is_some_and(|plan| plan.service == service && plan.verb == verb)
    };
    TESTS.iter().map(|row| row.test).find(is_it)
}

/// Returns the name of a test that has an operation, with the option that selects the operation.
fn measured(service: Service, column: usize) -> Option<String> {
    let find = |verb| test_of(service, verb);
    let with = |option: &'static str| move |test: Test| format!("`{}{option}`", test.name());
    let numbered = service.numbers_messages();
    match column {
        0 if numbered => None,
        0 => find(Send).map(with("")),
        1 if numbered => find(Send).map(with("")),
        1 => find(Send).map(with(" --immediate on")),
        2 => find(WriteImm).map(with(" --immediate off")),
        3 => find(WriteImm).map(with("")),
        4 => find(Read).map(with("")),
        5 => find(CompareSwap).map(with("")),
        6 => find(FetchAdd).map(with("")),
        _ => None,
    }
}

/// Operations that no test has, each with the reason: rows, columns, reason.
const REASONS: &[(&[&str], &[&str], &str)] = &[
    (
        &["UC", "UD", "SRD"],
        &["send"],
        "the receiver needs the number of each message, which is its immediate data, to count losses and duplicates, and to find the expected bytes. The request is otherwise the same",
    ),
    (
        &["RC", "UC", "XRC"],
        &["send with invalidate", "bind"],
        "a window is bound and invalidated once for many transfers, so its cost is not that of a transfer",
    ),
    (
        &["RC"],
        &["atomic write", "flush"],
        "they make earlier writes visible or persistent, so they are a step of a protocol for storage and transfer no message. Of the tested devices, only Soft-RoCE has them (docs/drivers.md)",
    ),
    (
        &["DC with streams"],
        &[
            "send",
            "send with immediate",
            "write",
            "write with immediate",
            "read",
            "compare and swap",
            "fetch and add",
        ],
        "streams keep an error or a delay of one target of an initiator (`--dc-targets`) from the others, and all targets of a test are at one peer that has neither",
    ),
    (
        &["raw packets"],
        &["send"],
        "a frame is not a message between two programs: see below",
    ),
];

fn table() -> String {
    let mut lines = vec![
        format!("| transport | {} |", COLUMNS.join(" | ")),
        format!("|---|{}", "---|".repeat(COLUMNS.len())),
    ];
    for (name, service, has) in rows() {
        let cells = has.iter().enumerate().map(|(column, has)| {
            let reason = REASONS.iter().position(|(names, columns, _)| {
                names.contains(&name) && columns.contains(&COLUMNS[column])
            });
            let test = service.and_then(|service| measured(service, column));
            match (has, test, reason) {
                (false, None, None) => String::new(),
                (true, Some(test), None) => test,
                (true, None, Some(number)) => format!("({})", number + 1),
                other => panic!("{name}, {}: {other:?}", COLUMNS[column]),
            }
        });
        let cells = cells.collect::<Vec<_>>().join(" | ");
        lines.push(format!("| {name} | {cells} |"));
    }
    lines.push(String::new());
    for (number, (_, _, reason)) in (1..).zip(REASONS) {
        lines.extend(wrapped(&format!("{number}. {reason}.")));
    }
    lines.join("\n") + "\n"
}

/// Returns the lines of an item of a list, with at most 100 columns.
fn wrapped(item: &str) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in item.split(' ') {
        match lines.last_mut() {
            Some(line) if line.len() + 1 + word.len() <= 100 => {
                line.push(' ');
                line.push_str(word);
            }
            Some(_) => lines.push(format!("   {word}")),
            None => lines.push(word.to_owned()),
        }
    }
    lines
}

const BEGIN: &str =
    "<!-- Generated: UPDATE_COVERAGE=1 cargo test -p perftools-measure --lib coverage -->\n\n";
const END: &str = "\n<!-- End of the generated part. -->";

/// Each operation of the library has a test or a reason, and the book has this table.
#[test]
fn each_operation_of_the_library_is_measured_or_has_a_reason() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/coverage.md");
    let page = fs::read_to_string(&path).expect("the page");
    let (before, rest) = page.split_once(BEGIN).expect("the begin");
    let (_, after) = rest.split_once(END).expect("the end");
    let new = format!("{before}{BEGIN}{}{END}{after}", table());
    if env::var_os("UPDATE_COVERAGE").is_some() {
        fs::write(&path, &new).expect("the page is written");
    } else {
        assert_eq!(page, new, "run the test with UPDATE_COVERAGE=1");
    }
    for service in rows().into_iter().filter_map(|row| row.1) {
        let is_measured = |verb| test_of(service, verb).is_some();
        // The column of writes stands for both kinds of tests.
        assert!(!is_measured(Write) || is_measured(WriteImm), "{service}");
        assert!(!is_measured(SendImm), "{service}: an option selects it");
    }
}
