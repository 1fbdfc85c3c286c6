//! One thing that was looked at, and how it was found.

use std::io;

use serde_json::{Value, json};

use crate::cli::terminal::{Style, paint};
use crate::cli::{output, words};

/// How bad it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Level {
    /// As it should be.
    Ok,
    /// It works, but not as well as it could.
    Warning,
    /// Something will be refused or go wrong.
    Problem,
}

impl Level {
    fn as_str(self) -> &'static str {
        match self {
            Level::Ok => "ok",
            Level::Warning => "warning",
            Level::Problem => "problem",
        }
    }
}

struct Finding {
    check: &'static str,
    level: Level,
    message: String,
    fix: Option<String>,
}

/// All of them, in the order in which they were made.
pub(super) struct Findings {
    all: Vec<Finding>,
    /// Whether each is told as it is made.
    told: bool,
}

impl Findings {
    pub(super) fn new(told: bool) -> Self {
        Findings { all: Vec::new(), told }
    }

    /// As it should be.
    ///
    /// # Errors
    /// When standard output is closed; so with the others.
    pub(super) fn ok(&mut self, check: &'static str, message: &str) -> io::Result<()> {
        self.add(check, Level::Ok, message, None)
    }

    /// It works, but not as well as it could; `fix` is a command.
    pub(super) fn warn(&mut self, check: &'static str, message: &str, fix: &str) -> io::Result<()> {
        self.add(check, Level::Warning, message, Some(fix))
    }

    /// Something will be refused or go wrong; `fix` is a command.
    pub(super) fn problem(&mut self, check: &'static str, message: &str, fix: &str) -> io::Result<()> {
        self.add(check, Level::Problem, message, Some(fix))
    }

    fn add(&mut self, check: &'static str, level: Level, message: &str, fix: Option<&str>) -> io::Result<()> {
        if self.told {
            let mark = match level {
                Level::Ok => paint(Style::Green, "ok     "),
                Level::Warning => paint(Style::Yellow, "warning"),
                Level::Problem => paint(Style::Red, "problem"),
            };
            output::line(&format!("{mark}  {check}: {message}"))?;
            if let Some(fix) = fix {
                output::line(&format!("         fix: {}", paint(Style::Bold, fix)))?;
            }
        }
        self.all.push(Finding { check, level, message: message.to_owned(), fix: fix.map(str::to_owned) });
        Ok(())
    }

    /// How many there are of this level.
    pub(super) fn count(&self, level: Level) -> usize {
        self.all.iter().filter(|finding| finding.level == level).count()
    }

    /// How many there are.
    pub(super) fn len(&self) -> usize {
        self.all.len()
    }

    /// For people, at the end.
    pub(super) fn summary(&self) -> String {
        let count = |level| u64::try_from(self.count(level)).unwrap_or(u64::MAX);
        let problems = words::counted(count(Level::Problem), "problem", "problems");
        format!("{problems}, {}", words::counted(count(Level::Warning), "warning", "warnings"))
    }

    /// For programs.
    pub(super) fn document(&self) -> Value {
        let findings: Value = self
            .all
            .iter()
            .map(|one| json!({"check": one.check, "level": one.level.as_str(), "message": one.message, "fix": one.fix}))
            .collect();
        json!({"findings": findings, "problems": self.count(Level::Problem), "warnings": self.count(Level::Warning)})
    }
}
