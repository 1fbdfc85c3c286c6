//! Tables that fit: what matters least is left out first, then the widest column that may be cut is.
//!
//! Cells may hold colours; widths are those that a terminal shows.

use console::{measure_text_width, truncate_str};

use super::terminal::{self, Style, paint};

/// Two blanks between columns.
const GAP: usize = 2;
/// No column is cut below this.
const NARROWEST: usize = 10;

/// One column.
pub(super) struct Column {
    title: &'static str,
    /// What is left out first has the highest rank; rank 0 always stays.
    rank: u8,
    /// Its cells may be cut.
    cut: bool,
}

/// A column that always stays.
pub(super) const fn column(title: &'static str) -> Column {
    Column { title, rank: 0, cut: false }
}

impl Column {
    /// It may go when there is no room; the highest rank goes first.
    pub(super) const fn optional(self, rank: u8) -> Self {
        Column { rank, ..self }
    }

    /// Its cells may be cut when there is no room.
    pub(super) const fn cut(self) -> Self {
        Column { cut: true, ..self }
    }
}

/// Lays out rows under the titles of their columns, in at most as many columns of text as standard output has.
pub(super) fn render(columns: &[Column], rows: &[Vec<String>]) -> String {
    layout(columns, rows, terminal::width())
}

fn layout(columns: &[Column], rows: &[Vec<String>], room: usize) -> String {
    let natural = |at: usize| {
        let cells = rows.iter().map(|row| measure_text_width(&row[at])).max().unwrap_or(0);
        cells.max(measure_text_width(columns[at].title))
    };
    // A column without anything in it says nothing.
    let said = |at: &usize| columns[*at].rank == 0 || rows.iter().any(|row| !row[*at].is_empty());
    let mut shown: Vec<(usize, usize)> = (0..columns.len()).filter(said).map(|at| (at, natural(at))).collect();
    let total = |shown: &[(usize, usize)]| {
        shown.iter().map(|(_, width)| width).sum::<usize>() + GAP * shown.len().saturating_sub(1)
    };
    // As narrow as it can be made: what does not fit even so loses a column.
    let least = |shown: &[(usize, usize)]| {
        let slack: usize =
            shown.iter().filter(|(at, _)| columns[*at].cut).map(|(_, width)| width.saturating_sub(NARROWEST)).sum();
        total(shown) - slack
    };
    while least(&shown) > room {
        let last = shown.iter().enumerate().max_by_key(|(_, (at, _))| columns[*at].rank);
        match last {
            Some((place, (at, _))) if columns[*at].rank > 0 => drop(shown.remove(place)),
            _ => break,
        }
    }
    while total(&shown) > room {
        let over = total(&shown) - room;
        let widest = shown.iter_mut().filter(|(at, width)| columns[*at].cut && *width > NARROWEST);
        let Some((_, width)) = widest.max_by_key(|(_, width)| *width) else { break };
        *width -= over.min(*width - NARROWEST);
    }
    let titles = columns.iter().map(|column| paint(Style::Dim, column.title)).collect();
    let mut text = String::new();
    for row in std::iter::once(&titles).chain(rows) {
        let mut line = String::new();
        for (at, width) in &shown {
            let cell = truncate_str(&row[*at], *width, "…");
            let blanks = width.saturating_sub(measure_text_width(&cell)) + GAP;
            line.push_str(&cell);
            line.extend(std::iter::repeat_n(' ', blanks));
        }
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    const COLUMNS: [Column; 3] = [column("NAME").cut(), column("STATE"), column("AGE").optional(1)];

    fn rows() -> Vec<Vec<String>> {
        let row = |cells: [&str; 3]| cells.map(str::to_owned).to_vec();
        vec![row(["a-very-long-name-indeed", "active", "3h"]), row(["ä", "\u{1b}[31mgone\u{1b}[0m", "12d"])]
    }

    #[test]
    fn with_room_everything_is_shown_and_colours_take_none() {
        let text = layout(&COLUMNS, &rows(), 80);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[0], "NAME                     STATE   AGE");
        assert_eq!(lines[1], "a-very-long-name-indeed  active  3h");
        assert_eq!(lines[2], "ä                        \u{1b}[31mgone\u{1b}[0m    12d");
    }

    #[test]
    fn without_room_a_column_is_cut_then_one_is_left_out() {
        let text = layout(&COLUMNS, &rows(), 25);
        assert_eq!(text.lines().nth(1), Some("a-very-long…  active  3h"));
        assert!(text.lines().all(|line| measure_text_width(line) <= 25), "{text}");
        let text = layout(&COLUMNS, &rows(), 20);
        assert_eq!(text.lines().nth(1), Some("a-very-long…  active"));
        // What always stays stays, wider than the room or not.
        assert!(layout(&COLUMNS, &rows(), 1).contains("STATE"));
    }
}
