//! Programs that must not compile, one for each rule, named after what they attempt.
//!
//! The expected messages are those of the Rust in `rust-toolchain.toml`. To regenerate them, run
//! `TRYBUILD=overwrite cargo test -p rdma-verbs --test compile_fail`.

#[test]
#[cfg_attr(miri, ignore = "runs the compiler")]
fn programs_that_break_a_rule_do_not_compile() {
    trybuild::TestCases::new().compile_fail("tests/compile_fail/*.rs");
}

/// Messages that list the transports or the sets of fields, including those of Cargo features.
#[test]
#[cfg(all(feature = "efa", feature = "mlx5"))]
#[cfg_attr(miri, ignore = "runs the compiler")]
fn messages_list_all_transports() {
    trybuild::TestCases::new().compile_fail("tests/compile_fail_all_transports/*.rs");
}

/// Rules of transports and functions of mlx5.
#[test]
#[cfg(feature = "mlx5")]
#[cfg_attr(miri, ignore = "runs the compiler")]
fn programs_that_break_a_rule_of_mlx5_do_not_compile() {
    trybuild::TestCases::new().compile_fail("tests/compile_fail_mlx5/*.rs");
}
