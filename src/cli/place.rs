//! Which engine a command speaks to.

use std::path::PathBuf;

use anyhow::Context as _;
use clap::Args;

use super::trouble::Trouble;

/// Where the engine is, as the command line says.
#[derive(Debug, Clone, Default, Args)]
#[group(skip)]
pub(super) struct Reach {
    /// Address of the engine [env: III_URL] [default: ws://127.0.0.1:49134]
    #[arg(long, value_name = "URL", conflicts_with = "local")]
    pub(super) url: Option<String>,
    /// Work on the state of `worktree dev`, whether or not it runs
    #[arg(long)]
    pub(super) local: bool,
    /// Where that state lies [default: ~/.iii/worktree-dev]
    #[arg(long, value_name = "DIR")]
    pub(super) state_dir: Option<PathBuf>,
}

/// The engine that was meant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Place {
    /// The one at this address.
    At(String),
    /// The one that owns this state directory, or one in this process when nobody does.
    Local(PathBuf),
}

impl Reach {
    /// What stands after the subcommand wins over what stands before it, and that over the environment.
    ///
    /// # Errors
    /// When the words do not fit together.
    pub(super) fn resolve(self, before: Self) -> Result<Place, Trouble> {
        let state_dir = self.state_dir.or(before.state_dir);
        let url = match (self.url, self.local) {
            (Some(url), _) => Some(url),
            (None, true) => None,
            (None, false) if before.local => None,
            (None, false) => Some(before.url.unwrap_or_else(iii_sdk::engine_url_from_env)),
        };
        match (url, state_dir) {
            (Some(_), Some(_)) => Err(Trouble::usage("--state-dir has a meaning only with --local")),
            (Some(url), None) => Ok(Place::At(url)),
            (None, dir) => Ok(Place::Local(dir.map_or_else(default_state_dir, Ok)?)),
        }
    }
}

/// The state directory when none is named.
///
/// # Errors
/// When there is no home directory.
pub(super) fn default_state_dir() -> anyhow::Result<PathBuf> {
    let home = std::env::home_dir().context("no home directory; name a place with --state-dir")?;
    Ok(home.join(".iii").join("worktree-dev"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn url(text: &str) -> Reach {
        Reach { url: Some(text.to_owned()), ..Reach::default() }
    }

    fn local(dir: Option<&str>) -> Reach {
        Reach { local: true, state_dir: dir.map(PathBuf::from), ..Reach::default() }
    }

    #[test]
    fn the_words_after_the_subcommand_win() {
        assert_eq!(url("ws://b").resolve(url("ws://a")).unwrap(), Place::At("ws://b".to_owned()));
        assert_eq!(Reach::default().resolve(url("ws://a")).unwrap(), Place::At("ws://a".to_owned()));
        assert_eq!(url("ws://b").resolve(local(None)).unwrap(), Place::At("ws://b".to_owned()));
        let here = Place::Local(PathBuf::from("/s"));
        assert_eq!(local(Some("/s")).resolve(url("ws://a")).unwrap(), here);
        assert_eq!(Reach::default().resolve(local(Some("/s"))).unwrap(), here);
    }

    #[test]
    fn a_state_directory_without_local_is_refused() {
        let reach = Reach { local: false, ..local(Some("/s")) };
        assert!(matches!(reach.resolve(url("ws://a")), Err(Trouble::Usage(_))));
    }
}
