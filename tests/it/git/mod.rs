//! Tests of the git layer on real repositories.

mod canary;
mod fetching;
mod histories;
mod hooks;
mod integrated;
mod moving;
mod odd;
mod places;
mod processes;
mod rebasing;
mod replaying;
mod sealed;
mod status;
mod worktrees;
