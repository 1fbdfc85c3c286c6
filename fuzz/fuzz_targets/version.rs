#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| worktree::git::fuzz::run("version", bytes));
