//! Files that are already what a move would make them.
//!
//! A process that is killed while it moves a worktree leaves files of the new commit under an index of the old one.
//! Git takes them for changes and refuses to go on. They hold nothing that the new commit does not hold, so the index
//! is told what they are, and the move goes through.

use std::collections::BTreeMap;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use super::Tree;
use super::error::GitError;
use super::parse;
use super::parse::entries::TreeEntry;
use super::sha::Sha;

/// How many paths are handed to one process.
const CHUNK: usize = 500;

impl Tree {
    /// Those of `paths`, all of which exist, that are not exactly what `new` has there.
    pub(super) async fn unlike(&self, paths: &[PathBuf], new: &Sha) -> Result<Vec<PathBuf>, GitError> {
        let mut unlike = Vec::new();
        for chunk in paths.chunks(CHUNK) {
            let wanted = self.entries_of(new, chunk).await?;
            unlike.extend(self.differing_from(&wanted, chunk).await?);
        }
        unlike.sort();
        Ok(unlike)
    }

    /// Makes the index have at `paths` what `commit` has there, and leaves the files alone.
    pub(super) async fn point_index(&self, paths: &[PathBuf], commit: &Sha) -> Result<(), GitError> {
        for chunk in paths.chunks(CHUNK) {
            let entries = self.entries_of(commit, chunk).await?;
            let info = chunk.iter().flat_map(|path| index_info(entries.get(path), path, commit)).collect();
            let command = self.command(["update-index", "--add", "--replace", "-z", "--index-info"]);
            command.stdin(info).writes().run_patiently().await?.expect(&[0])?;
        }
        Ok(())
    }

    async fn entries_of(&self, commit: &Sha, paths: &[PathBuf]) -> Result<BTreeMap<PathBuf, TreeEntry>, GitError> {
        let command = self.command(["ls-tree", "-r", "-z", "--full-tree", commit.as_str(), "--"]);
        let output = command.args(paths).env("GIT_LITERAL_PATHSPECS", "1").run().await?.stdout()?;
        parse::entries::tree(&output)
    }

    async fn differing_from(
        &self,
        wanted: &BTreeMap<PathBuf, TreeEntry>,
        paths: &[PathBuf],
    ) -> Result<Vec<PathBuf>, GitError> {
        let may_be_same =
            |path: &&PathBuf| wanted.get(*path).is_some_and(|e| mode_of(&self.root().join(path)) == e.mode);
        let (candidates, mut others): (Vec<&PathBuf>, Vec<&PathBuf>) = paths.iter().partition(may_be_same);
        if !candidates.is_empty() {
            // Hashed as `git add` would, with the conversions and filters of each path.
            let command = self.command(["hash-object", "--"]).args(&candidates);
            let hashes = parse::refs::many("git hash-object", &command.run().await?.stdout()?)?;
            if hashes.len() != candidates.len() {
                let text = format!("{} names for {} files", hashes.len(), candidates.len());
                return Err(GitError::Parse { what: "git hash-object".to_owned(), line: hashes.len(), text });
            }
            let pairs = candidates.into_iter().zip(hashes);
            others.extend(pairs.filter(|(path, hash)| wanted[*path].object != *hash).map(|(path, _)| path));
        }
        Ok(others.into_iter().cloned().collect())
    }
}

/// The mode git would record; 0 for what is neither a plain file nor there. Symbolic links are left to whoever is
/// asked: they are too short to be worth a guess.
fn mode_of(path: &Path) -> u32 {
    match path.symlink_metadata() {
        Ok(meta) if meta.is_file() && meta.permissions().mode() & 0o100 != 0 => 0o100_755,
        Ok(meta) if meta.is_file() => 0o100_644,
        _ => 0,
    }
}

/// `<mode> SP <object> TAB <path> NUL`, as `update-index --index-info` takes it; mode 0 removes.
fn index_info(entry: Option<&TreeEntry>, path: &Path, any: &Sha) -> Vec<u8> {
    let head = match entry {
        Some(entry) => format!("{:o} {}\t", entry.mode, entry.object),
        None => format!("0 {}\t", any.null()),
    };
    [head.as_bytes(), path.as_os_str().as_bytes(), b"\0"].concat()
}
