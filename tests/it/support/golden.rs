//! Files that hold what the program is to say, reviewed as a contract.
//!
//! `UPDATE_GOLDENS=1` writes them anew. A mismatch shows the first line that differs. A file that no test asked
//! about is an orphan, and an error.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// The goldens in one directory.
pub struct Goldens {
    directory: PathBuf,
    asked: BTreeSet<String>,
    update: bool,
}

impl Goldens {
    /// The goldens in `goldens/<name>` of the project.
    pub fn at(name: &str) -> Self {
        let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("goldens").join(name);
        Self { directory, asked: BTreeSet::new(), update: std::env::var_os("UPDATE_GOLDENS").is_some() }
    }

    /// Compares `actual` with the file of this name.
    pub fn check(&mut self, name: &str, actual: &str) {
        self.asked.insert(name.to_owned());
        let path = self.directory.join(name);
        if self.update {
            std::fs::create_dir_all(&self.directory).unwrap();
            std::fs::write(&path, actual).unwrap();
            return;
        }
        let expected = std::fs::read_to_string(&path)
            .unwrap_or_else(|error| panic!("{}: {error}\nwrite it with UPDATE_GOLDENS=1", path.display()));
        if let Some(difference) = first_difference(&expected, actual) {
            panic!("{} differs {difference}\nif that is meant, UPDATE_GOLDENS=1 writes it anew", path.display());
        }
    }

    /// Fails when there is a file that nobody asked about.
    pub fn finish(self) {
        let there = std::fs::read_dir(&self.directory).unwrap();
        let orphans: Vec<_> = there
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .filter(|name| !self.asked.contains(name))
            .collect();
        assert!(orphans.is_empty(), "nobody asks about {orphans:?} in {}", self.directory.display());
    }
}

/// The first line in which two texts differ.
fn first_difference(expected: &str, actual: &str) -> Option<String> {
    if expected == actual {
        return None;
    }
    let (mut left, mut right) = (expected.lines(), actual.lines());
    for number in 1.. {
        match (left.next(), right.next()) {
            (Some(one), Some(other)) if one == other => {}
            (None, None) => return Some("in its line endings".to_owned()),
            (one, other) => {
                let show = |line: Option<&str>| line.map_or("(end of text)".to_owned(), |line| format!("{line:?}"));
                return Some(format!("in line {number}:\n  expected {}\n  actual   {}", show(one), show(other)));
            }
        }
    }
    None
}

#[test]
fn the_first_line_that_differs_is_shown() {
    assert_eq!(first_difference("a\nb\n", "a\nb\n"), None);
    let shown = first_difference("a\nb\n", "a\nc\n").unwrap();
    assert!(shown.contains("line 2") && shown.contains("\"b\"") && shown.contains("\"c\""), "{shown}");
    assert!(first_difference("a\n", "a\nb\n").unwrap().contains("(end of text)"));
    assert!(first_difference("a\n", "a").is_some());
}
