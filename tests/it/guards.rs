//! What a review cannot see because it is absent: rules over the whole tree.

use std::path::{Path, PathBuf};

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Every Rust file below `directory` of the project, with its path from there and its text.
fn sources(directory: &str) -> Vec<(String, String)> {
    fn walk(directory: &Path, found: &mut Vec<PathBuf>) {
        for entry in std::fs::read_dir(directory).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                walk(&path, found);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                found.push(path);
            }
        }
    }
    let base = root().join(directory);
    let mut found = Vec::new();
    walk(&base, &mut found);
    found.sort();
    assert!(!found.is_empty(), "no source in {}", base.display());
    found
        .into_iter()
        .map(|path| {
            let text = std::fs::read_to_string(&path).unwrap();
            (path.strip_prefix(&base).unwrap().to_str().unwrap().to_owned(), text)
        })
        .collect()
}

/// The text without comments, and with what stands in string literals blanked.
fn code(text: &str) -> String {
    let mut out = String::new();
    for line in text.lines() {
        let mut quoted = false;
        let mut previous = ' ';
        let mut characters = line.chars().peekable();
        while let Some(character) = characters.next() {
            if !quoted && character == '/' && characters.peek() == Some(&'/') {
                break;
            }
            if character == '"' && previous != '\\' && previous != '\'' {
                quoted = !quoted;
            }
            out.push(if quoted && character != '"' { ' ' } else { character });
            previous = if previous == '\\' && character == '\\' { ' ' } else { character };
        }
        out.push('\n');
    }
    out
}

/// What runs outside tests: a file up to its test module.
fn production(text: &str) -> &str {
    text.split("\n#[cfg(test)]\n").next().unwrap()
}

/// The module of `src` in which a file lies.
fn module(path: &str) -> &str {
    path.split('/').next().unwrap().trim_end_matches(".rs")
}

/// The modules of this crate that a text names through `crate::`.
fn imports(text: &str) -> Vec<String> {
    let code = code(text);
    let mut found = Vec::new();
    for (at, _) in code.match_indices("crate::") {
        let rest = &code[at + "crate::".len()..];
        let word = |text: &str| text.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect::<String>();
        if let Some(group) = rest.strip_prefix('{') {
            let group = group.split('}').next().unwrap();
            found.extend(group.split(',').map(|item| word(item.trim())).filter(|name| !name.is_empty()));
        } else {
            found.push(word(rest));
        }
    }
    found
}

#[test]
fn imports_go_one_way() {
    let allowed = |module: &str| -> &[&str] {
        match module {
            "cli" => &["cli", "wire", "engine", "worktrees", "land", "queue", "git", "bus", "audit", "model"],
            "wire" => &["wire", "worktrees", "land", "queue", "git", "bus", "model"],
            "worktrees" | "land" | "queue" => &["worktrees", "land", "queue", "git", "bus", "audit", "fault", "model"],
            "git" => &["git", "fault", "model"],
            "bus" => &["bus", "fault", "model"],
            "audit" => &["audit", "model"],
            "engine" => &["engine"],
            "model" | "fault" => &["model"],
            other => panic!("`{other}` has no place in the import rule"),
        }
    };
    for (path, text) in sources("src") {
        if matches!(path.as_str(), "lib.rs" | "main.rs") {
            continue;
        }
        for name in imports(&text) {
            assert!(allowed(module(&path)).contains(&name.as_str()), "src/{path} imports `{name}`");
        }
    }
}

#[test]
fn the_sdk_is_named_only_at_the_edge() {
    for (path, text) in sources("src") {
        let edge = path.starts_with("bus/iii") || path == "main.rs" || matches!(module(&path), "wire" | "cli");
        assert!(edge || !code(&text).contains("iii_sdk"), "src/{path} names the SDK");
    }
}

#[test]
fn programs_start_in_two_places() {
    for (path, text) in sources("src") {
        let code = code(production(&text));
        let place = path == "git/command.rs" || path.starts_with("engine/shell");
        assert!(place || !code.contains("Command::new("), "src/{path} starts a program");
        // Whatever anybody types is for the tour alone.
        let typed = code.contains(".as_person(") && path != "cli/demo/agent.rs";
        assert!(!typed, "src/{path} lets git do anything");
    }
}

#[test]
fn no_repository_is_ever_pruned_as_a_whole() {
    for (path, text) in sources("src") {
        let words: String = text.chars().map(|c| if c.is_alphanumeric() { c } else { ' ' }).collect();
        let words: Vec<_> = words.split_whitespace().collect();
        for pair in words.windows(2) {
            // `worktree::prune` is a function of ours; `git worktree prune` and `"worktree", "prune"` are git's.
            if pair == ["worktree", "prune"] {
                assert!(!text.contains("\"worktree\", \"prune\"") && !text.contains("\"prune\""), "src/{path}");
            }
        }
    }
}

