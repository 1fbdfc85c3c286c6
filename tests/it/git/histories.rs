//! Random files and random changes to them, and repositories made of both.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};

use proptest::prelude::*;

use super::sealed::Place;

/// A file of the model: its lines, and whether it is executable.
pub type Files = BTreeMap<String, (Vec<String>, bool)>;

/// One change to the files.
#[derive(Debug, Clone)]
pub enum Change {
    Edit { file: usize, line: usize, text: u8 },
    Insert { file: usize, line: usize, text: u8 },
    Add { name: usize, text: u8 },
    Delete { file: usize },
    Rename { file: usize, name: usize },
    Mode { file: usize },
}

pub const NAMES: &[&str] =
    &["a", "b", "c", "lib/a", "lib/b", "lib/deep/c", "new/x", "new/y", "a.d/z", "lib", "spaced name"];
pub fn change() -> impl Strategy<Value = Change> {
    let file = 0..12usize;
    let line = 0..30usize;
    prop_oneof![
        6 => (file.clone(), line.clone(), any::<u8>()).prop_map(|(file, line, text)| Change::Edit { file, line, text }),
        4 => (file.clone(), line, any::<u8>()).prop_map(|(file, line, text)| Change::Insert { file, line, text }),
        3 => (0..NAMES.len(), any::<u8>()).prop_map(|(name, text)| Change::Add { name, text }),
        1 => file.clone().prop_map(|file| Change::Delete { file }),
        2 => (file.clone(), 0..NAMES.len()).prop_map(|(file, name)| Change::Rename { file, name }),
        1 => file.prop_map(|file| Change::Mode { file }),
    ]
}

pub fn nth(files: &Files, index: usize) -> Option<String> {
    let names: Vec<_> = files.keys().filter(|name| *name != ".gitattributes").collect();
    (!names.is_empty()).then(|| names[index % names.len()].clone())
}

/// Whether a file of this name can exist beside the others.
pub fn fits(files: &Files, name: &str) -> bool {
    let inside = |outer: &str, inner: &str| inner.strip_prefix(outer).is_some_and(|rest| rest.starts_with('/'));
    files.keys().all(|other| other != name && !inside(other, name) && !inside(name, other))
}

pub fn apply(files: &mut Files, change: &Change) {
    match change {
        Change::Edit { file, line, text } => {
            let Some(name) = nth(files, *file) else { return };
            let lines = &mut files.get_mut(&name).unwrap().0;
            if !lines.is_empty() {
                let at = line % lines.len();
                lines[at] = format!("edited {text}");
            }
        }
        Change::Insert { file, line, text } => {
            let Some(name) = nth(files, *file) else { return };
            let lines = &mut files.get_mut(&name).unwrap().0;
            lines.insert(line % (lines.len() + 1), format!("inserted {text}"));
        }
        Change::Add { name, text } if fits(files, NAMES[*name]) => {
            let lines = (0..12).map(|n| format!("{text} {n}")).collect();
            files.insert(NAMES[*name].to_owned(), (lines, false));
        }
        Change::Delete { file } => {
            nth(files, *file).map(|name| files.remove(&name));
        }
        Change::Rename { file, name } if fits(files, NAMES[*name]) => {
            let Some(old) = nth(files, *file) else { return };
            let content = files.remove(&old).unwrap();
            files.insert(NAMES[*name].to_owned(), content);
        }
        Change::Mode { file } => {
            if let Some(name) = nth(files, *file) {
                let content = files.get_mut(&name).unwrap();
                content.1 = !content.1;
            }
        }
        Change::Add { .. } | Change::Rename { .. } => {}
    }
}

/// One commit as `fast-import` takes it.
pub fn commit(out: &mut String, branch: &str, from: Option<&str>, files: &Files, message: &str, author: &str) {
    writeln!(out, "commit refs/heads/{branch}\nauthor {author}\ncommitter Com <c@c> 1767319500 +0000").unwrap();
    writeln!(out, "data {}\n{message}", message.len()).unwrap();
    if let Some(from) = from {
        writeln!(out, "from {from}").unwrap();
    }
    writeln!(out, "deleteall").unwrap();
    for (name, (lines, executable)) in files {
        let content: String = lines.iter().map(|line| format!("{line}\n")).collect();
        let mode = if *executable { "100755" } else { "100644" };
        writeln!(out, "M {mode} inline \"{name}\"\ndata {}\n{content}", content.len()).unwrap();
    }
}

pub fn import(place: &Place, root: &Path, stream: &str) {
    std::fs::create_dir_all(root).unwrap();
    place.run(root, ["init", "--quiet", "--initial-branch=main"]);
    let mut child = Command::new("git")
        .args(["fast-import", "--quiet", "--force"])
        .current_dir(root)
        .stdin(Stdio::piped())
        .spawn()
        .unwrap();
    std::io::Write::write_all(&mut child.stdin.take().unwrap(), stream.as_bytes()).unwrap();
    assert!(child.wait().unwrap().success());
}
