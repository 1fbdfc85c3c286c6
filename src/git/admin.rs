//! Git's entries for linked worktrees, `<common dir>/worktrees/<name>`, without a process (gitrepository-layout(5)).
//!
//! Invariants
//! 1. A directory is a worktree of ours only when both links hold: its `.git` names the entry, and the entry names
//!    its `.git`.
//! 2. Only an entry that lies directly below `<common dir>/worktrees` is ever changed or dropped, one at a time and by
//!    name. Nothing here follows a symbolic link to delete.
//! 3. An entry leaves by one rename, so that git never sees half of one.
//! 4. A marker is replaced as a whole: a process that is killed leaves the old or the new one.

use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Write as _};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::{Path, PathBuf};

use crate::fault;

/// The file in an entry that holds our marker.
const MARKER: &str = "iii-worktree.json";
/// Beginning of the name under which a dropped entry waits in the common directory to be deleted.
const DROPPED: &str = "iii-worktree-dropped.";

/// Beginning of the name under which an entry is put together in the common directory before it is put back.
const RESTORING: &str = "iii-worktree-restoring.";

/// Git's entry for a linked worktree.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AdminEntry {
    /// Its name below `worktrees`.
    pub name: OsString,
    /// The entry itself.
    pub dir: PathBuf,
    /// The `.git` file of the worktree, as the entry names it.
    pub gitdir: PathBuf,
}

/// Whether a directory and its entry name each other.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Link {
    /// They do.
    Intact(AdminEntry),
    /// There is no such directory.
    DirectoryGone {
        /// The entry that names it, if there still is one.
        entry: Option<AdminEntry>,
    },
    /// The directory exists and is not the worktree that an entry of this repository describes.
    Broken {
        /// What does not fit.
        why: String,
    },
}

/// A path as it stands in a file of git, without the line end.
pub(super) fn path_in(bytes: &[u8]) -> PathBuf {
    let end = bytes.iter().rposition(|byte| !matches!(byte, b'\n' | b'\r')).map_or(0, |last| last + 1);
    PathBuf::from(OsString::from_vec(bytes[..end].to_vec()))
}

/// The directory that a `.git` file names.
pub(super) fn named_git_dir(bytes: &[u8]) -> Option<PathBuf> {
    let path = path_in(bytes.strip_prefix(b"gitdir: ")?);
    (!path.as_os_str().is_empty()).then_some(path)
}

fn found<T>(result: io::Result<T>) -> io::Result<Option<T>> {
    match result {
        Ok(value) => Ok(Some(value)),
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => Ok(None),
        Err(error) => Err(error),
    }
}

/// The names of all entries, complete or not.
pub(super) fn names(common_dir: &Path) -> io::Result<BTreeSet<OsString>> {
    let Some(dir) = found(fs::read_dir(common_dir.join("worktrees")))? else { return Ok(BTreeSet::new()) };
    dir.map(|entry| entry.map(|entry| entry.file_name())).collect()
}

fn read_entry(common_dir: &Path, name: OsString) -> io::Result<Option<AdminEntry>> {
    let dir = common_dir.join("worktrees").join(&name);
    if !found(dir.symlink_metadata())?.is_some_and(|meta| meta.is_dir()) {
        return Ok(None);
    }
    // Without this file the entry is only half made, and names nothing.
    let Some(bytes) = found(fs::read(dir.join("gitdir")))? else { return Ok(None) };
    let gitdir = dir.join(path_in(&bytes));
    Ok(Some(AdminEntry { name, dir, gitdir }))
}

/// All complete entries, by name.
///
/// # Errors
/// When `worktrees` or an entry cannot be read.
pub fn entries(common_dir: &Path) -> io::Result<Vec<AdminEntry>> {
    let mut all = Vec::new();
    for name in names(common_dir)? {
        all.extend(read_entry(common_dir, name)?);
    }
    Ok(all)
}

