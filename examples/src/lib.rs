//! Small programs to copy from; see the binaries.
