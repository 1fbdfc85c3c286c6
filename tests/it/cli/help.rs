//! The help texts and the manifest, as reviewed.

use serde_json::Value;

use super::{err, out};
use crate::support::golden::Goldens;
use crate::support::{BINARY, Seal};

#[test]
fn the_help_texts_are_as_reviewed() {
    let seal = Seal::new();
    let mut goldens = Goldens::at("help");
    for command in [
        "",
        "serve",
        "dev",
        "demo",
        "call",
        "create",
        "list",
        "get",
        "status",
        "claim",
        "release",
        "land",
        "queue",
        "watch",
        "remove",
        "prune",
        "restore",
        "du",
        "audit",
        "audit verify",
        "audit query",
        "audit tail",
        "unlock",
        "validate",
        "doctor",
        "config",
        "completions",
    ] {
        let mut run = seal.command(BINARY);
        run.args(command.split_terminator(' ')).arg("--help");
        let output = run.output().unwrap();
        assert!(output.status.success(), "{}", err(&output));
        let name = if command.is_empty() { "worktree" } else { command };
        goldens.check(&format!("{}.txt", name.replace(' ', "-")), &out(&output));
    }
    goldens.finish();
}

#[test]
fn every_command_has_its_help_reviewed() {
    let seal = Seal::new();
    let output = seal.command(BINARY).arg("--help").output().unwrap();
    let text = out(&output);
    let commands = text.split("Commands:\n").nth(1).unwrap().split("\n\n").next().unwrap();
    for line in commands.lines() {
        let name = line.split_whitespace().next().unwrap();
        let golden = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("goldens/help").join(format!("{name}.txt"));
        assert!(name == "help" || golden.exists(), "the help of {name} has no golden");
    }
}

#[test]
fn the_manifest_needs_no_engine() {
    let seal = Seal::new();
    let mut texts = Vec::new();
    for arguments in [&["--manifest"][..], &["serve", "--manifest"], &["--url", "ws://127.0.0.1:1", "--manifest"]] {
        let output = seal.command(BINARY).args(arguments).output().unwrap();
        assert!(output.status.success(), "{}", err(&output));
        texts.push(out(&output));
    }
    texts.dedup();
    assert_eq!(texts.len(), 1);
    let manifest: Value = serde_json::from_str(&texts[0]).unwrap();
    assert_eq!(
        (manifest["name"].as_str(), manifest["version"].as_str()),
        (Some("worktree"), Some(env!("CARGO_PKG_VERSION")))
    );
    // The version moves with every release, all else by decision.
    let shown = texts[0].replace(env!("CARGO_PKG_VERSION"), "VERSION");
    Goldens::at("").check("manifest.json", &shown);
}

#[test]
fn a_command_line_that_is_wrong_exits_with_2() {
    let seal = Seal::new();
    for arguments in [
        &["no-such-command"][..],
        &["--no-such-option"],
        &["dev", "--port", "99999"],
        &["call"],
        &["--url", "ws://127.0.0.1:1", "demo"],
        &["--manifest", "call", "worktree::list"],
    ] {
        let output = seal.command(BINARY).args(arguments).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {}", err(&output));
        assert!(out(&output).is_empty() && !err(&output).is_empty(), "{arguments:?}");
    }
}