/// The entry that names `root/.git`, whether or not the directory exists.
///
/// # Errors
/// When `worktrees` or an entry cannot be read.
pub fn entry_for(common_dir: &Path, root: &Path) -> io::Result<Option<AdminEntry>> {
    match verify_link(common_dir, root) {
        Ok(Link::Intact(entry)) => Ok(Some(entry)),
        Ok(Link::DirectoryGone { entry }) => Ok(entry),
        _ => find(common_dir, root),
    }
}

/// The entry that an interrupted add had only begun for `root`, and that names nothing yet.
///
/// # Errors
/// When it cannot be read.
pub fn half_made(common_dir: &Path, root: &Path) -> io::Result<Option<AdminEntry>> {
    let Some(name) = root.file_name() else { return Ok(None) };
    let entry = half_made_as(common_dir, name, root);
    let is_dir = found(entry.dir.symlink_metadata())?.is_some_and(|meta| meta.is_dir());
    Ok((is_dir && read_entry(common_dir, name.to_owned())?.is_none()).then_some(entry))
}

fn half_made_as(common_dir: &Path, name: &OsStr, root: &Path) -> AdminEntry {
    AdminEntry { name: name.to_owned(), dir: common_dir.join("worktrees").join(name), gitdir: root.join(".git") }
}

/// [`entry_for`] by looking through all entries.
fn find(common_dir: &Path, root: &Path) -> io::Result<Option<AdminEntry>> {
    let plain = root.join(".git");
    let mut entries = entries(common_dir)?;
    // Looking for links costs more than all the rest.
    if let Some(at) = entries.iter().position(|entry| entry.gitdir == plain) {
        return Ok(Some(entries.swap_remove(at)));
    }
    let wanted = settled(root).join(".git");
    let named = |entry: &AdminEntry| entry.gitdir.parent().map(settled).unwrap_or_default();
    Ok(entries.into_iter().find(|entry| named(entry).join(".git") == wanted))
}

/// The path with its parents resolved and itself not, as far as they exist.
fn settled(path: &Path) -> PathBuf {
    match (path.parent().and_then(|parent| fs::canonicalize(parent).ok()), path.file_name()) {
        (Some(parent), Some(name)) => parent.join(name),
        _ => path.to_owned(),
    }
}

/// Whether `root` and an entry of the repository name each other. Parents of `root` may be symbolic links; `root`
/// itself must be a directory.
///
/// # Errors
/// When something that exists cannot be read.
pub fn verify_link(common_dir: &Path, root: &Path) -> io::Result<Link> {
    let broken = |why: &str| Ok(Link::Broken { why: why.to_owned() });
    let Some(meta) = found(root.symlink_metadata())? else {
        return Ok(Link::DirectoryGone { entry: find(common_dir, root)? });
    };
    if !meta.is_dir() {
        return broken("it is not a directory");
    }
    let dot_git = root.join(".git");
    let Some(meta) = found(dot_git.symlink_metadata())? else { return broken("it has no .git file") };
    if !meta.is_file() {
        return broken("its .git is not a file, so it is a repository of its own");
    }
    let Some(named) = named_git_dir(&fs::read(&dot_git)?) else { return broken("its .git file names no directory") };
    let common = fs::canonicalize(common_dir)?;
    let Some(dir) = found(fs::canonicalize(root.join(named)))? else {
        return broken("its .git file names an entry that does not exist");
    };
    let (Some(name), true) = (dir.file_name(), dir.parent() == Some(&common.join("worktrees"))) else {
        return broken("its .git file names no entry of this repository");
    };
    let Some(entry) = read_entry(&common, name.to_owned())? else { return broken("its entry is not complete") };
    let back = entry.gitdir.parent().map(fs::canonicalize);
    let here = fs::canonicalize(root)?;
    let names_us = entry.gitdir.file_name() == Some(OsStr::new(".git"));
    match back.map(found).transpose()?.flatten() {
        Some(back) if names_us && back == here => Ok(Link::Intact(entry)),
        _ => broken("its entry names another directory"),
    }
}

/// Replaces the marker of the entry. On return it is on the disk.
///
/// # Errors
/// When it cannot be written; the old marker then still stands.
pub fn write_marker(entry: &AdminEntry, bytes: &[u8]) -> io::Result<()> {
    replace(&entry.dir, MARKER, bytes)
}

