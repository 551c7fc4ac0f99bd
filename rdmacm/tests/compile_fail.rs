//! Programs that must not compile, each named after the rule it breaks. The expected messages are
//! those of the Rust in `rust-toolchain.toml`. `TRYBUILD=overwrite cargo test -p rdmacm --test
//! compile_fail` updates them.

#[test]
fn rule_violations_do_not_compile() {
    trybuild::TestCases::new().compile_fail("tests/compile_fail/*.rs");
}
