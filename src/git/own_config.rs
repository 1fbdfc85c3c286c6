//! What a repository's own configuration would make git run, and how that is kept from happening.
//!
//! Filters and merge drivers cannot be switched off for everybody, because some are the point (git-lfs). So the
//! repository's configuration is looked at before each command. What policy does not allow is overridden for that
//! command, and the calls that fill, move or merge files refuse the repository as a whole.
//!
//! What the user's or the system's configuration says is not looked at: agents do not write it.
//!
//! Invariants
//! 1. A program that only the repository's own configuration names is not run, unless policy allows it: filters, merge
//!    drivers, transfers of git-lfs, the other end of a fetch, credential helpers, configured hooks. Nor is a file
//!    written that only it names (cookies).
//! 2. An override errs on the safe side: a filter that is switched off can make a file look changed, never unchanged;
//!    a merge driver that is switched off is a conflict.
//! 3. A repository that mentions nothing of the kind costs no process. One that does costs one, until its
//!    configuration changes; with included files, one each time.

use std::collections::{BTreeSet, HashMap};
use std::ffi::OsString;
use std::fs::OpenOptions;
use std::io::ErrorKind;
use std::os::unix::ffi::OsStringExt as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use super::error::GitError;
use super::invocation::Invocation;
use super::parse;
use super::parse::config::Scoped;
use super::plain_file::content;
use super::program::{Policy, Signing};
use super::surroundings::Variable;
use super::text::bytes_to_text;
use super::{Repo, Tree};

/// What a driver is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum DriverKind {
    /// `filter.<name>`, or a helper of git-lfs: runs when files are checked out, added or compared.
    Filter,
    /// `merge.<name>`: runs when both sides of a merge changed a file.
    Merge,
    /// `gpg.<format>.program`: runs when commits are signed.
    Signer,
}

impl DriverKind {
    /// How messages name it, and the key of this worker's configuration that decides about it.
    pub(super) fn words(self) -> (&'static str, &'static str) {
        match self {
            DriverKind::Filter => ("filter", "add its name to git.filters"),
            DriverKind::Merge => ("merge driver", "add its name to git.merge_drivers"),
            DriverKind::Signer => ("signing program", "set git.signing: off"),
        }
    }
}

/// A program that the repository itself configures.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Driver {
    /// What it is for.
    pub kind: DriverKind,
    /// Its name in attributes, for instance `lfs`; bytes that are no text are escaped.
    pub name: String,
    /// The command that would run.
    pub command: String,
}

/// What is to be done about a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Rule {
    Driver(DriverKind),
    /// `remote.<name>.uploadpack`: a partial clone runs it whenever an object is missing. Git takes the first value it
    /// finds, so that it cannot be overridden.
    UploadPack,
    /// `credential.<url>.helper`.
    Helper,
    /// `hook.<name>.command`, of newer versions of git; `core.hooksPath` does not switch it off.
    Hook,
    /// `http.cookieFile` and `http.saveCookies`, also for one address: git writes what a server sends into that file,
    /// over whatever it held.
    Cookies,
}

/// Beginnings of sections, in lower case, that may hold one of the keys above.
const SECTIONS: &[&[u8]] = &[b"filter", b"merge", b"lfs", b"gpg", b"credential", b"hook", b"http", b"include"];
/// A larger configuration is not searched but left to git.
const LONGEST: u64 = 4 * 1024 * 1024;
/// How many configurations are remembered at a time.
const REMEMBERED: usize = 256;

/// What was found in which configuration, by git directory.
pub(super) type Memory = Mutex<HashMap<PathBuf, (Vec<u8>, Arc<[Scoped]>)>>;

/// Where a command runs: common directory, git directory, root of the worktree.
#[derive(Debug, Clone)]
pub(super) struct Place {
    pub(super) common_dir: PathBuf,
    pub(super) git_dir: PathBuf,
    pub(super) root: Option<PathBuf>,
}

impl Place {
    fn ask(&self, git: &super::Git) -> Invocation {
        let ask = Invocation::new(git, ["config", "--list", "--show-scope", "--includes", "-z"]);
        match &self.root {
            Some(root) => ask.in_tree(&self.common_dir, &self.git_dir, root),
            None => ask.in_repo(&self.common_dir),
        }
    }

    /// The files of the repository's own configuration, joined; `None` when git has to be asked whatever they hold.
    pub(super) fn text(&self) -> Option<Vec<u8>> {
        let mut all = plain_file(&self.common_dir.join("config"))?;
        all.push(0);
        all.extend(plain_file(&self.git_dir.join("config.worktree"))?);
        Some(all)
    }

