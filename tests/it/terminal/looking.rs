//! Commands that look.

use serde_json::json;

use super::Terminal;
use crate::support::{Stand, until};

#[tokio::test(flavor = "multi_thread")]
async fn the_table_is_there_at_once_and_its_status_is_filled_in() {
    let stand = Stand::dev().await;
    let repository = stand.repository("shop");
    let place = stand.create_with(&repository, json!({"branch": "fix", "session_id": "ada"})).await;
    place.checkout.write("new", "file\n");
    let terminal = Terminal::sized(&stand, repository.path(), &["list"], 100, true);
    let raw = {
        let mut terminal = terminal;
        assert_eq!(terminal.ends().await, 0);
        let screen = terminal.screen();
        let line = screen.lines().find(|line| line.contains("fix")).unwrap();
        for word in [&place.id, "claimed", "ada", "?1"] {
            assert!(line.contains(word), "no {word} in {line}");
        }
        assert!(!screen.contains('…'), "a status is missing:\n{screen}");
        terminal.raw()
    };
    // First without a status, then drawn over.
    assert!(raw.contains('…') && raw.contains("\u{1b}[2A"), "{raw:?}");
    assert!(raw.contains("\u{1b}[36mclaimed"), "no colours: {raw:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_table_fits_a_narrow_terminal() {
    let stand = Stand::dev().await;
    let repository = stand.repository("shop");
    let branch = "a-branch/with-a-name/that-is-far-too-long-for-it";
    stand.create_with(&repository, json!({"branch": branch, "session_id": "ada"})).await;
    let mut terminal = Terminal::sized(&stand, repository.path(), &["list"], 60, false);
    assert_eq!(terminal.ends().await, 0);
    let screen = terminal.screen();
    // One line of titles and one of cells: nothing was wrapped.
    assert_eq!(screen.trim_end().lines().count(), 2, "{screen}");
    assert!(screen.contains("a-branch/") && screen.contains('…') && !screen.contains("PORT"), "{screen}");
    assert!(!terminal.raw().contains("\u{1b}[36m"), "colours in spite of NO_COLOR");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_watched_table_changes_until_ctrl_c() {
    let stand = Stand::dev().await;
    let repository = stand.repository("shop");
    let mut terminal = Terminal::start(&stand, repository.path(), &["list", "--watch"]);
    terminal.shows("no worktrees").await;
    stand.create_with(&repository, json!({"branch": "fix"})).await;
    terminal.shows("fix").await;
    assert!(!terminal.screen().contains("no worktrees"), "{}", terminal.screen());
    terminal.interrupts();
    assert_eq!(terminal.ends().await, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn one_worktree_is_shown_from_within_it() {
    let stand = Stand::dev().await;
    let repository = stand.repository("shop");
    let place = stand.create_with(&repository, json!({"branch": "fix"})).await;
    place.checkout.commit("apples", "3\n");
    let here = place.checkout.path();
    let screen = Terminal::start(&stand, here, &["get"]).succeeds().await;
    assert!(screen.contains(&place.id) && screen.contains("nobody"), "{screen}");
    let screen = Terminal::start(&stand, here, &["status"]).succeeds().await;
    assert!(screen.contains("1 commit not landed"), "{screen}");
    let screen = Terminal::start(&stand, here, &["validate"]).succeeds().await;
    assert!(screen.contains(&format!("is in worktree {}", place.id)), "{screen}");
    let mut terminal = Terminal::start(&stand, stand.seal.path(), &["validate"]);
    assert_eq!(terminal.ends().await, 1);
    assert!(terminal.screen().contains("not inside a git worktree"), "{}", terminal.screen());
}

#[tokio::test(flavor = "multi_thread")]
async fn events_are_shown_as_they_happen() {
    let stand = Stand::dev().await;
    let repository = stand.repository("shop");
    let mut terminal = Terminal::start(&stand, repository.path(), &["watch"]);
    terminal.shows("watching").await;
    let place = stand.create_with(&repository, json!({"branch": "fix"})).await;
    terminal.shows(&format!("created      {}", place.id)).await;
    terminal.interrupts();
    assert_eq!(terminal.ends().await, 0);
    // Nothing of it stays bound.
    until("the end of the bindings", || async {
        let ask = json!({"search": "worktree-watch", "include_internal": true});
        let listed = stand.client.ok("engine::registered-triggers::list", ask).await;
        listed["registered_triggers"].as_array().unwrap().is_empty().then_some(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn doctor_names_the_command_that_mends_a_repository_c09() {
    let stand = Stand::dev().await;
    let repository = stand.repository("shop");
    stand.create(&repository).await;
    let screen = Terminal::start(&stand, repository.path(), &["doctor"]).succeeds().await;
    assert!(screen.contains("0 problems") && screen.contains("runs tests in"), "{screen}");

    repository.git(&["config", "core.bare", "true"]);
    let git_dir = repository.path().join(".git");
    let mut terminal = Terminal::sized(&stand, repository.path(), &["doctor"], 200, false);
    assert_eq!(terminal.ends().await, 1);
    let fix = format!("git --git-dir={} config core.bare false", git_dir.display());
    let screen = terminal.screen();
    assert!(screen.contains(&format!("fix: {fix}")), "{screen}");
    let words: Vec<&str> = fix.split(' ').skip(1).collect();
    repository.git(&words);
    Terminal::start(&stand, repository.path(), &["doctor"]).succeeds().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn sizes_locks_and_shells_are_shown() {
    let stand = Stand::dev().await;
    let repository = stand.repository("shop");
    stand.create_with(&repository, json!({"branch": "fix"})).await;
    let here = repository.path();
    let screen = Terminal::start(&stand, here, &["du"]).succeeds().await;
    assert!(screen.contains("fix") && screen.contains("total "), "{screen}");
    let screen = Terminal::start(&stand, here, &["unlock"]).succeeds().await;
    assert!(screen.contains("nobody holds"), "{screen}");
    let screen = Terminal::start(&stand, here, &["completions", "--init", "bash"]).succeeds().await;
    assert!(screen.contains("wt()"), "{screen}");
    let screen = Terminal::start(&stand, here, &["config", "gates.allow_force"]).succeeds().await;
    assert_eq!(screen.trim(), "false");
    let screen = Terminal::start(&stand, here, &["queue"]).succeeds().await;
    assert_eq!(screen.trim(), "");
}
