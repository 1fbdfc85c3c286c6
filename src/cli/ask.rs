//! Questions to the person at the terminal.

use std::io::BufRead as _;

use tokio::sync::oneshot;

use super::output;
use super::trouble::{Outcome, Trouble};

/// Asks a question whose answer is no unless it is `y` or `yes`.
///
/// # Errors
/// A usage error naming `instead` when there is nobody to ask.
pub(super) async fn confirm(question: &str, instead: &str) -> Outcome<bool> {
    let answer = answer(&format!("{question} [y/N] "), instead).await?;
    Ok(matches!(answer.to_lowercase().as_str(), "y" | "yes"))
}

/// Asks for `expected` to be typed; anything else is a no.
///
/// # Errors
/// A usage error naming `instead` when there is nobody to ask.
pub(super) async fn typed(question: &str, expected: &str, instead: &str) -> Outcome<bool> {
    Ok(answer(&format!("{question} Type {expected} to go on: "), instead).await? == expected)
}

async fn answer(question: &str, instead: &str) -> Outcome<String> {
    if !output::can_ask() {
        return Err(Trouble::usage(format!("there is no terminal to ask on; pass {instead}")));
    }
    output::ask(question);
    let (sender, receiver) = oneshot::channel();
    // A thread of its own: one of the runtime's would keep the program from ending until a line comes.
    std::thread::spawn(move || {
        let mut line = String::new();
        let read = std::io::stdin().lock().read_line(&mut line).map(|_| line.trim().to_owned());
        // A command that was interrupted meanwhile does not want to know any more.
        sender.send(read).unwrap_or_default();
    });
    match receiver.await {
        Ok(read) => Ok(read?),
        Err(_) => Err(Trouble::Interrupted),
    }
}