    /// The same, where it is all that the repository configures: without files that it includes.
    pub(super) fn text_without_includes(&self) -> Option<Vec<u8>> {
        self.text().filter(|text| !mentions(text).1)
    }
}

/// What a file holds, nothing when it is missing; `None` when it is no plain file of a sensible size. Does not block.
fn plain_file(path: &Path) -> Option<Vec<u8>> {
    let file = match OpenOptions::new().read(true).custom_flags(nix::libc::O_NONBLOCK).open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == ErrorKind::NotFound => return Some(Vec::new()),
        Err(_) => return None,
    };
    content(file, LONGEST)
}

/// Whether a configuration may hold one of the keys in question, and whether it includes other files.
///
/// Section names and keys cannot be escaped or broken over lines, so what does not stand there is not there.
fn mentions(text: &[u8]) -> (bool, bool) {
    let text = text.to_ascii_lowercase();
    let after = text.iter().enumerate().filter(|(_, byte)| **byte == b'[').map(|(at, _)| &text[at + 1..]);
    let (mut any, mut includes) = (false, false);
    for rest in after {
        any |= SECTIONS.iter().any(|section| rest.starts_with(section));
        includes |= rest.starts_with(b"include");
    }
    let other_end = b"uploadpack";
    (any || text.windows(other_end.len()).any(|window| window == other_end), includes)
}

/// The entries that matter, of all scopes, in the order of git. Nothing where the repository mentions none, unless
/// `always`.
pub(super) async fn entries(git: &super::Git, place: &Place, always: bool) -> Result<Arc<[Scoped]>, GitError> {
    let text = place.text();
    let (any, includes) = text.as_deref().map_or((true, true), mentions);
    if !any && !always {
        return Ok(Arc::default());
    }
    let memory = git.memory();
    let text = text.filter(|_| !includes && !always);
    if let Some(text) = &text
        && let Some((seen, found)) = memory.lock().unwrap_or_else(PoisonError::into_inner).get(&place.git_dir)
        && seen == text
    {
        return Ok(Arc::clone(found));
    }
    let output = place.ask(git).run_as_it_is().await?.stdout()?;
    let entries = parse::config::scoped(&output)?.into_iter().filter(|entry| rule(&entry.key).is_some());
    let found: Arc<[Scoped]> = entries.collect();
    if let Some(text) = text {
        let mut memory = memory.lock().unwrap_or_else(PoisonError::into_inner);
        if memory.len() >= REMEMBERED {
            memory.clear();
        }
        memory.insert(place.git_dir.clone(), (text, Arc::clone(&found)));
    }
    Ok(found)
}

/// Section, name and variable of a key as git lists it: section and variable in lower case.
fn parts(key: &[u8]) -> Option<(&[u8], &[u8], &[u8])> {
    let first = key.iter().position(|byte| *byte == b'.')?;
    let last = key.iter().rposition(|byte| *byte == b'.')?;
    let name = if first < last { &key[first + 1..last] } else { &[] };
    Some((&key[..first], name, &key[last + 1..]))
}

fn rule(key: &[u8]) -> Option<Rule> {
    let (section, name, variable) = parts(key)?;
    let lfs = |start: &[u8]| name.to_ascii_lowercase().starts_with(start);
    match (section, variable) {
        (b"filter", b"clean" | b"smudge" | b"process") => Some(Rule::Driver(DriverKind::Filter)),
        (b"lfs", b"path") if lfs(b"customtransfer.") => Some(Rule::Driver(DriverKind::Filter)),
        (b"lfs", b"clean" | b"smudge") if lfs(b"extension.") => Some(Rule::Driver(DriverKind::Filter)),
        (b"merge", b"driver") => Some(Rule::Driver(DriverKind::Merge)),
        (b"gpg", b"program" | b"defaultkeycommand") => Some(Rule::Driver(DriverKind::Signer)),
        (b"remote", b"uploadpack") => Some(Rule::UploadPack),
        (b"credential", b"helper") => Some(Rule::Helper),
        (b"hook", b"command") => Some(Rule::Hook),
        (b"http", b"cookiefile" | b"savecookies") => Some(Rule::Cookies),
        _ => None,
    }
}

fn is_own(entry: &Scoped) -> bool {
    matches!(entry.scope.as_str(), "local" | "worktree")
}

/// The driver of an entry of the repository's own. An empty command runs nothing.
fn driver(entry: &Scoped) -> Option<Driver> {
    let Some(Rule::Driver(kind)) = rule(&entry.key).filter(|_| is_own(entry) && !entry.value.is_empty()) else {
        return None;
    };
    let (section, name, _) = parts(&entry.key)?;
    let name = match section {
        b"filter" | b"merge" => bytes_to_text(name),
        _ => bytes_to_text(&entry.key),
    };
    Some(Driver { kind, name, command: bytes_to_text(&entry.value) })
}

