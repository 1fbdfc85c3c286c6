//! The land machine, disturbed in every way that can be thought of. Always the real git and the real binary.
//!
//! `WORKTREE_PROOF=long` plays every point of every case and many more sequences; without it, what fits into CI.

mod cases;
mod crowd;
mod disturbed;
mod fencing;
mod gates;
mod queue;
mod sequences;
mod table;
mod torn;
mod ungated;

/// Whether there is time for everything.
fn long() -> bool {
    std::env::var_os("WORKTREE_PROOF").is_some_and(|value| value == "long")
}
