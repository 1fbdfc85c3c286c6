//! Commands that change, and Ctrl-C in the middle of a change.

use serde_json::json;

use super::Terminal;
use crate::support::{Stand, until};

#[tokio::test(flavor = "multi_thread")]
async fn create_prints_the_path_and_the_others_are_quiet() {
    let stand = Stand::dev().await;
    let repository = stand.repository("shop");
    let screen = Terminal::sized(&stand, repository.path(), &["create", "fix"], 200, false).succeeds().await;
    let place = std::path::PathBuf::from(screen.trim());
    assert!(place.join("README").is_file(), "{screen}");
    for command in ["claim", "release"] {
        assert_eq!(Terminal::start(&stand, &place, &[command]).succeeds().await.trim(), "", "{command}");
    }
    assert_eq!(Terminal::start(&stand, &place, &["claim", "--session", "ada"]).succeeds().await.trim(), "");
    let mut terminal = Terminal::start(&stand, &place, &["claim"]);
    assert_eq!(terminal.ends().await, 1);
    let screen = terminal.screen();
    assert!(screen.contains("W210") && screen.contains("`ada`") && screen.contains("hint: "), "{screen}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_create_that_is_interrupted_leaves_nothing_behind() {
    let stand = Stand::dev().await;
    let repository = stand.repository("shop");
    let (begun, go) = (stand.seal.path().join("begun"), stand.seal.path().join("go"));
    let hook = format!(
        "#!/bin/sh\n: > '{}'\nn=0\nwhile [ ! -e '{}' ] && [ $n -lt 1200 ]; do n=$((n + 1)); sleep 0.05; done\n",
        begun.display(),
        go.display()
    );
    repository.hook("post-checkout", &hook);
    let before = repository.refs();
    let mut terminal = Terminal::start(&stand, repository.path(), &["create", "fix"]);
    until("the checkout", || async { begun.exists().then_some(()) }).await;
    terminal.interrupts();
    terminal.shows("finishing what was begun").await;
    std::fs::write(&go, "").unwrap();
    assert_eq!(terminal.ends().await, 130);
    assert!(terminal.screen().contains("was taken back"), "{}", terminal.screen());
    assert_eq!(repository.refs(), before);
    assert_eq!(repository.worktrees(), [repository.path()]);
    let listed = stand.client.ok("worktree::list", json!({})).await;
    assert_eq!(listed["worktrees"], json!([]));
}
