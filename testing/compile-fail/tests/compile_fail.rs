//! Programs that must not compile, one for each safety rule, named after what they attempt.
//!
//! The expected messages are those of the Rust in `rust-toolchain.toml`. To regenerate them, run
//! `TRYBUILD=overwrite cargo test -p compile-fail`.

#[test]
fn programs_that_break_a_rule_do_not_compile() {
    let programs = trybuild::TestCases::new();
    programs.compile_fail("tests/ibverbs/*.rs");
    programs.compile_fail("tests/rdmacm/*.rs");
}
