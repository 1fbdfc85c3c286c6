//! Hearing of changes in a pooled worktree from the system (inotify(7)), so that a create need not look for them.
//!
//! Only a shortcut: where nothing can be heard (another system, too many directories), or as soon as something was heard,
//! the footprints are compared.
//!
//! Invariants
//! 1. Quiet means that since it began to listen no file was written, opened, created, renamed or removed, and nobody
//!    changed its mode or times. What cannot be told is not quiet.
//! 2. A quarter of what the system grants the user is the most that this process takes: editors need theirs.

#[cfg(target_os = "linux")]
mod system {
    use std::io;
    use std::os::unix::ffi::OsStrExt as _;
    use std::path::{Path, PathBuf};
    use std::sync::atomic::{AtomicU64, Ordering};

    use nix::errno::Errno;
    use nix::sys::inotify::{AddWatchFlags, InitFlags, Inotify, InotifyEvent};

    use super::super::footprint::is_ours;

    /// How many directories this process watches.
    static WATCHED: AtomicU64 = AtomicU64::new(0);

    /// What is heard of directories in git's entry, which git itself reads all the time.
    const CHANGES: AddWatchFlags = AddWatchFlags::IN_ATTRIB
        .union(AddWatchFlags::IN_CLOSE_WRITE)
        .union(AddWatchFlags::IN_CREATE)
        .union(AddWatchFlags::IN_DELETE)
        .union(AddWatchFlags::IN_DELETE_SELF)
        .union(AddWatchFlags::IN_MODIFY)
        .union(AddWatchFlags::IN_MOVE_SELF)
        .union(AddWatchFlags::IN_MOVED_FROM)
        .union(AddWatchFlags::IN_MOVED_TO);

    #[derive(Debug)]
    pub(in super::super) struct Listener {
        inotify: Inotify,
        directories: u64,
    }

    impl Listener {
        /// Begins to listen; `None` when that is not possible. Blocking.
        pub(in super::super) fn begin(root: &Path, entry: &Path) -> Option<Listener> {
            let inotify = Inotify::init(InitFlags::IN_NONBLOCK | InitFlags::IN_CLOEXEC).ok()?;
            let mut watch = Listener { inotify, directories: 0 };
            // A file that is opened may be written through a mapping, of which nothing is heard.
            watch.add(root, CHANGES | AddWatchFlags::IN_OPEN).ok()?;
            watch.add(entry, CHANGES).ok()?;
            Some(watch)
        }

        fn add(&mut self, top: &Path, events: AddWatchFlags) -> io::Result<()> {
            let mut open: Vec<PathBuf> = vec![top.to_owned()];
            while let Some(dir) = open.pop() {
                self.directories += 1;
                if WATCHED.fetch_add(1, Ordering::Relaxed) >= granted()? / 4 {
                    return Err(io::Error::other("too many directories"));
                }
                self.inotify.add_watch(&dir, events | AddWatchFlags::IN_ONLYDIR | AddWatchFlags::IN_DONT_FOLLOW)?;
                for item in std::fs::read_dir(&dir)? {
                    let item = item?;
                    if item.file_type()?.is_dir() {
                        open.push(item.path());
                    }
                }
            }
            Ok(())
        }

        /// Whether nothing was heard since it began to listen, or since it was asked last.
        pub(in super::super) fn is_quiet(&self) -> bool {
            loop {
                match self.inotify.read_events() {
                    Ok(events) if events.iter().all(means_nothing) => {}
                    Err(Errno::EAGAIN) => return true,
                    Ok(_) | Err(_) => return false,
                }
            }
        }
    }

    impl Drop for Listener {
        fn drop(&mut self) {
            WATCHED.fetch_sub(self.directories, Ordering::Relaxed);
        }
    }

    /// That a directory or the `.git` file was read, or that this worker wrote what is its own.
    fn means_nothing(event: &InotifyEvent) -> bool {
        let name = event.name.as_deref().map(std::ffi::OsStr::as_bytes);
        let opened = event.mask.difference(AddWatchFlags::IN_ISDIR) == AddWatchFlags::IN_OPEN;
        let reads = opened && (event.mask.contains(AddWatchFlags::IN_ISDIR) || name == Some(b".git"));
        reads || name.is_some_and(is_ours)
    }

    /// How many directories the user may watch in all.
    fn granted() -> io::Result<u64> {
        let text = std::fs::read_to_string("/proc/sys/fs/inotify/max_user_watches")?;
        text.trim().parse().map_err(io::Error::other)
    }
}

#[cfg(not(target_os = "linux"))]
mod system {
    use std::path::Path;

    #[derive(Debug)]
    pub(in super::super) enum Listener {}

    impl Listener {
        pub(in super::super) fn begin(_root: &Path, _entry: &Path) -> Option<Listener> {
            None
        }

        pub(in super::super) fn is_quiet(&self) -> bool {
            match *self {}
        }
    }
}

pub(super) use system::Listener;