/// The same without waiting for the disk: after a loss of power the marker may be missing or empty.
///
/// # Errors
/// When it cannot be written; the old marker then still stands.
pub fn write_marker_unsynced(entry: &AdminEntry, bytes: &[u8]) -> io::Result<()> {
    put_in_place(&entry.dir, MARKER, bytes, false)
}

/// The marker of the entry, if it has one.
///
/// # Errors
/// When it cannot be read.
pub fn read_marker(entry: &AdminEntry) -> io::Result<Option<Vec<u8>>> {
    found(fs::read(entry.dir.join(MARKER)))
}

/// Locks the entry against `git worktree prune`, `move` and `remove`. A lock that is there is replaced.
///
/// # Errors
/// When the file cannot be written.
pub fn lock(entry: &AdminEntry, reason: &str) -> io::Result<()> {
    replace(&entry.dir, "locked", reason.as_bytes())
}

/// Unlocks the entry. Nothing happens when it is not locked.
///
/// # Errors
/// When the file cannot be removed.
pub fn unlock(entry: &AdminEntry) -> io::Result<()> {
    found(fs::remove_file(entry.dir.join("locked"))).map(|_| ())
}

/// Why the entry is locked; `None` when it is not.
///
/// # Errors
/// When the file cannot be read.
pub fn lock_reason(entry: &AdminEntry) -> io::Result<Option<String>> {
    let bytes = found(fs::read(entry.dir.join("locked")))?;
    Ok(bytes.map(|bytes| String::from_utf8_lossy(&bytes).trim_end().to_owned()))
}

/// The commit that is checked out without a branch, as the entry names it; `None` when a branch is, or when it cannot be
/// read.
#[must_use]
pub fn detached_head(entry: &AdminEntry) -> Option<String> {
    let head = fs::read_to_string(entry.dir.join("HEAD")).ok()?;
    let head = head.trim_end();
    (!head.starts_with("ref:")).then(|| head.to_owned())
}

/// Copies an entry, file by file, into the new directory `to`, so that it can be put back. Links and other things that
/// git does not make are left out.
///
/// # Errors
/// When something cannot be copied; what was copied stays.
pub fn copy_entry(entry: &AdminEntry, to: &Path) -> io::Result<()> {
    copy_tree(&entry.dir, to)
}

/// Puts a copied entry back as `name`, naming `root`. It appears as a whole.
///
/// # Errors
/// When an entry of that name is there, or something cannot be written. The caller keeps others from putting back at
/// the same time.
pub fn put_back(common_dir: &Path, name: &OsStr, copy: &Path, root: &Path) -> io::Result<AdminEntry> {
    let worktrees = common_dir.join("worktrees");
    let dir = worktrees.join(name);
    if found(dir.symlink_metadata())?.is_some() {
        return Err(io::Error::new(ErrorKind::AlreadyExists, format!("{} is there", dir.display())));
    }
    fs::create_dir_all(&worktrees)?;
    let mut draft = OsString::from(RESTORING);
    draft.push(name);
    let draft = common_dir.join(draft);
    if found(draft.symlink_metadata())?.is_some() {
        fs::remove_dir_all(&draft)?;
    }
    copy_tree(copy, &draft)?;
    let gitdir = root.join(".git");
    replace(&draft, "gitdir", &line(&gitdir))?;
    fs::rename(&draft, &dir)?;
    File::open(&worktrees)?.sync_all()?;
    Ok(AdminEntry { name: name.to_owned(), dir, gitdir })
}

