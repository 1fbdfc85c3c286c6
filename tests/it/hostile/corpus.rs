//! What fuzzing has kept is read again, whole and damaged, without a fuzzer.

use std::collections::BTreeSet;
use std::path::Path;

use worktree::git::fuzz::{TARGETS, run};

fn names(directory: &Path) -> BTreeSet<String> {
    let entries = std::fs::read_dir(directory).unwrap_or_else(|error| panic!("{}: {error}", directory.display()));
    entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
}

#[test]
fn what_fuzzing_kept_is_read_again_whole_and_damaged() {
    let place = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz");
    let targets: BTreeSet<String> = TARGETS.iter().map(|target| (*target).to_owned()).collect();
    assert_eq!(names(&place.join("corpus")), targets);
    let programs: BTreeSet<String> = targets.iter().map(|target| format!("{target}.rs")).collect();
    assert_eq!(names(&place.join("fuzz_targets")), programs);
    for target in TARGETS {
        let directory = place.join("corpus").join(target);
        let kept = names(&directory);
        assert!(kept.len() >= 2, "{target} has only {kept:?}");
        for name in kept {
            let bytes = std::fs::read(directory.join(&name)).unwrap();
            run(target, &bytes);
            for at in 0..bytes.len() {
                run(target, &bytes[..at]);
                run(target, &[&bytes[..at], &bytes[at + 1..]].concat());
                let mut damaged = bytes.clone();
                for byte in [0, b'\n', b' ', 0xff, bytes[at] ^ 1] {
                    damaged[at] = byte;
                    run(target, &damaged);
                }
            }
        }
    }
}
