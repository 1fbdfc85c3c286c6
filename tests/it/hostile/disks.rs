//! Disks that run full, and disks that cannot be written to.

use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::json;

use crate::support::mounts::with_mounts;
use crate::support::{Checkout, Seal, Stand};

/// A small file system of its own, gone with this value.
struct Disk {
    place: PathBuf,
}

/// Runs `mount` or `umount`.
fn run(arguments: &[&str]) {
    let output = Command::new(arguments[0]).args(&arguments[1..]).output().unwrap();
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
}

impl Disk {
    /// Mounts one of `kib` KiB at `place`.
    fn mount(place: PathBuf, kib: u32) -> Disk {
        std::fs::create_dir(&place).unwrap();
        let options = format!("size={kib}k,mode=777");
        run(&["mount", "-t", "tmpfs", "-o", &options, "tmpfs", place.to_str().unwrap()]);
        Disk { place }
    }

    fn read_only(&self, yes: bool) {
        // Of the mount alone: in a namespace the options of the file system itself may not be given again.
        let option = if yes { "remount,bind,ro" } else { "remount,bind,rw" };
        run(&["mount", "-o", option, self.place.to_str().unwrap()]);
    }

    /// Takes all the room there is, down to the last block.
    fn fill(&self) -> PathBuf {
        let file = self.place.join("ballast");
        let mut room = std::fs::File::create(&file).unwrap();
        let block = [7_u8; 4096];
        while std::io::Write::write_all(&mut room, &block).is_ok() {}
        file
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        // Lazily: a worker that is about to be killed may still have a directory open.
        run(&["umount", "--lazy", self.place.to_str().unwrap()]);
    }
}

/// Bytes that do not compress.
fn noise(len: usize) -> Vec<u8> {
    let mut state = 0x2545_f491_4f6c_dd1d_u64;
    let next = |_| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 32) as u8
    };
    (0..len).map(next).collect()
}

fn commit_noise(checkout: &Checkout, file: &str, len: usize) {
    std::fs::write(checkout.path().join(file), noise(len)).unwrap();
    checkout.git(&["add", "--", file]);
    checkout.git(&["commit", "--quiet", "--message", file]);
}

/// What lies where worktrees are made.
fn left(root: &Path) -> Vec<PathBuf> {
    let below = |dir: &Path| std::fs::read_dir(dir).into_iter().flatten().flatten().map(|entry| entry.path());
    let hidden = |path: &PathBuf| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with('.'));
    below(root).filter(|slug| !hidden(slug)).flat_map(|slug| below(&slug).collect::<Vec<_>>()).collect()
}

#[test]
fn a_disk_that_is_full_fails_a_create_which_leaves_nothing() {
    with_mounts(module_path!(), "a_disk_that_is_full_fails_a_create_which_leaves_nothing", full_for_a_create());
}

async fn full_for_a_create() {
    let seal = Seal::new();
    let place = seal.path().join("disk");
    let root = place.join("worktrees");
    let disk = Disk::mount(place, 1024);
    let stand = Stand::dev_in(seal, json!({"worktree_root": root}), &[]).await;
    let repository = stand.repository("shop");
    commit_noise(&repository, "big", 2 * 1024 * 1024);
    let before = repository.refs();
    let create = json!({"repo_path": repository.text()});
    let message = stand.client.refused("worktree::create", create, "W102").await;
    assert!(message.contains("git reset"), "what failed is not named: {message}");
    assert_eq!((repository.refs(), repository.worktrees().len()), (before, 1));
    assert_eq!(left(&root), Vec::<PathBuf>::new());
    repository.git(&["rm", "--quiet", "big"]);
    repository.git(&["commit", "--quiet", "--message", "smaller"]);
    super::life(&stand, &repository).await;
    drop(disk);
}

#[test]
fn a_disk_that_runs_full_while_a_branch_lands_loses_nothing() {
    with_mounts(module_path!(), "a_disk_that_runs_full_while_a_branch_lands_loses_nothing", full_for_a_land());
}

async fn full_for_a_land() {
    let seal = Seal::new();
    let disk = Disk::mount(seal.path().join("disk"), 8 * 1024);
    let stand = Stand::dev_in(seal, json!({"worktree_root": disk.place.join("worktrees")}), &[]).await;
    let repository = Checkout::init(disk.place.join("shop"), &stand.seal);
    repository.commit("README", "hello\n");
    let mut events = stand.hear().await;
    let created = stand.create(&repository).await;
    commit_noise(&created.checkout, "mine", 1024 * 1024);
    let theirs = repository.commit("theirs", "x\n");
    let head = created.checkout.sha("HEAD");
    let ballast = disk.fill();
    match stand.client.call("worktree::land", json!({"worktree_id": created.id, "target_branch": "main"})).await {
        Ok(_) => drop(events.blocked(&created.id).await),
        Err((code, message)) => assert!(code.starts_with('W'), "{code}: {message}"),
    }
    assert_eq!(repository.sha("main"), theirs, "something landed");
    std::fs::remove_file(ballast).unwrap();
    assert_eq!(created.checkout.git(&["cat-file", "-t", &head]), "commit");
    assert_eq!(std::fs::read(created.checkout.path().join("mine")).unwrap().len(), 1024 * 1024);
    stand.land(&created, json!({})).await;
    events.landed(&created.id).await;
    assert_eq!(std::fs::read(repository.path().join("mine")).unwrap().len(), 1024 * 1024);
    drop(disk);
}

#[test]
fn a_repository_that_cannot_be_written_to_can_be_read() {
    with_mounts(module_path!(), "a_repository_that_cannot_be_written_to_can_be_read", read_only());
}

async fn read_only() {
    let seal = Seal::new();
    let disk = Disk::mount(seal.path().join("disk"), 8 * 1024);
    let stand = Stand::dev_in(seal, json!({}), &[]).await;
    let repository = Checkout::init(disk.place.join("shop"), &stand.seal);
    repository.commit("README", "hello\n");
    let created = stand.create(&repository).await;
    created.checkout.write("loose", "x\n");
    disk.read_only(true);
    let status = stand.client.ok("worktree::status", json!({"worktree_id": created.id})).await;
    assert_eq!(status["untracked"], 1, "{status}");
    let listed = stand.client.ok("worktree::list", json!({"include_status": true})).await;
    assert_eq!(listed["worktrees"][0]["status"]["untracked"], 1, "{listed}");
    let message = stand.client.refused("worktree::create", json!({"repo_path": repository.text()}), "W102").await;
    assert!(message.contains("Read-only"), "{message}");
    std::fs::remove_file(created.checkout.path().join("loose")).unwrap();
    let message = stand.client.refused("worktree::remove", json!({"worktree_id": created.id}), "W102").await;
    assert!(message.contains("Read-only"), "{message}");
    assert_eq!(created.checkout.read("README"), "hello\n");
    disk.read_only(false);
    stand.client.ok("worktree::remove", json!({"worktree_id": created.id})).await;
    drop(disk);
}
