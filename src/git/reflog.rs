//! What a reflog says of a ref, read from its file. Nothing is found where the repository keeps its refs in tables.

use std::path::Path;

use super::sha::Sha;

/// One line of a reflog.
pub(super) struct Move {
    /// Where the ref was.
    pub(super) from: Sha,
    /// Where it went.
    pub(super) to: Sha,
    /// Why it moved.
    pub(super) why: String,
}

/// The lines of a reflog, the newest first, less the one that made the ref.
pub(super) fn moves(log: &Path) -> Vec<Move> {
    let log = std::fs::read(log).unwrap_or_default();
    let lines = log.rsplit(|byte| *byte == b'\n');
    lines.filter_map(|line| parse(&String::from_utf8_lossy(line))).collect()
}

fn parse(line: &str) -> Option<Move> {
    let (moved, why) = line.split_once('\t')?;
    let mut ids = moved.split(' ');
    let mut id = || ids.next()?.parse().ok();
    Some(Move { from: id()?, to: id()?, why: why.to_owned() })
}

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "what a test writes need survive no crash")]
mod tests {
    use super::*;

    #[test]
    fn the_newest_move_comes_first_and_other_lines_are_left_out() {
        let dir = tempfile::tempdir().unwrap();
        let log = dir.path().join("log");
        let (a, b) = ("a".repeat(40), "b".repeat(40));
        let who = "A B <a@b> 1700000000 +0000";
        let text = format!("{a} {b} {who}\tcommit: one\nnonsense\n{b} {a} {who}\treset: moving\tto HEAD~\n{b} {a}");
        std::fs::write(&log, text).unwrap();
        let found: Vec<_> = moves(&log).into_iter().map(|line| (line.from.to_string(), line.why)).collect();
        assert_eq!(found, [(b, "reset: moving\tto HEAD~".to_owned()), (a, "commit: one".to_owned())]);
        assert!(moves(&dir.path().join("none")).is_empty());
    }
}
