//! Tests of the git layer on real repositories.

mod hooks;
mod places;
mod rebasing;
mod sealed;
mod worktrees;