/// Adds a worktree at `root`, of which nothing but its parents need exist, as `git worktree add --no-checkout --lock` does:
/// an entry named like the directory, locked for `reason` before it is anything else, and a directory with a `.git`
/// file. `head` is what HEAD holds.
///
/// # Errors
/// `AlreadyExists` when there is an entry or a directory of that name, `InvalidInput` when the name is none for an entry,
/// and when something cannot be written. What was made by then stays; see [`take_back`].
pub(super) fn add(common_dir: &Path, root: &Path, head: &str, reason: &str) -> io::Result<()> {
    let plain = |byte: &u8| byte.is_ascii_alphanumeric() || b"-_".contains(byte);
    let name = root.file_name().filter(|name| name.as_bytes().iter().all(plain));
    let (Some(name), Some(parent)) = (name, root.parent()) else {
        return Err(io::Error::new(ErrorKind::InvalidInput, "git makes another name of that"));
    };
    let worktrees = common_dir.join("worktrees");
    fs::create_dir_all(&worktrees)?;
    let dir = worktrees.join(name);
    fs::create_dir(&dir)?;
    put_in_place(&dir, "locked", format!("{reason}\n").as_bytes(), false)?;
    step("an entry that names nothing")?;
    fs::create_dir_all(parent)?;
    fs::create_dir(root)?;
    let root = fs::canonicalize(root)?;
    put_in_place(&dir, "gitdir", &line(&root.join(".git")), false)?;
    step("an entry without HEAD")?;
    put_in_place(&dir, "HEAD", format!("{head}\n").as_bytes(), false)?;
    put_in_place(&dir, "commondir", b"../..\n", false)?;
    fs::create_dir(dir.join("refs"))?;
    step("a directory without .git")?;
    write_dot_git(&root, &dir).map(drop)
}

/// A path as the files of an entry hold it.
fn line(path: &Path) -> Vec<u8> {
    [path.as_os_str().as_bytes(), b"\n"].concat()
}

/// Writes the `.git` file of a worktree that has none, in place: when the process is killed meanwhile, half of a `.git`
/// file is known for what it is, and a draft beside it would count as somebody's work.
fn write_dot_git(root: &Path, entry: &Path) -> io::Result<File> {
    let mut dot_git = OpenOptions::new().write(true).create_new(true).open(root.join(".git"))?;
    step("an empty .git")?;
    dot_git.write_all(&[b"gitdir: ", line(entry).as_slice()].concat())?;
    Ok(dot_git)
}

/// A place at which a test may end the process: what is there now is all there is.
fn step(what: &str) -> io::Result<()> {
    let point = fault::point("add", || what.to_owned());
    point.map_err(|injected| io::Error::other(format!("{injected:?}: {what}")))?.passed();
    Ok(())
}

/// Makes the `.git` file of `root`, which nobody uses yet, name the entry. On return it is on the disk.
///
/// # Errors
/// When the file cannot be written; there may be none then, and the same call can be made again.
pub fn point_to(entry: &AdminEntry, root: &Path) -> io::Result<()> {
    found(fs::remove_file(root.join(".git")))?;
    write_dot_git(root, &entry.dir)?.sync_all()?;
    File::open(root)?.sync_all()
}

fn copy_tree(from: &Path, to: &Path) -> io::Result<()> {
    fs::create_dir(to)?;
    for item in fs::read_dir(from)? {
        let item = item?;
        let (kind, target) = (item.file_type()?, to.join(item.file_name()));
        if kind.is_dir() {
            copy_tree(&item.path(), &target)?;
        } else if kind.is_file() {
            fs::copy(item.path(), &target)?;
            File::open(&target)?.sync_all()?;
        }
    }
    File::open(to)?.sync_all()
}

fn replace(dir: &Path, name: &str, bytes: &[u8]) -> io::Result<()> {
    put_in_place(dir, name, bytes, true)
}

fn put_in_place(dir: &Path, name: &str, bytes: &[u8], synced: bool) -> io::Result<()> {
    // Two writers of one process must not share the temporary file.
    static COUNT: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(0);
    let count = COUNT.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
    let temporary = dir.join(format!(".{name}.{}.{count}.tmp", std::process::id()));
    let written = (|| {
        let mut file = OpenOptions::new().write(true).create(true).truncate(true).open(&temporary)?;
        file.write_all(bytes)?;
        if synced {
            file.sync_all()?;
        }
        fs::rename(&temporary, dir.join(name))?;
        if synced { File::open(dir)?.sync_all() } else { Ok(()) }
    })();
    if written.is_err() {
        found(fs::remove_file(&temporary))?;
    }
    written
}

