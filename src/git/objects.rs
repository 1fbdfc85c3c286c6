//! New commits, read from the files that git keeps them in until it packs them: the commits of a branch that is worked
//! on are there, and reading one takes microseconds where a process takes milliseconds.
//!
//! Invariants
//! 1. What is told is what git would tell. A commit that is packed, borrowed from another repository, too large or not
//!    understood is left to git.
//! 2. What is written is a loose object as git writes it where nothing is configured: complete under another name, then
//!    renamed, for nobody to write to. One that is there stays.

use std::collections::{HashSet, VecDeque};
use std::fs::{self, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use flate2::Compression;
use flate2::read::ZlibDecoder;
use flate2::write::ZlibEncoder;
use sha1::Sha1;
use sha2::{Digest, Sha256};

use super::parse::commits::{self, RawCommit};
use super::plain_file;
use super::sha::Sha;
use super::text::hex;

/// The largest commit that is read, in bytes, packed and unpacked.
const LARGEST: u64 = 1024 * 1024;
/// How many commits are looked at for an ancestor: fewer than a process would cost.
const FAR: usize = 64;
/// Numbers the files that are being written.
static DRAFTS: AtomicU64 = AtomicU64::new(0);

/// The commit of this name; `None` when git has to be asked.
pub(super) fn commit(common_dir: &Path, sha: &Sha) -> Option<RawCommit> {
    let packed = plain_file::read(&place(common_dir, sha), LARGEST).bytes()?;
    let mut object = Vec::new();
    ZlibDecoder::new(packed.as_slice()).take(LARGEST + 1).read_to_end(&mut object).ok()?;
    commits::loose(sha.clone(), &object)
}

fn place(common_dir: &Path, sha: &Sha) -> PathBuf {
    let (dir, file) = sha.as_str().split_at(2);
    common_dir.join("objects").join(dir).join(file)
}

/// The name that git gives to an object of this kind, in names as long as `like`.
pub(super) fn name(kind: &str, content: &[u8], like: usize) -> Vec<u8> {
    fn hash<D: Digest>(head: &str, content: &[u8]) -> Vec<u8> {
        D::new().chain_update(head).chain_update(content).finalize().to_vec()
    }
    let head = format!("{kind} {}\0", content.len());
    if like == 20 { hash::<Sha1>(&head, content) } else { hash::<Sha256>(&head, content) }
}

/// Stores a commit, with a name of the format of `like`; `None` when git has to do it.
pub(super) fn write_commit(common_dir: &Path, content: &[u8], like: &Sha) -> Option<Sha> {
    let name = name("commit", content, like.as_str().len() / 2);
    let sha: Sha = hex(&name).parse().ok()?;
    match store(&place(common_dir, &sha), content) {
        Ok(()) => Some(sha),
        Err(error) => {
            tracing::debug!(%sha, %error, "git is asked to store a commit");
            None
        }
    }
}

fn store(place: &Path, content: &[u8]) -> io::Result<()> {
    if place.symlink_metadata().is_ok() {
        return Ok(());
    }
    let dir = place.parent().unwrap_or(place);
    match fs::create_dir(dir) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
        _ => {}
    }
    // Git deletes what is left under such a name.
    let number = DRAFTS.fetch_add(1, Ordering::Relaxed);
    let draft = dir.join(format!("tmp_obj_iii{}_{number}", std::process::id()));
    let stored = write_draft(&draft, content).and_then(|()| fs::rename(&draft, place));
    if stored.is_err() {
        fs::remove_file(&draft).ok();
    }
    stored
}

fn write_draft(draft: &Path, content: &[u8]) -> io::Result<()> {
    let file = OpenOptions::new().write(true).create_new(true).mode(0o444).open(draft)?;
    let mut packed = ZlibEncoder::new(&file, Compression::fast());
    packed.write_all(format!("commit {}\0", content.len()).as_bytes())?;
    packed.write_all(content)?;
    packed.finish()?;
    Ok(())
}

/// Whether `ancestor` is found on the way back from `tip`, or is `tip`. `false` says nothing: ask git.
pub(super) fn is_ancestor(common_dir: &Path, ancestor: &Sha, tip: &Sha) -> bool {
    let mut queue = VecDeque::from([tip.clone()]);
    let mut seen = HashSet::new();
    while let Some(sha) = queue.pop_front() {
        if sha == *ancestor {
            return true;
        }
        if seen.len() == FAR || !seen.insert(sha.clone()) {
            continue;
        }
        queue.extend(commit(common_dir, &sha).into_iter().flat_map(|commit| commit.parents));
    }
    false
}

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "what a test writes need survive no crash")]
mod tests {
    use super::*;

    #[test]
    fn objects_have_the_names_that_git_gives_them() {
        // As `git hash-object` prints them.
        assert_eq!(hex(&name("blob", b"hello\n", 20)), "ce013625030ba8dba906f756967f9e9ca394464a");
        let long = "2cf8d83d9ee29543b34a87727421fdecb7e3f3a183d337639025de576db9ebb4";
        assert_eq!(hex(&name("blob", b"hello\n", 32)), long);
    }

    #[test]
    fn what_is_written_is_read_again_and_never_changed_invariants_1_2() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("objects")).unwrap();
        let tree = "0123456789abcdef0123456789abcdef01234567";
        let root = format!("tree {tree}\nauthor a <b> 1 +0000\ncommitter a <b> 1 +0000\n\nm");
        let like: Sha = tree.parse().unwrap();
        let first = write_commit(dir.path(), root.as_bytes(), &like).unwrap();
        assert_eq!(commit(dir.path(), &first).unwrap().message, b"m");
        let meta = place(dir.path(), &first).symlink_metadata().unwrap();
        assert!(meta.permissions().readonly());
        assert_eq!(write_commit(dir.path(), root.as_bytes(), &like).unwrap(), first);
        let second = root.replacen('\n', &format!("\nparent {first}\n"), 1);
        let second = write_commit(dir.path(), second.as_bytes(), &like).unwrap();
        assert!(is_ancestor(dir.path(), &first, &second) && is_ancestor(dir.path(), &second, &second));
        assert!(!is_ancestor(dir.path(), &second, &first));
        assert!(commit(dir.path(), &like).is_none());
        // Torn, and a pipe that nobody writes to.
        let place = place(dir.path(), &second);
        fs::remove_file(&place).unwrap();
        fs::write(&place, "torn").unwrap();
        assert!(commit(dir.path(), &second).is_none());
        fs::remove_file(&place).unwrap();
        nix::unistd::mkfifo(&place, nix::sys::stat::Mode::S_IRWXU).unwrap();
        assert!(commit(dir.path(), &second).is_none());
        assert!(write_commit(&dir.path().join("none"), b"x", &like).is_none());
    }
}
