//! One engine per state directory.
//!
//! The claim is an operating system lock on a file, so it dies with its owner, however that ends. The file also
//! holds the owner's process id, for people; nothing decides by it.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{Read as _, Seek as _, Write as _};
use std::path::Path;
use std::time::Duration;

use tokio::time::Instant;

use super::error::EngineError;

/// The claim on a state directory; given up when dropped.
pub(super) struct Claim {
    _file: File,
}

/// How long a lock that is taken is tried again. A child that the previous owner was just starting holds its lock for a
/// moment longer than the owner lived.
const PATIENCE: Duration = Duration::from_secs(2);
const PAUSE: Duration = Duration::from_millis(20);

/// Claims the directory, or names who has it.
pub(super) async fn claim(dir: &Path) -> Result<Claim, EngineError> {
    let path = dir.join("engine.lock");
    let failed = |action| {
        let path = path.clone();
        move |source| EngineError::Io { action, path, source }
    };
    let mut file =
        OpenOptions::new().read(true).write(true).create(true).truncate(false).open(&path).map_err(failed("open"))?;
    let deadline = Instant::now() + PATIENCE;
    let mut locked = file.try_lock();
    while matches!(locked, Err(TryLockError::WouldBlock)) && Instant::now() < deadline {
        tokio::time::sleep(PAUSE).await;
        locked = file.try_lock();
    }
    match locked {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => {
            let mut note = String::new();
            let owner = match file.read_to_string(&mut note) {
                Ok(_) if !note.trim().is_empty() => format!("process {}", note.trim()),
                _ => "another process".to_owned(),
            };
            return Err(EngineError::Owned { dir: dir.to_owned(), owner });
        }
        Err(TryLockError::Error(source)) => return Err(failed("lock")(source)),
    }
    file.set_len(0).and_then(|()| file.rewind()).map_err(failed("write"))?;
    writeln!(file, "{}", std::process::id()).map_err(failed("write"))?;
    Ok(Claim { _file: file })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_second_claim_names_the_owner_and_a_dropped_claim_is_free() {
        let dir = tempfile::tempdir().unwrap();
        let first = claim(dir.path()).await.unwrap();
        let Err(error) = claim(dir.path()).await else { panic!("claimed twice") };
        assert!(error.to_string().contains(&format!("process {}", std::process::id())), "{error}");
        drop(first);
        claim(dir.path()).await.unwrap();
    }

    #[tokio::test]
    async fn a_claim_that_is_given_up_in_a_moment_is_waited_for() {
        let dir = tempfile::tempdir().unwrap();
        let first = claim(dir.path()).await.unwrap();
        let (second, ()) = tokio::join!(claim(dir.path()), async {
            tokio::time::sleep(PATIENCE / 2).await;
            drop(first);
        });
        second.unwrap();
    }
}
