//! The plan, read from the directory that `WORKTREE_FAULT` names.

use std::fs::{File, OpenOptions};
use std::io::Write as _;
use std::path::PathBuf;
use std::sync::{Mutex, OnceLock, PoisonError};

use nix::sys::signal::{Signal as Sent, raise};

use super::{Injected, Point};

/// What this process does to itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Signal {
    Kill,
    Pause,
}

impl Signal {
    pub(super) fn send(self) {
        let signal = match self {
            Signal::Kill => Sent::SIGKILL,
            Signal::Pause => Sent::SIGSTOP,
        };
        if let Err(error) = raise(signal) {
            tracing::error!(%error, "a planned signal was not sent");
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Deed {
    Nothing,
    Before(Signal),
    After(Signal),
    Fail(Injected),
    Repeat,
}

/// A plan that has begun.
struct Running {
    text: String,
    deed: Deed,
    at: u64,
    passed: u64,
    trace: File,
}

#[derive(Default)]
struct Plan {
    directory: Option<PathBuf>,
    running: Option<Running>,
}

fn shared() -> &'static Mutex<Plan> {
    static PLAN: OnceLock<Mutex<Plan>> = OnceLock::new();
    PLAN.get_or_init(|| {
        let directory = std::env::var_os("WORKTREE_FAULT").map(PathBuf::from);
        Mutex::new(Plan { directory, running: None })
    })
}

fn parse(text: &str) -> Option<(Deed, u64)> {
    // What follows the sign only tells one plan from the next.
    let words: Vec<&str> = text.split('#').next()?.split_whitespace().collect();
    let (deed, at) = match words.as_slice() {
        ["trace"] => (Deed::Nothing, "0"),
        ["kill", "before", at] => (Deed::Before(Signal::Kill), *at),
        ["kill", "after", at] => (Deed::After(Signal::Kill), *at),
        ["pause", "before", at] => (Deed::Before(Signal::Pause), *at),
        ["pause", "after", at] => (Deed::After(Signal::Pause), *at),
        ["fail", at] => (Deed::Fail(Injected::Refused), *at),
        ["starve", at] => (Deed::Fail(Injected::Transient), *at),
        ["repeat", "all"] => (Deed::Repeat, "0"),
        ["repeat", at] => (Deed::Repeat, *at),
        _ => return None,
    };
    Some((deed, at.parse().ok()?))
}

impl Plan {
    /// The plan, once its file is there; another text in it is another plan.
    fn running(&mut self) -> Option<&mut Running> {
        let directory = self.directory.as_ref()?;
        let Ok(text) = std::fs::read_to_string(directory.join("plan")) else {
            self.running = None;
            return None;
        };
        if self.running.as_ref().is_none_or(|running| running.text != text) {
            let (deed, at) = parse(&text)?;
            let trace = OpenOptions::new().create(true).append(true).open(directory.join("trace")).ok()?;
            self.running = Some(Running { text, deed, at, passed: 0, trace });
        }
        self.running.as_mut()
    }
}

/// Counts the point and says what is to happen at it.
pub(super) fn come_to(kind: &str, what: impl FnOnce() -> String) -> Result<Point, Injected> {
    let deed = {
        let mut plan = shared().lock().unwrap_or_else(PoisonError::into_inner);
        let Some(running) = plan.running() else { return Ok(Point::default()) };
        running.passed += 1;
        let line = format!("{} {kind} {}\n", running.passed, what());
        if let Err(error) = running.trace.write_all(line.as_bytes()) {
            tracing::error!(%error, "a point was not traced");
        }
        let everywhere = running.deed == Deed::Repeat && running.at == 0;
        if everywhere || running.passed == running.at { running.deed } else { Deed::Nothing }
    };
    match deed {
        Deed::Before(signal) => {
            signal.send();
            Ok(Point::default())
        }
        Deed::After(signal) => Ok(Point { after: Some(signal), repeats: false }),
        Deed::Fail(injected) => Err(injected),
        Deed::Repeat => Ok(Point { after: None, repeats: true }),
        Deed::Nothing => Ok(Point::default()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plans_are_read_and_anything_else_is_none() {
        assert_eq!(parse("kill before 17\n"), Some((Deed::Before(Signal::Kill), 17)));
        assert_eq!(parse("pause after 3 # the second run"), Some((Deed::After(Signal::Pause), 3)));
        assert_eq!(parse("fail 9"), Some((Deed::Fail(Injected::Refused), 9)));
        assert_eq!(parse("starve 9"), Some((Deed::Fail(Injected::Transient), 9)));
        assert_eq!((parse("repeat 2"), parse("trace")), (Some((Deed::Repeat, 2)), Some((Deed::Nothing, 0))));
        assert_eq!((parse("kill 3"), parse("fail x"), parse("")), (None, None, None));
    }
}
