//! Why a branch counts as integrated, and when it must not.

use super::sealed::{Place, put};
use worktree::git::Integration;

#[tokio::test]
async fn c29_every_reason_is_found_and_none_is_guessed() {
    let place = Place::new();
    let root = place.repo("shop");
    let repo = place.open(&root).await;
    let base = place.head(&root);
    let lines = |change: &str| {
        (1..40).map(|n| if n == 20 { format!("{change}\n") } else { format!("{n}\n") }).collect::<String>()
    };
    place.commit(&root, "file", lines("20"));
    let base = {
        let _ = base;
        place.head(&root)
    };
    let on_branch = |name: &str| place.run(&root, ["checkout", "--quiet", "-B", name, base.as_str()]);

    on_branch("feat");
    put(&root, "other", "o\n");
    place.commit(&root, "file", lines("changed"));
    let feat = place.commit(&root, "other", "o2\n");
    on_branch("nothing");
    place.commit(&root, "x", "x");
    std::fs::remove_file(root.join("x")).unwrap();
    let nothing = place.commit(&root, "y", "");
    std::fs::remove_file(root.join("y")).unwrap();
    place.run(&root, ["add", "--all"]);
    place.run(&root, ["commit", "--quiet", "--message", "back"]);
    let nothing = {
        let _ = nothing;
        place.head(&root)
    };

    // The target goes on: unrelated work first.
    place.run(&root, ["checkout", "--quiet", "main"]);
    let main = place.commit(&root, "unrelated", "u\n");
    assert_eq!(repo.integration(&main, &main).await.unwrap(), Some(Integration::SameCommit));
    assert_eq!(repo.integration(&base, &main).await.unwrap(), Some(Integration::Ancestor));
    assert_eq!(repo.integration(&nothing, &main).await.unwrap(), Some(Integration::NoAddedChanges));
    assert_eq!(repo.integration(&feat, &main).await.unwrap(), None);

    // A squash merge.
    place.run(&root, ["merge", "--quiet", "--squash", "feat"]);
    place.run(&root, ["commit", "--quiet", "--message", "squashed"]);
    let squashed = place.head(&root);
    assert_eq!(repo.integration(&feat, &squashed).await.unwrap(), Some(Integration::MergeAddsNothing));
    // Then the target edits the same lines, so that a merge conflicts.
    let edited = place.commit(&root, "file", lines("edited again"));
    assert_eq!(repo.integration(&feat, &edited).await.unwrap(), Some(Integration::PatchIdMatch));

    // The same files by another way.
    on_branch("twin");
    put(&root, "other", "o2\n");
    let twin = place.commit(&root, "file", lines("changed"));
    assert_eq!(repo.integration(&feat, &twin).await.unwrap(), Some(Integration::TreesMatch));
    assert_eq!(repo.ahead_behind(&feat, &twin).await.unwrap(), (2, 1));
    assert_eq!(repo.shortstat(&feat, &twin).await.unwrap(), "");
    assert!(repo.shortstat(&base, &feat).await.unwrap().starts_with("2 files changed"));
}

#[tokio::test]
async fn c29_what_the_user_likes_to_see_of_patches_does_not_matter() {
    let place = Place::new();
    let root = place.repo("shop");
    let repo = place.open(&root).await;
    // Two places that are near enough to be shown as one, in one file alone.
    let line = |n: u32, change: &str| if n.is_multiple_of(15) { format!("{change}\n") } else { format!("{n}\n") };
    let lines = |change: &str| (1..40).map(|n| line(n, change)).collect::<String>();
    let base = place.commit(&root, "file", lines("old"));
    place.run(&root, ["checkout", "--quiet", "-b", "feat"]);
    place.commit(&root, "copy", lines("old"));
    place.run(&root, ["rm", "--quiet", "copy"]);
    let feat = place.commit(&root, "file", lines("new"));
    place.run(&root, ["checkout", "--quiet", "main"]);
    place.run(&root, ["merge", "--quiet", "--squash", "feat"]);
    place.run(&root, ["commit", "--quiet", "--message", "squashed"]);
    let main = place.commit(&root, "file", lines("newer"));
    let copied = place.commit(&root, "copy", lines("newer"));
    for setting in [
        "[log]\nfollow = true",
        "[diff]\ninterHunkContext = 20",
        "[diff]\nalgorithm = histogram",
        "[diff]\nrenames = copies",
        "[diff]\ncontext = 0",
        "[log]\ndiffMerges = on",
    ] {
        place.user_config(setting);
        assert_eq!(repo.integration(&feat, &main).await.unwrap(), Some(Integration::PatchIdMatch), "{setting}");
        let counted = repo.shortstat(&base, &copied).await.unwrap();
        assert_eq!(counted, "2 files changed, 41 insertions(+), 2 deletions(-)", "{setting}");
    }
}