#[test]
fn one_judgement_permits_a_deletion() {
    // What takes something away for good, and where it may stand.
    let calls: [(&str, &[&str]); 6] = [
        ("Cleared {", &["worktrees/unsaved_work.rs"]),
        ("trash::discard(", &["worktrees/discard.rs"]),
        ("tree.remove(", &["worktrees/discard.rs"]),
        ("abort_operation()", &["land/act.rs"]),
        (".delete_ref(", &["worktrees/branch.rs", "worktrees/roll_back.rs", "worktrees/intent.rs", "land/act.rs"]),
        ("remove_dir_all(", &["worktrees/roll_back.rs", "worktrees/kept.rs", "worktrees/trash.rs"]),
    ];
    for (path, text) in sources("src") {
        // Git's own layer is told what to do; the engine and the tour have files of their own.
        if !matches!(module(&path), "worktrees" | "land" | "queue" | "wire") {
            continue;
        }
        let code = code(production(&text));
        for (call, places) in calls {
            assert!(!code.contains(call) || places.contains(&path.as_str()), "src/{path} has `{call}`");
        }
        // Whether a worktree is clean is asked by the reads, by the judgement, and by the land of what it sees.
        let asks = ["worktrees/inspect.rs", "worktrees/unsaved_work.rs", "land/observe.rs"];
        assert!(!code.contains("tree.status()") || asks.contains(&path.as_str()), "src/{path} judges for itself");
    }
}

#[test]
fn what_destroys_writes_it_down_first() {
    let places = ["discard", "branch", "roll_back", "intent", "remove", "restore"]
        .map(|name| format!("src/worktrees/{name}.rs"));
    for path in places.iter().map(String::as_str).chain(["src/land/act.rs"]) {
        let text = std::fs::read_to_string(root().join(path)).unwrap();
        assert!(code(production(&text)).contains("ctx.audit("), "{path} destroys without a word");
    }
}

#[test]
fn standard_output_belongs_to_the_command_line() {
    for (path, text) in sources("src") {
        let code = code(&text);
        for call in ["println!", "print!", "eprintln!", "eprint!", "dbg!", "io::stdout()"] {
            let said = code
                .match_indices(call)
                .any(|(at, _)| !code[..at].ends_with(|c: char| c.is_alphanumeric() || c == '_'));
            assert!(!said || path.starts_with("cli/"), "src/{path} uses {call}");
        }
    }
}

#[test]
fn production_files_stay_small_enough_to_read() {
    for (path, text) in sources("src") {
        let lines = text.lines().count();
        assert!(lines <= 600, "src/{path} has {lines} lines");
    }
    let main = std::fs::read_to_string(root().join("src/main.rs")).unwrap();
    assert!(main.lines().count() < 60, "src/main.rs decides too much");
}

#[test]
fn every_test_file_is_listed_as_a_module() {
    for binary in ["tests/it", "tests/live"] {
        let files = sources(binary);
        for (path, _) in &files {
            let path = Path::new(path);
            let (name, parent) = match (path.file_stem().unwrap().to_str().unwrap(), path.parent().unwrap()) {
                ("main", _) => continue,
                ("mod", folder) => (folder.file_name().unwrap().to_str().unwrap(), folder.parent().unwrap()),
                (stem, folder) => (stem, folder),
            };
            let owners = ["main.rs", "mod.rs"].map(|file| parent.join(file).to_str().unwrap().to_owned());
            // A folder may also belong to a file of the same name beside it.
            let beside = parent.with_extension("rs").to_str().unwrap().to_owned();
            let listed = files.iter().any(|(file, text)| {
                (owners.contains(file) || *file == beside)
                    && text.lines().any(|line| {
                        let line = line.trim().trim_start_matches("pub ");
                        line == format!("mod {name};")
                    })
            });
            assert!(listed, "{binary}/{} is not a module of the test binary", path.display());
        }
    }
}

#[test]
fn the_readme_tells_every_code() {
    let readme = std::fs::read_to_string(root().join("README.md")).unwrap();
    for code in worktree::model::Code::ALL {
        assert!(readme.contains(&format!("| {code} |")), "README.md does not tell {code}");
    }
}

#[test]
fn imports_are_found_where_they_are() {
    let text = "use crate::{git, model::Code};\n// crate::wire\nlet x = \"crate::cli\"; crate::bus::iii();\n";
    assert_eq!(imports(text), ["git", "model", "bus"]);
}
