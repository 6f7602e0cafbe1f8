//! C boundary of the memory-safe crates Dovetail uses for data from outside.
//!
//! The functions here only convert pointers and catch panics. Everything else is in modules without `unsafe`.
//! The interface is described in `include/dovetail_rust.h`.

mod audio;
mod boundary;
mod image;
mod template;
mod tokenizer;