/// What git-lfs writes for itself: `git-lfs`, one of its filters, and plain options. Nothing there that a shell would
/// take for more than words.
fn is_git_lfs(driver: &Driver) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, ' ' | '-' | '%');
    let mut words = driver.command.split(' ');
    driver.kind == DriverKind::Filter
        && driver.name == "lfs"
        && driver.command.chars().all(plain)
        && words.next() == Some("git-lfs")
        && matches!(words.next(), Some("clean" | "smudge" | "filter-process"))
}

fn is_allowed(driver: &Driver, policy: &Policy) -> bool {
    let names = match driver.kind {
        DriverKind::Filter => &policy.filters,
        DriverKind::Merge => &policy.merge_drivers,
        DriverKind::Signer => return policy.signing != Signing::Keep,
    };
    is_git_lfs(driver) || names.iter().any(|name| name == "*" || *name == driver.name)
}

/// What takes the place of a value of the repository's own.
fn replacement(rule: Rule) -> &'static str {
    match rule {
        Rule::Driver(DriverKind::Merge) => "false",
        // As a path it names nothing, as a switch it is off.
        Rule::Driver(_) | Rule::Helper | Rule::Hook | Rule::UploadPack | Rule::Cookies => "",
    }
}

fn pair(key: &[u8], value: &[u8]) -> Variable {
    (OsString::from_vec(key.to_vec()), OsString::from_vec(value.to_vec()))
}

/// The configuration that keeps what is not allowed from running. The user's own value, where there is one, comes back
/// into force.
pub(super) fn overrides(entries: &[Scoped], policy: &Policy) -> Vec<Variable> {
    let mut out = Vec::new();
    for entry in entries.iter().filter(|entry| is_own(entry)) {
        let Some(rule) = rule(&entry.key).filter(|rule| *rule != Rule::UploadPack) else { continue };
        let allowed = driver(entry).is_some_and(|driver| is_allowed(&driver, policy));
        let empty = matches!(rule, Rule::Driver(_)) && entry.value.is_empty();
        if allowed || empty {
            continue;
        }
        let Some((section, name, _)) = parts(&entry.key) else { continue };
        if rule == Rule::Hook {
            out.push(pair(&[section, b".", name, b".enabled"].concat(), b"false"));
            continue;
        }
        let users = entries.iter().rev().find(|other| !is_own(other) && other.key == entry.key);
        let users = users.filter(|_| rule != Rule::Helper);
        let value = users.map_or(replacement(rule).as_bytes(), |other| &other.value);
        out.push(pair(&entry.key, value));
        if section == b"filter" && users.is_none() {
            // A filter that is required and does not run would be a failure.
            out.push(pair(&[section, b".", name, b".required"].concat(), b"false"));
        }
    }
    out
}

/// Whether the repository itself names the program on the other end of a fetch.
pub(super) fn names_other_end(entries: &[Scoped]) -> bool {
    entries.iter().any(|entry| is_own(entry) && rule(&entry.key) == Some(Rule::UploadPack))
}

/// The credential helpers of the user and the system, after everything that the repository itself says is forgotten.
pub(super) fn helpers_of_the_user(entries: &[Scoped]) -> Vec<Variable> {
    let of_user = entries.iter().filter(|entry| !is_own(entry) && rule(&entry.key) == Some(Rule::Helper));
    let forget = pair(b"credential.helper", b"");
    std::iter::once(forget).chain(of_user.map(|entry| pair(&entry.key, &entry.value))).collect()
}

async fn own_drivers(git: &super::Git, place: &Place) -> Result<BTreeSet<Driver>, GitError> {
    Ok(entries(git, place, false).await?.iter().filter_map(driver).collect())
}

async fn require_allowed(git: &super::Git, place: &Place) -> Result<(), GitError> {
    let drivers = own_drivers(git, place).await?;
    match drivers.into_iter().find(|driver| !is_allowed(driver, git.policy())) {
        Some(driver) => Err(GitError::DriverNotAllowed { path: place.common_dir.clone(), driver }),
        None => Ok(()),
    }
}

impl Tree {
    /// The programs for file contents and signatures that the configuration of the repository and of this worktree
    /// define, with files they include. What the user or the system defines is not among them.
    ///
    /// # Errors
    /// W102.
    pub async fn own_drivers(&self) -> Result<BTreeSet<Driver>, GitError> {
        own_drivers(&self.git, &self.place()).await
    }

    /// Refuses when one of [`Tree::own_drivers`] is not allowed by policy.
    ///
    /// # Errors
    /// W503 naming it, W102.
    pub async fn require_allowed_drivers(&self) -> Result<(), GitError> {
        require_allowed(&self.git, &self.place()).await
    }
}

