//! Fetching one ref of a local remote.

use super::sealed::{Place, script};

#[tokio::test]
async fn one_ref_and_nothing_else_is_fetched() {
    let place = Place::new();
    let origin = place.repo("origin");
    place.run(&origin, ["tag", "v1"]);
    let clone = place.path().join("clone");
    place.run(&place.path(), ["clone", "--quiet", "--no-tags", origin.to_str().unwrap(), clone.to_str().unwrap()]);
    let pull = place.commit(&origin, "a", "1");
    place.run(&origin, ["update-ref", "refs/pull/7/head", pull.as_str()]);
    place.run(&origin, ["tag", "v2"]);
    let repo = place.open(&clone).await;
    let before = repo.refs_under("refs").await.unwrap().len();
    // A program that the remote's entry names is not run.
    let canary = place.path().join("canary");
    script(&place.path().join("pack"), &format!("touch {}", canary.display()));
    place.run(&clone, ["config", "remote.origin.uploadpack", place.path().join("pack").to_str().unwrap()]);
    assert_eq!(repo.fetch_ref("origin", "refs/pull/7/head", "refs/iii/pr/7").await.unwrap(), Some(pull.clone()));
    assert_eq!(repo.refs_under("refs").await.unwrap().len(), before + 1);
    assert!(repo.commit_exists(&pull).await.unwrap());
    assert!(!clone.join(".git/FETCH_HEAD").exists());
    assert_eq!(repo.fetch_ref("origin", "refs/pull/8/head", "refs/iii/pr/8").await.unwrap(), None);
    assert!(!canary.exists());
    let error = repo.fetch_ref("nowhere", "refs/pull/7/head", "refs/iii/pr/7").await.unwrap_err();
    assert_eq!(error.code().as_str(), "W102");
    for (remote, from) in
        [("--upload-pack=x", "refs/x"), ("ext::sh", "refs/x"), ("origin", "main"), ("origin", "refs/a:b")]
    {
        assert_eq!(
            repo.fetch_ref(remote, from, "refs/iii/x").await.unwrap_err().code().as_str(),
            "W111",
            "{remote} {from}"
        );
    }
    place.run(&clone, ["config", "remote.evil.url", &format!("ext::touch {}", canary.display())]);
    assert!(repo.fetch_ref("evil", "refs/x", "refs/iii/x").await.is_err());
    assert!(!canary.exists());
}
