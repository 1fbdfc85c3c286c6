//! `worktree demo`.

use super::{err, out};
use crate::support::{BINARY, Seal};

#[test]
fn it_shows_what_it_announces_and_leaves_nothing_behind() {
    let seal = Seal::new();
    // A machine without any configuration of git, on which no identity is known.
    std::fs::remove_file(seal.home().join(".gitconfig")).unwrap();
    let output = seal.command(BINARY).arg("demo").output().unwrap();
    let shown = out(&output);
    assert!(output.status.success(), "{shown}\n{}", err(&output));
    for word in ["worktree::landed", "W410", "W411", "W221", "All of it checked"] {
        assert!(shown.contains(word), "no {word} in:\n{shown}");
    }
    assert!(!shown.contains('\u{1b}'), "colours in a pipe:\n{shown}");
    for place in [seal.home(), seal.path().join("tmp")] {
        let left: Vec<_> = std::fs::read_dir(&place).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert!(left.is_empty(), "left in {}: {left:?}", place.display());
    }
}
