//! Commands that ask before anything goes.

use serde_json::json;

use super::Terminal;
use crate::support::Stand;

async fn is_there(stand: &Stand, id: &str) -> bool {
    stand.client.call("worktree::get", json!({"worktree_id": id})).await.is_ok()
}

#[tokio::test(flavor = "multi_thread")]
async fn remove_asks_and_only_a_yes_removes() {
    let stand = Stand::dev().await;
    let repository = stand.repository("shop");
    let place = stand.create_with(&repository, json!({"branch": "fix"})).await;
    let remove = || Terminal::start(&stand, repository.path(), &["remove", "fix"]);
    for answer in ["n", "", "yes please"] {
        let mut terminal = remove();
        terminal.shows("Remove it? [y/N]").await;
        terminal.types(answer);
        assert_eq!(terminal.ends().await, 1, "{answer}");
        assert!(is_there(&stand, &place.id).await, "{answer}");
    }
    let mut terminal = remove();
    terminal.shows("Remove it? [y/N]").await;
    terminal.interrupts();
    assert_eq!(terminal.ends().await, 130);
    assert!(is_there(&stand, &place.id).await);

    let mut terminal = remove();
    terminal.shows("nothing uncommitted").await;
    terminal.types("y");
    assert_eq!(terminal.ends().await, 0);
    assert!(!is_there(&stand, &place.id).await);
}

#[tokio::test(flavor = "multi_thread")]
async fn force_wants_the_branch_typed_after_telling_what_goes_and_restore_brings_it_back() {
    let stand = Stand::dev_with(json!({"gates": {"allow_force": true}})).await;
    let repository = stand.repository("shop");
    let place = stand.create_with(&repository, json!({"branch": "fix"})).await;
    place.checkout.commit("apples", "3\n");
    place.checkout.write("notes", "an idea\n");
    let remove = || Terminal::start(&stand, repository.path(), &["remove", "fix", "--force"]);
    let mut terminal = remove();
    terminal.shows("Type fix to go on:").await;
    for word in ["1 untracked", "1 commit not landed", "    notes"] {
        assert!(terminal.screen().contains(word), "no {word}:\n{}", terminal.screen());
    }
    terminal.types("y");
    assert_eq!(terminal.ends().await, 1);
    assert!(is_there(&stand, &place.id).await);
    let mut terminal = remove();
    terminal.shows("Type fix to go on:").await;
    terminal.types("fix");
    assert_eq!(terminal.ends().await, 0, "{}", terminal.screen());
    assert!(!is_there(&stand, &place.id).await);

    let screen = Terminal::start(&stand, repository.path(), &["restore"]).succeeds().await;
    assert!(screen.contains(&place.id), "{screen}");
    Terminal::start(&stand, repository.path(), &["restore", "fix"]).succeeds().await;
    assert!(is_there(&stand, &place.id).await);
    assert_eq!(place.checkout.read("notes"), "an idea\n");
    let screen = Terminal::start(&stand, repository.path(), &["audit", "verify"]).succeeds().await;
    assert!(screen.starts_with("intact: "), "{screen}");
    let screen = Terminal::start(&stand, repository.path(), &["audit", "tail"]).succeeds().await;
    assert!(screen.contains("olga restore"), "{screen}");
}

#[tokio::test(flavor = "multi_thread")]
async fn prune_shows_its_plan_and_asks_twice_where_work_would_be_lost() {
    let stand = Stand::dev_with(json!({"prune_expire_hours": 0, "gates": {"allow_force": true}})).await;
    let repository = stand.repository("shop");
    let done = stand.create_with(&repository, json!({"branch": "done"})).await;
    let held = stand.create_with(&repository, json!({"branch": "held"})).await;
    held.checkout.write("notes", "an idea\n");
    let mut terminal = Terminal::start(&stand, repository.path(), &["gc"]);
    terminal.shows("Remove 1 worktree? [y/N]").await;
    let screen = terminal.screen();
    assert!(screen.contains(&format!("goes  {}", done.id)), "{screen}");
    assert!(screen.contains(&format!("stays {}", held.id)) && screen.contains("dirty"), "{screen}");
    terminal.types("n");
    assert_eq!(terminal.ends().await, 1);
    assert!(is_there(&stand, &done.id).await);

    let mut terminal = Terminal::start(&stand, repository.path(), &["prune", "--force-unsaved"]);
    terminal.shows("Type 1 to go on:").await;
    terminal.types("2");
    assert_eq!(terminal.ends().await, 1);
    assert!(is_there(&stand, &held.id).await && is_there(&stand, &done.id).await);

    let mut terminal = Terminal::start(&stand, repository.path(), &["prune", "--force-unsaved"]);
    terminal.shows("Type 1 to go on:").await;
    terminal.types("1");
    terminal.shows("Remove 1 worktree? [y/N]").await;
    terminal.types("y");
    assert_eq!(terminal.ends().await, 0, "{}", terminal.screen());
    assert!(!is_there(&stand, &held.id).await && !is_there(&stand, &done.id).await);
}