#[tokio::test]
async fn a_change_of_white_space_alone_is_a_change() {
    let place = Place::new();
    let root = place.repo("shop");
    let repo = place.open(&root).await;
    let base = place.commit(&root, "run.py", "if x:\n    a()\nb()\n");
    place.run(&root, ["checkout", "--quiet", "-b", "feat"]);
    let feat = place.commit(&root, "run.py", "if x:\n    a()\n    b()\n");
    place.run(&root, ["checkout", "--quiet", "main"]);
    place.commit(&root, "run.py", "if x:\n    a()\n  b()\n");
    let main = place.commit(&root, "run.py", "whole new\n");
    assert_eq!(repo.integration(&feat, &main).await.unwrap(), None);
    assert_eq!(repo.merge_base(&feat, &main).await.unwrap(), Some(base));
}

#[tokio::test]
async fn binary_changes_prove_nothing_by_their_patch() {
    let place = Place::new();
    let root = place.repo("shop");
    let repo = place.open(&root).await;
    place.commit(&root, "image", b"\0one");
    place.run(&root, ["checkout", "--quiet", "-b", "feat"]);
    let feat = place.commit(&root, "image", b"\0two");
    place.run(&root, ["checkout", "--quiet", "main"]);
    place.commit(&root, "image", b"\0three");
    let main = place.commit(&root, "image", b"\0four");
    assert_eq!(repo.integration(&feat, &main).await.unwrap(), None);
}

#[tokio::test]
async fn a_missing_object_and_unrelated_histories_are_no_integration() {
    let place = Place::new();
    let root = place.repo("shop");
    let repo = place.open(&root).await;
    place.run(&root, ["checkout", "--quiet", "-b", "feat"]);
    let feat = place.commit(&root, "a", "1\n");
    place.run(&root, ["checkout", "--quiet", "main"]);
    let main = place.commit(&root, "b", "1\n");
    place.run(&root, ["checkout", "--quiet", "--orphan", "lost"]);
    let lost = place.commit(&root, "c", "1\n");
    assert_eq!(repo.integration(&lost, &main).await.unwrap(), None);
    assert_eq!(repo.merge_base(&lost, &main).await.unwrap(), None);
    let tree = repo.tree_of(&feat).await.unwrap();
    let (dir, file) = tree.as_str().split_at(2);
    std::fs::remove_file(root.join(".git/objects").join(dir).join(file)).unwrap();
    assert_eq!(repo.integration(&feat, &main).await.unwrap(), None);
    assert!(!repo.commit_exists(&"1".repeat(40).parse().unwrap()).await.unwrap());
    assert!(repo.commit_exists(&feat).await.unwrap());
}

#[tokio::test]
async fn c09_replaced_history_does_not_count() {
    let place = Place::new();
    let root = place.repo("shop");
    let repo = place.open(&root).await;
    place.run(&root, ["checkout", "--quiet", "-b", "feat"]);
    let feat = place.commit(&root, "a", "1\n");
    place.run(&root, ["checkout", "--quiet", "main"]);
    let main = place.commit(&root, "b", "1\n");
    place.run(&root, ["replace", "--graft", main.as_str(), feat.as_str()]);
    assert!(!repo.is_ancestor(&feat, &main).await.unwrap());
    assert_eq!(repo.integration(&feat, &main).await.unwrap(), None);
}

#[tokio::test]
async fn a_shallow_history_that_hides_the_merge_base_is_its_own_refusal() {
    let place = Place::new();
    let root = place.repo("shop");
    place.run(&root, ["checkout", "--quiet", "-b", "feat"]);
    place.commit(&root, "a", "1\n");
    place.run(&root, ["checkout", "--quiet", "main"]);
    place.commit(&root, "b", "1\n");
    let clone = place.path().join("shallow");
    let url = format!("file://{}", root.display());
    place.run(&place.path(), ["clone", "--quiet", "--depth=1", "--no-single-branch", &url, clone.to_str().unwrap()]);
    let repo = place.open(&clone).await;
    assert!(repo.is_shallow().await.unwrap());
    let (main, feat) = (place.sha(&clone, "main"), place.sha(&clone, "origin/feat"));
    assert_eq!(repo.merge_base(&main, &feat).await.unwrap_err().code().as_str(), "W114");
    assert_eq!(repo.integration(&feat, &main).await.unwrap(), None);
}
