//! Empty: the examples are the programs in `src/bin`, which share no code.

#![forbid(unsafe_code)]

/// Compiles the program in the README of the repository.
#[cfg(doctest)]
#[doc = include_str!("../../README.md")]
struct Readme;
