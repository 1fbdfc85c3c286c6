//! `worktree land` while one watches.

use serde_json::json;

use super::Terminal;
use crate::support::{Gate, Stand};

#[tokio::test(flavor = "multi_thread")]
async fn the_phase_is_shown_while_it_lasts_and_the_queue_behind_it() {
    let stand = Stand::dev().await;
    let repository = stand.repository("shop");
    let gate = Gate::new(&stand.seal, "slow");
    let one = stand.create_with(&repository, json!({"branch": "one"})).await;
    let two = stand.create_with(&repository, json!({"branch": "two"})).await;
    one.checkout.commit("apples", "3\n");
    two.checkout.commit("pears", "4\n");
    let command = gate.command();
    let mut first = Terminal::sized(&stand, one.checkout.path(), &["land", "--test", &command, "--wait"], 200, false);
    first.shows("one → main: test `sh ").await;
    let mut second = Terminal::start(&stand, repository.path(), &["land", "two", "--wait"]);
    second.shows("two → main: waits for 1 before it").await;
    let screen = Terminal::start(&stand, repository.path(), &["queue"]).succeeds().await;
    let lines: Vec<&str> = screen.lines().collect();
    assert!(lines[1].starts_with('1') && lines[1].contains("one") && lines[1].contains("test"), "{screen}");
    assert!(lines[2].starts_with('2') && lines[2].contains("two") && lines[2].contains("waits"), "{screen}");
    gate.end(0);
    assert_eq!(first.ends().await, 0, "{}", first.screen());
    // The moving line is gone, the outcome stays.
    let screen = first.screen();
    assert!(screen.contains("landed one on main as ") && !screen.contains("test `"), "{screen}");
    assert_eq!(second.ends().await, 0);
    assert!(second.screen().contains("landed two on main"), "{}", second.screen());
    assert!(second.screen().contains("untested"), "{}", second.screen());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stopped_land_shows_the_words_of_the_tests_and_status_repeats_them() {
    let stand = Stand::dev().await;
    let repository = stand.repository("shop");
    let place = stand.create_with(&repository, json!({"branch": "fix"})).await;
    place.checkout.commit("apples", "three\n");
    let land = ["land", "fix", "--test", "echo not a number; exit 7", "--wait"];
    let mut terminal = Terminal::start(&stand, repository.path(), &land);
    assert_eq!(terminal.ends().await, 1);
    for word in ["| not a number", "W411", "exit code 7", "hint: "] {
        assert!(terminal.screen().contains(word), "no {word}:\n{}", terminal.screen());
    }
    let screen = Terminal::start(&stand, repository.path(), &["status", "fix"]).succeeds().await;
    assert!(screen.contains("stopped, W411") && screen.contains("| not a number"), "{screen}");
    assert_eq!(repository.branch("main"), Some(place.base_sha));
}

#[tokio::test(flavor = "multi_thread")]
async fn ctrl_c_ends_the_waiting_and_not_the_land() {
    let stand = Stand::dev().await;
    let repository = stand.repository("shop");
    let gate = Gate::new(&stand.seal, "slow");
    let mut events = stand.hear().await;
    let place = stand.create_with(&repository, json!({"branch": "fix"})).await;
    place.checkout.commit("apples", "3\n");
    let mut terminal =
        Terminal::sized(&stand, repository.path(), &["land", "fix", "--test", &gate.command(), "--wait"], 200, false);
    gate.started().await;
    terminal.shows("fix → main: test `").await;
    terminal.interrupts();
    assert_eq!(terminal.ends().await, 130);
    let screen = terminal.screen();
    assert!(screen.contains("the land of fix goes on"), "{screen}");
    gate.end(0);
    events.landed(&place.id).await;
}
