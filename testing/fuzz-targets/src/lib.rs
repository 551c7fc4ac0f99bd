//! The targets of `testing/fuzz`: one function for each kind of input from a peer, a file or
//! another program. A function panics if the input reveals a fault.
//!
//! `ci/stress fuzz` calls them with generated inputs, and the tests call them with those in
//! `testing/fuzz/corpus`. This crate is a member of the workspace, so that its tests run without a
//! fuzzer, and `testing/fuzz` is not.

#![forbid(unsafe_code)]
#![allow(
    clippy::missing_panics_doc,
    reason = "a panic is the result of a target"
)]

mod binary;
mod configuration;
mod control;
mod filter;
mod hosts;
mod mad;
mod records;
mod sequences;
mod text;

pub use binary::{http_request, qperf, rping};
pub use configuration::{
    capture, configuration, host_output, opensm_files, partitions_conf, probe,
};
pub use control::{control_frame, control_hello, control_records, peer_facts};
pub use filter::{iptables_save, nft_json};
pub use hosts::host_lists;
pub use mad::mad;
pub use records::{compare_records, mesh_record, rperf_record};
pub use sequences::{session_sequence, transfer_sequence};
pub use text::{addresses, netlink, peer_text, sysfs, units};

use serde_json::Value;

/// Asserts that a text neither controls a terminal nor forges lines: every character can be
/// printed, except for the line breaks of the program itself.
fn assert_printable(text: &str) {
    let unsafe_char = |c: char| c != '\n' && c.escape_debug().len() != 1 && !"\"'\\".contains(c);
    if let Some(c) = text.chars().find(|c| unsafe_char(*c)) {
        panic!("{c:?} is printed in {text:?}");
    }
}

/// Returns the input as text. Programs replace invalid UTF-8 in the same way.
fn lossy(data: &[u8]) -> String {
    String::from_utf8_lossy(data).into_owned()
}

/// Asserts that two JSON texts have the same content. The parser can change the last digits of a
/// number.
fn assert_same_json(a: &str, b: &str) {
    let parse = |text| serde_json::from_str::<Value>(text).expect("JSON");
    assert!(is_same(&parse(a), &parse(b)), "{a}\nis read as\n{b}");
}

fn is_same(a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::Number(a), Value::Number(b)) if a.is_f64() || b.is_f64() => {
            let (a, b) = (
                a.as_f64().unwrap_or_default(),
                b.as_f64().unwrap_or_default(),
            );
            (a - b).abs() <= a.abs() * 1e-12
        }
        (Value::Array(a), Value::Array(b)) => {
            a.len() == b.len() && a.iter().zip(b).all(|(a, b)| is_same(a, b))
        }
        (Value::Object(a), Value::Object(b)) => {
            a.len() == b.len()
                && a.iter()
                    .all(|(key, value)| b.get(key).is_some_and(|other| is_same(value, other)))
        }
        (a, b) => a == b,
    }
}

/// Divides an input at the first occurrence of a line `---`.
fn two_texts(data: &[u8]) -> (String, String) {
    let text = lossy(data);
    match text.split_once("\n---\n") {
        Some((first, second)) => (first.to_owned(), second.to_owned()),
        None => (text, String::new()),
    }
}

#[cfg(test)]
mod tests {
    use test_support::corpus::replay;

    macro_rules! replay_corpora {
        ($($target:ident)*) => { $(
            #[test]
            fn $target() {
                replay(stringify!($target), super::$target);
            }
        )* };
    }

    replay_corpora! {
        addresses capture compare_records configuration control_frame control_hello control_records
        host_lists host_output http_request iptables_save mad mesh_record netlink nft_json opensm_files
        partitions_conf peer_facts peer_text probe qperf rperf_record rping session_sequence sysfs
        transfer_sequence units
    }
}
