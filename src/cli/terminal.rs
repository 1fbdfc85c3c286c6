//! What a terminal can do beyond lines: colours, a width, and being drawn over.

use console::Term;

use super::output;

/// The width that is taken for output that goes nowhere in particular.
const NO_WIDTH: usize = 200;

/// A colour or a weight, by the number that terminals know it under.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Style {
    Bold = 1,
    Dim = 2,
    Red = 31,
    Green = 32,
    Yellow = 33,
    Cyan = 36,
}

/// The text in this style where standard output takes colours, else as it is.
pub(super) fn paint(style: Style, text: &str) -> String {
    if output::takes_colour() && !text.is_empty() {
        format!("\u{1b}[{}m{text}\u{1b}[0m", style as u8)
    } else {
        text.to_owned()
    }
}

/// How many columns fit a line of standard output.
pub(super) fn width() -> usize {
    let seen = Term::stdout().size_checked().map(|(_, columns)| usize::from(columns));
    if output::is_terminal() { seen.filter(|columns| *columns > 0).unwrap_or(80) } else { NO_WIDTH }
}

/// How many lines fit the screen of standard output.
fn height() -> usize {
    Term::stdout().size_checked().map_or(24, |(rows, _)| usize::from(rows))
}

/// Text on a terminal that is drawn again and again at the same place.
#[derive(Default)]
pub(super) struct Screen {
    lines: usize,
}

impl Screen {
    /// Whether text of this many lines can be drawn over: more than a screen of it scrolls away.
    pub(super) fn fits(lines: usize) -> bool {
        output::is_terminal() && lines + 1 < height()
    }

    /// Draws text in the place of what was drawn before.
    ///
    /// # Errors
    /// When standard output is closed.
    pub(super) fn draw(&mut self, text: &str) -> std::io::Result<()> {
        let back = if self.lines > 0 { format!("\u{1b}[{}A\r\u{1b}[J", self.lines) } else { String::new() };
        self.lines = text.lines().count();
        output::write(&format!("{back}{}\n", text.trim_end_matches('\n')))
    }
}