impl Repo {
    /// Like [`Tree::require_allowed_drivers`], for what all worktrees of the repository share.
    ///
    /// # Errors
    /// W503 naming it, W102.
    pub async fn require_allowed_drivers(&self) -> Result<(), GitError> {
        require_allowed(&self.git, &self.place()).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(scope: &str, key: &str, value: &str) -> Scoped {
        Scoped { scope: scope.to_owned(), key: key.as_bytes().to_vec(), value: value.as_bytes().to_vec() }
    }

    fn overridden(entries: &[Scoped], policy: &Policy) -> Vec<(String, String)> {
        let pairs = overrides(entries, policy).into_iter();
        pairs.map(|(key, value)| (key.into_string().unwrap(), value.into_string().unwrap())).collect()
    }

    #[test]
    fn only_what_git_lfs_writes_for_itself_is_known() {
        let lfs = |name: &str, command: &str| {
            let name = name.to_owned();
            is_git_lfs(&Driver { kind: DriverKind::Filter, name, command: command.to_owned() })
        };
        for known in ["git-lfs clean -- %f", "git-lfs smudge --skip -- %f", "git-lfs filter-process"] {
            assert!(lfs("lfs", known), "{known}");
        }
        for other in ["git-lfs", "git-lfs clean; rm x", "git-lfs clean $(x)", "./git-lfs clean", "git lfs clean", "x"] {
            assert!(!lfs("lfs", other), "{other}");
        }
        assert!(!lfs("other", "git-lfs filter-process"));
    }

    #[test]
    fn the_value_of_the_user_comes_back_into_force_invariant_1() {
        let entries = [
            entry("global", "filter.x.clean", "mine"),
            entry("local", "filter.x.clean", "theirs"),
            entry("local", "filter.y.smudge", "theirs"),
            entry("worktree", "merge.z.driver", "theirs"),
            entry("local", "remote.a.b.uploadpack", "theirs"),
            entry("local", "hook.h.command", "theirs"),
            entry("local", "filter.off.clean", ""),
            entry("local", "http.https://a.savecookies", "true"),
        ];
        let wanted = [
            ("filter.x.clean", "mine"),
            ("filter.y.smudge", ""),
            ("filter.y.required", "false"),
            ("merge.z.driver", "false"),
            ("hook.h.enabled", "false"),
            ("http.https://a.savecookies", ""),
        ];
        let wanted = wanted.map(|(key, value)| (key.to_owned(), value.to_owned()));
        assert_eq!(overridden(&entries, &Policy::default()), wanted);
        let policy = Policy {
            filters: vec!["x".to_owned(), "y".to_owned()],
            merge_drivers: vec!["*".to_owned()],
            ..Policy::default()
        };
        assert_eq!(overridden(&entries, &policy), wanted[4..]);
        assert!(names_other_end(&entries));
    }

    #[test]
    fn helpers_of_the_repository_are_forgotten_and_the_users_are_asked() {
        let entries = [
            entry("global", "credential.https://a.helper", "mine"),
            entry("local", "credential.https://a.helper", "theirs"),
            entry("local", "credential.helper", "theirs"),
        ];
        let forgotten = ["credential.https://a.helper", "credential.helper"].map(|key| (key.to_owned(), String::new()));
        assert_eq!(overridden(&entries, &Policy::default()), forgotten);
        let asked = helpers_of_the_user(&entries);
        assert_eq!(asked, [pair(b"credential.helper", b""), pair(b"credential.https://a.helper", b"mine")]);
    }

    #[test]
    fn a_plain_configuration_mentions_nothing_invariant_3() {
        let plain = b"[core]\n\tbare = false\n[branch \"main\"]\n\tremote = origin\n\tmerge = refs/heads/main\n";
        assert_eq!(mentions(plain), (false, false));
        for text in ["[FILTER \"x\"]", "[merge.x]", "[remote \"o\"]uploadPack=x", "[credential]", "[gpg]"] {
            assert_eq!(mentions(text.as_bytes()), (true, false), "{text}");
        }
        assert_eq!(mentions(b"[includeIf \"x\"]"), (true, true));
    }

    #[test]
    fn what_is_no_plain_file_is_left_to_git() {
        let dir = tempfile::tempdir().unwrap();
        let fifo = dir.path().join("config");
        nix::unistd::mkfifo(&fifo, nix::sys::stat::Mode::S_IRWXU).unwrap();
        assert_eq!(plain_file(&fifo), None);
        assert_eq!(plain_file(&dir.path().join("missing")), Some(Vec::new()));
        assert_eq!(plain_file(dir.path()), None);
    }
}