/// Drops the entry, so that git no longer knows the worktree. The directory itself is not touched. Nothing happens
/// when the entry is gone.
///
/// # Errors
/// When it does not lie directly below the repository's `worktrees`, is no directory, or cannot be moved away. What
/// was moved away and cannot be deleted is left for the next drop.
pub fn drop_entry(common_dir: &Path, entry: &AdminEntry) -> io::Result<()> {
    let refuse = |why: &str| Err(io::Error::new(ErrorKind::InvalidInput, format!("{}: {why}", entry.dir.display())));
    let plain = entry.name.as_bytes();
    if plain.is_empty() || plain == b"." || plain == b".." || plain.contains(&b'/') {
        return refuse("not the name of an entry");
    }
    let worktrees = common_dir.join("worktrees");
    let dir = worktrees.join(&entry.name);
    let Some(meta) = found(dir.symlink_metadata())? else { return sweep(common_dir) };
    if !meta.is_dir() {
        return refuse("not a directory");
    }
    if settled(&entry.dir) != settled(&dir) {
        return refuse("not an entry of this repository");
    }
    let mut aside = OsString::from(format!("{DROPPED}{}.", std::process::id()));
    aside.push(&entry.name);
    let aside = common_dir.join(aside);
    if found(aside.symlink_metadata())?.is_some() {
        fs::remove_dir_all(&aside)?;
    }
    if found(fs::rename(&dir, &aside))?.is_some() {
        File::open(&worktrees)?.sync_all()?;
    }
    sweep(common_dir)
}

/// Deletes dropped entries, also those that a crash left.
fn sweep(common_dir: &Path) -> io::Result<()> {
    for found in fs::read_dir(common_dir)? {
        let found = found?;
        if !found.file_name().as_bytes().starts_with(DROPPED.as_bytes()) {
            continue;
        }
        match fs::remove_dir_all(found.path()) {
            // Another process sweeps as well.
            Err(error) if error.kind() != ErrorKind::NotFound => {
                tracing::warn!(%error, path = %found.path().display(), "a dropped entry could not be deleted yet");
            }
            _ => {}
        }
    }
    Ok(())
}

/// Removes what a failed `git worktree add` left of `root`: the entry that names it, and the directory. Nothing is
/// removed, and the answer is `false`, when the directory holds anything but a `.git` file.
///
/// An entry that is only half made names nothing yet, and its own name says little: git puts digits behind a name that
/// is taken, so that the half-made entry of a sibling may be called alike. Git writes the lock first, so a new entry
/// (not among `known`) that is locked for our `reason` is ours.
pub(super) fn take_back(common_dir: &Path, root: &Path, reason: &str, known: &BTreeSet<OsString>) -> io::Result<bool> {
    let is_dir = found(root.symlink_metadata())?.is_some_and(|meta| meta.is_dir());
    if is_dir {
        for item in fs::read_dir(root)? {
            if item?.file_name() != ".git" {
                return Ok(false);
            }
        }
    }
    for name in names(common_dir)?.difference(known) {
        let complete = read_entry(common_dir, name.clone())?;
        let half_made = half_made_as(common_dir, name, root);
        let ours = match &complete {
            Some(entry) => entry.gitdir.parent().map(settled) == Some(settled(root)),
            None => lock_reason(&half_made)?.as_deref() == Some(reason.trim_end()),
        };
        if ours {
            drop_entry(common_dir, &complete.unwrap_or(half_made))?;
        }
    }
    remove_husk(root)?;
    Ok(true)
}

/// Removes the directory `root` and its `.git` file. What is no directory is left alone.
///
/// # Errors
/// When there is anything else in it, which stays, or when it cannot be removed.
pub fn remove_husk(root: &Path) -> io::Result<()> {
    if !found(root.symlink_metadata())?.is_some_and(|meta| meta.is_dir()) {
        return Ok(());
    }
    let dot_git = root.join(".git");
    if found(dot_git.symlink_metadata())?.is_some_and(|meta| meta.is_file()) {
        fs::remove_file(dot_git)?;
    }
    fs::remove_dir(root)
}
