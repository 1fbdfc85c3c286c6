//! The version of git is looked at before anything is served.

use crate::hostile::canary;
use crate::support::{BINARY, Process, Seal};

#[tokio::test(flavor = "multi_thread")]
async fn a_git_that_is_too_old_ends_the_worker_and_says_why() {
    let seal = Seal::new();
    let bin = seal.path().join("bin");
    std::fs::create_dir(&bin).unwrap();
    let (fake, _) = canary(&bin, "echo git version 2.37.7");
    std::fs::rename(fake, bin.join("git")).unwrap();
    for arguments in [["dev", "--port", "0", "--http-port", "0"].as_slice(), &["serve", "--url", "ws://127.0.0.1:9"]] {
        let mut command = seal.command(BINARY);
        let path = std::env::join_paths([bin.clone(), "/usr/bin".into(), "/bin".into()]).unwrap();
        command.args(arguments).env("PATH", path);
        let mut process = Process::start("worktree", command);
        let status = process.ended().await;
        let log = process.log();
        assert_eq!(status.code(), Some(1), "{log}");
        for words in ["2.37.7", "2.38.0", "merge-tree --write-tree", "W100"] {
            assert!(log.contains(words), "{arguments:?}: no {words}: {log}");
        }
        assert_eq!(process.lines(), Vec::<String>::new(), "it said that it was ready");
    }
}
