//! Git as somebody types it in a place of their own: for the tour, which plays agents at work.
//!
//! The words are the caller's, so the promises of this layer about refs and files are not kept for them. What keeps
//! programs from being started and questions from being asked holds here, too.

use std::ffi::OsStr;
use std::path::Path;

use super::Git;
use super::error::GitError;
use super::invocation::Invocation;

impl Git {
    /// Runs git with these arguments in `dir`, as somebody called `name` whose home is `home`, where all configuration of a
    /// user is read. Returns what it printed, without the end of the last line.
    ///
    /// # Errors
    /// W100 when git cannot be started, W102 and others when it says no.
    pub async fn as_person(
        &self,
        (name, home): (&str, &Path),
        dir: &Path,
        args: impl IntoIterator<Item = impl AsRef<OsStr>>,
    ) -> Result<String, GitError> {
        let email = format!("{name}@demo.invalid");
        let command = Invocation::new(self, args)
            .discovering_from(dir)
            .env_path("HOME", home)
            .env_path("XDG_CONFIG_HOME", home)
            .env("GIT_CONFIG_NOSYSTEM", "1");
        let command = ["AUTHOR", "COMMITTER"].into_iter().fold(command, |command, role| {
            command.env(&format!("GIT_{role}_NAME"), name).env(&format!("GIT_{role}_EMAIL"), &email)
        });
        command.writes().run().await?.line()
    }
}
