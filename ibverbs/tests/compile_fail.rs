//! Programs that must not compile, one for each rule, named after what they attempt.
//!
//! The expected messages are those of the stable toolchain. To regenerate them, run
//! `TRYBUILD=overwrite cargo test -p ibverbs --test compile_fail`.

#[test]
#[cfg_attr(miri, ignore = "runs the compiler")]
fn programs_that_break_a_rule_do_not_compile() {
    trybuild::TestCases::new().compile_fail("tests/compile_fail/*.rs");
}
