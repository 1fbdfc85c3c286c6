//! Numbers and times in few characters.

use chrono::{DateTime, Local};

pub(super) use crate::worktrees::unsaved_work::counted;

/// How long ago `then` was: `now`, `5m`, `3h`, `12d`. Both in milliseconds since the epoch.
pub(super) fn age(then: i64, now: i64) -> String {
    let seconds = (now - then).max(0) / 1000;
    match seconds {
        0..60 => format!("{seconds}s"),
        60..3600 => format!("{}m", seconds / 60),
        3600..86_400 => format!("{}h", seconds / 3600),
        _ => format!("{}d", seconds / 86_400),
    }
}

/// The time of day here, for a line of a log.
pub(super) fn clock(at: i64) -> String {
    DateTime::from_timestamp_millis(at)
        .map_or_else(|| "?".to_owned(), |time| time.with_timezone(&Local).format("%H:%M:%S").to_string())
}

/// Date and time here.
pub(super) fn date(at: i64) -> String {
    DateTime::from_timestamp_millis(at)
        .map_or_else(|| "?".to_owned(), |time| time.with_timezone(&Local).format("%Y-%m-%d %H:%M:%S").to_string())
}

/// The first eight digits of a commit id.
pub(super) fn short(sha: &str) -> &str {
    sha.get(..8).unwrap_or(sha)
}

/// A size in the units of `du -h`: `512 B`, `1.5 MiB`.
pub(super) fn bytes(count: u64) -> String {
    let units = ["KiB", "MiB", "GiB", "TiB"];
    let mut unit = "B";
    let mut tenths = count.saturating_mul(10);
    for larger in units {
        if tenths < 10_240 {
            break;
        }
        (tenths, unit) = (tenths / 1024, larger);
    }
    if unit == "B" { format!("{count} B") } else { format!("{}.{} {unit}", tenths / 10, tenths % 10) }
}

/// `3 files changed, 10 insertions(+), 2 deletions(-)` as `+10 -2`.
pub(super) fn diffstat(long: &str) -> String {
    let number = |what: &str| {
        let part = long.split(", ").find(|part| part.contains(what))?;
        part.split_whitespace().next()?.parse::<u64>().ok()
    };
    match (number("insertion"), number("deletion")) {
        (None, None) => String::new(),
        (plus, minus) => format!("+{} -{}", plus.unwrap_or(0), minus.unwrap_or(0)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ages_grow_coarser() {
        let shown = [0, 59_000, 60_000, 3_600_000, 90_000_000].map(|ms| age(0, ms));
        assert_eq!(shown, ["0s", "59s", "1m", "1h", "1d"]);
        assert_eq!(age(5, 0), "0s");
    }

    #[test]
    fn the_words_of_git_become_two_numbers() {
        assert_eq!(diffstat(" 3 files changed, 10 insertions(+), 2 deletions(-)"), "+10 -2");
        assert_eq!(diffstat("1 file changed, 1 deletion(-)"), "+0 -1");
        assert_eq!(diffstat(""), "");
    }
    #[test]
    fn sizes_have_one_digit_behind_the_point() {
        let shown = [0, 1023, 1024, 1_572_864, 5_000_000_000_000_000].map(bytes);
        assert_eq!(shown, ["0 B", "1023 B", "1.0 KiB", "1.5 MiB", "4547.4 TiB"]);
    }
}
