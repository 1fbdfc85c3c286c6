//! The only place that writes to standard output and standard error.

use std::io::{IsTerminal as _, Write as _};

use serde_json::Value;

/// Writes a line to standard output and flushes it, so that a reader at the other end of a pipe has it at once.
///
/// # Errors
/// When standard output is closed or full.
pub(super) fn line(text: &str) -> std::io::Result<()> {
    write(&format!("{text}\n"))
}

/// Writes text to standard output as it is, and flushes it.
///
/// # Errors
/// When standard output is closed or full.
pub(super) fn write(text: &str) -> std::io::Result<()> {
    let mut out = std::io::stdout().lock();
    out.write_all(text.as_bytes())?;
    out.flush()
}

/// Writes a line to standard error. When that is closed there is nobody left to tell.
pub(super) fn complain(text: &str) {
    writeln!(std::io::stderr().lock(), "{text}").unwrap_or_default();
}

/// Writes a question to standard error, leaving the cursor behind it.
pub(super) fn ask(text: &str) {
    let mut err = std::io::stderr().lock();
    write!(err, "{text}").and_then(|()| err.flush()).unwrap_or_default();
}

/// Writes a JSON value to standard output: for eyes on a terminal, on one line for everything else.
///
/// # Errors
/// When standard output is closed or full.
pub(super) fn json(value: &Value) -> std::io::Result<()> {
    if std::io::stdout().is_terminal() { line(&format!("{value:#}")) } else { line(&value.to_string()) }
}

/// Whether standard output is a terminal.
pub(super) fn is_terminal() -> bool {
    std::io::stdout().is_terminal()
}

/// Whether there is somebody to ask: standard input and standard error are a terminal.
pub(super) fn can_ask() -> bool {
    std::io::stdin().is_terminal() && std::io::stderr().is_terminal()
}

/// Whether standard error is a terminal.
pub(super) fn errors_are_seen() -> bool {
    std::io::stderr().is_terminal()
}

/// Whether standard output takes colours: a terminal, and nobody asked for none.
pub(super) fn takes_colour() -> bool {
    std::io::stdout().is_terminal() && std::env::var_os("NO_COLOR").is_none()
}
