//! Places at which a test may end, stop or disturb the process: before and after every git command, every write to the
//! state store and every effect of a land, and between the files that adding a worktree makes.
//!
//! Built only with the feature `testing`; without it a [`Point`] is nothing and every call here vanishes. With it the
//! variable `WORKTREE_FAULT` names a directory. Once a file `plan` lies there, points are counted from one, each is
//! written as a line to `trace`, and the plan says what happens at one of them:
//!
//! | plan | what happens at point `n` |
//! |---|---|
//! | `trace` | nothing; the points are only listed |
//! | `kill before n`, `kill after n` | SIGKILL to this process |
//! | `pause before n`, `pause after n` | SIGSTOP to this process |
//! | `fail n` | it fails as if git, the store or the surroundings had refused |
//! | `starve n` | it fails in a way that is worth another attempt |
//! | `repeat n`, `repeat all` | what can be repeated is done twice, there or at every point |
//!
//! Invariants
//! 1. A fault happens once (but for `repeat all`); the points after it are listed and otherwise left alone.
//! 2. Without a plan nothing is counted, so that a test can prepare in peace.

use crate::model::{Code, Error, Result};

#[cfg(feature = "testing")]
mod plan;

/// How a point that is to fail does so.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(not(feature = "testing"), expect(dead_code, reason = "nothing fails without a plan"))]
pub(crate) enum Injected {
    /// For good.
    Refused,
    /// Another attempt may succeed.
    Transient,
}

/// A place that is being passed.
#[must_use]
#[derive(Debug, Default)]
pub(crate) struct Point {
    #[cfg(feature = "testing")]
    after: Option<plan::Signal>,
    #[cfg(feature = "testing")]
    repeats: bool,
}

impl Point {
    /// Whether what is done here is to be done twice.
    #[must_use]
    pub(crate) fn repeats(&self) -> bool {
        #[cfg(feature = "testing")]
        return self.repeats;
        #[cfg(not(feature = "testing"))]
        false
    }

    /// What was to be done here has been done.
    pub(crate) fn passed(self) {
        #[cfg(feature = "testing")]
        if let Some(signal) = self.after {
            signal.send();
        }
    }
}

/// Comes to a place of this kind (`git`, `state`, `effect`, `add`) where `what` is about to be done.
///
/// # Errors
/// The way in which it is to fail.
#[cfg_attr(not(feature = "testing"), expect(clippy::unnecessary_wraps, reason = "nothing fails without a plan"))]
pub(crate) fn point(kind: &str, what: impl FnOnce() -> String) -> Result<Point, Injected> {
    #[cfg(feature = "testing")]
    return plan::come_to(kind, what);
    #[cfg(not(feature = "testing"))]
    {
        let _ = (kind, what);
        Ok(Point::default())
    }
}

/// Comes to an effect of a land.
///
/// # Errors
/// `W102` or `W101`, as the plan has it.
pub(crate) fn effect(what: &str) -> Result<Point> {
    point("effect", || what.to_owned()).map_err(|injected| {
        let code = match injected {
            Injected::Refused => Code::GitFailed,
            Injected::Transient => Code::GitTimeout,
        };
        Error::new(code, format!("injected: {what}"))
    })
}
