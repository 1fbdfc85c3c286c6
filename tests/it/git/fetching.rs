//! Fetching one ref of a local remote.

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::TcpListener;

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

/// A server that answers everything with these refs, and gives a cookie to everybody; its address.
fn baker(refs: String) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("http://{}", listener.local_addr().unwrap());
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let mut lines = BufReader::new(stream.try_clone().unwrap()).lines();
            while lines.next().is_some_and(|line| line.is_ok_and(|line| !line.is_empty())) {}
            let head = "HTTP/1.0 200 OK\r\nSet-Cookie: a=b; Max-Age=9999\r\nContent-Type: text/plain";
            write!(stream, "{head}\r\nContent-Length: {}\r\n\r\n{refs}", refs.len()).unwrap();
        }
    });
    address
}

#[tokio::test]
async fn a_server_writes_no_file_that_the_repository_names() {
    let place = Place::new();
    let root = place.repo("shop");
    let head = place.head(&root);
    let (address, precious) = (baker(format!("{head}\trefs/pull/7/head\n")), place.path().join("precious"));
    place.run(&root, ["remote", "add", "origin", &format!("{address}/shop")]);
    // Whatever proxy the machine has, it is not for this server.
    let repo = place.git_with(&[("no_proxy", "*")]).discover(&root).await.unwrap().repo;
    for section in ["http".to_owned(), format!("http.{address}")] {
        place.run(&root, ["config", &format!("{section}.cookieFile"), precious.to_str().unwrap()]);
        place.run(&root, ["config", &format!("{section}.saveCookies"), "true"]);
        std::fs::write(&precious, "mine\n").unwrap();
        let fetched = repo.fetch_ref("origin", "refs/pull/7/head", "refs/iii/pr/7").await.unwrap();
        assert_eq!(fetched.as_ref(), Some(&head));
        assert_eq!(std::fs::read_to_string(&precious).unwrap(), "mine\n", "{section}");
        // A git without that care does write it.
        place.run(&root, ["-c", "http.proxy=", "fetch", "--quiet", "origin", "refs/pull/7/head"]);
        assert_ne!(std::fs::read_to_string(&precious).unwrap(), "mine\n", "{section}");
        place.run(&root, ["config", "--remove-section", &section]);
    }
}

#[tokio::test]
async fn a_remote_without_an_address_is_none() {
    let place = Place::new();
    let root = place.repo("shop");
    place.user_config("[remote \"origin\"]\nprune = true");
    let repo = place.open(&root).await;
    assert!(!repo.has_remote("origin").await.unwrap());
    place.run(&root, ["remote", "add", "origin", "/nowhere"]);
    assert!(repo.has_remote("origin").await.unwrap());
}
