//! The command line from outside.

mod call;
mod demo;
mod dev;
mod help;
mod operator;

use std::process::Output;

/// What a process printed, as text.
fn out(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

/// What a process complained about, as text.
fn err(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}
