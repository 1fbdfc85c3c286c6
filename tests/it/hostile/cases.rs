//! Every case that people of this trade have reported has a test, named in `goldens/cases.txt`.

use std::collections::BTreeSet;
use std::path::Path;

/// The numbers of the cases.
const CASES: [u8; 45] = [
    1, 2, 3, 4, 6, 7, 8, 9, 10, 13, 15, 16, 18, 19, 21, 23, 24, 26, 27, 29, 30, 31, 32, 33, 35, 36, 37, 39, 40, 42, 43,
    45, 46, 47, 48, 49, 50, 52, 54, 55, 56, 58, 59, 61, 63,
];

/// Whether a file has a test of this name: a function under an attribute that makes it one, or a scenario that is listed
/// and so played.
fn is_test(file: &str, name: &str) -> bool {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let text = std::fs::read_to_string(root.join(file)).unwrap_or_else(|error| panic!("{file}: {error}"));
    let lines: Vec<&str> = text.lines().map(str::trim).collect();
    let opening = format!("{name}(");
    let is_it = |line: &&str| line.split_once("fn ").is_some_and(|(_, rest)| rest.starts_with(&opening));
    let Some(at) = lines.iter().position(is_it) else { return false };
    let attributes = lines[..at].iter().rev().take_while(|line| line.starts_with("#[") || line.starts_with("//"));
    let marked = attributes.into_iter().any(|line| line.starts_with("#[test]") || line.starts_with("#[tokio::test"));
    let scenarios = std::fs::read_to_string(root.join("tests/it/scenarios/mod.rs")).unwrap();
    let played =
        file.starts_with("tests/it/scenarios/") && scenarios.lines().any(|line| line.trim() == format!("{name},"));
    marked || played
}

#[test]
fn every_case_has_a_test_that_exists() {
    let list = std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("goldens/cases.txt")).unwrap();
    let mut told = BTreeSet::new();
    for line in list.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
        let mut words = line.split_whitespace();
        let (Some(case), Some(file), Some(name), None) = (words.next(), words.next(), words.next(), words.next())
        else {
            panic!("not `<case> <file> <test>`: {line}");
        };
        let number = case.strip_prefix('C').and_then(|number| number.parse::<u8>().ok());
        let number = number.filter(|number| CASES.contains(number)).unwrap_or_else(|| panic!("no such case: {line}"));
        assert!(is_test(file, name), "there is no such test: {line}");
        told.insert(number);
    }
    let missing: Vec<_> = CASES.iter().filter(|case| !told.contains(case)).collect();
    assert!(missing.is_empty(), "no test is named for {missing:?}");
    assert!(!is_test("tests/it/hostile/cases.rs", "no_such_test") && !is_test("tests/it/hostile/cases.rs", "is_test"));
}
