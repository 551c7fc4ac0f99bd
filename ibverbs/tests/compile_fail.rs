//! What must not compile: one program a rule, named after it. The expected messages are those of
//! the stable toolchain; `TRYBUILD=overwrite cargo test -p ibverbs --test compile_fail` writes them
//! anew.

#[test]
#[cfg_attr(miri, ignore = "runs the compiler")]
fn what_breaks_a_rule_does_not_compile() {
    trybuild::TestCases::new().compile_fail("tests/compile_fail/*.rs");
}
