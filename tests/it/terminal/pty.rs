//! A pseudo-terminal with a command in its foreground, and the screen that a person would see.

use std::io::{Read as _, Write};
use std::path::Path;
use std::sync::{Arc, Mutex};

use portable_pty::{Child, CommandBuilder, MasterPty, PtySize, native_pty_system};

use crate::support::{BINARY, Stand, until};

const ROWS: u16 = 40;
/// What Ctrl-C sends.
const INTERRUPT: &str = "\u{3}";

pub struct Terminal {
    child: Box<dyn Child + Send + Sync>,
    keys: Box<dyn Write + Send>,
    seen: Arc<Mutex<Seen>>,
    _master: Box<dyn MasterPty + Send>,
}

struct Seen {
    screen: vt100::Parser,
    raw: String,
    ended: bool,
}

impl Terminal {
    /// `worktree` with these arguments, standing in `place`, on a terminal of 100 columns without colours.
    pub fn start(stand: &Stand, place: &Path, arguments: &[&str]) -> Self {
        Self::sized(stand, place, arguments, 100, false)
    }

    /// The same with this many columns, and colours if they are wanted.
    pub fn sized(stand: &Stand, place: &Path, arguments: &[&str], columns: u16, colours: bool) -> Self {
        let size = PtySize { rows: ROWS, cols: columns, pixel_width: 0, pixel_height: 0 };
        let pair = native_pty_system().openpty(size).unwrap();
        let mut command = CommandBuilder::new(BINARY);
        command.env_clear();
        for (name, value) in stand.command(&[]).get_envs() {
            command.env(name, value.unwrap_or_default());
        }
        if colours {
            command.env_remove("NO_COLOR");
        }
        command.env("TERM", "xterm-256color");
        command.env("III_URL", stand.url());
        command.env("USER", "olga");
        command.args(arguments);
        command.cwd(place);
        let child = pair.slave.spawn_command(command).unwrap();
        // The terminal ends with its last process; this end of it must not keep it.
        drop(pair.slave);
        let keys = pair.master.take_writer().unwrap();
        let mut reader = pair.master.try_clone_reader().unwrap();
        let screen = vt100::Parser::new(ROWS.try_into().unwrap(), columns.try_into().unwrap(), 0);
        let seen = Arc::new(Mutex::new(Seen { screen, raw: String::new(), ended: false }));
        let shared = Arc::clone(&seen);
        std::thread::spawn(move || {
            let mut bytes = [0; 4096];
            // The system reports the end of a terminal as an error.
            while let Ok(count @ 1..) = reader.read(&mut bytes) {
                let mut seen = shared.lock().unwrap();
                seen.screen.process(&bytes[..count]);
                seen.raw.push_str(&String::from_utf8_lossy(&bytes[..count]));
            }
            shared.lock().unwrap().ended = true;
        });
        Self { child, keys, seen, _master: pair.master }
    }

    /// What the screen shows.
    pub fn screen(&self) -> String {
        self.seen.lock().unwrap().screen.screen().contents()
    }

    /// Everything that was sent to the screen, with what moves the cursor and colours.
    pub fn raw(&self) -> String {
        self.seen.lock().unwrap().raw.clone()
    }

    /// Waits until the screen shows this text.
    pub async fn shows(&mut self, text: &str) {
        let what = format!("`{text}` on the screen");
        until(&what, || {
            let (screen, ended) = (self.screen(), self.seen.lock().unwrap().ended);
            assert!(screen.contains(text) || !ended, "it ended without `{text}`:\n{screen}");
            async move { screen.contains(text).then_some(()) }
        })
        .await;
    }

    /// Types a line.
    pub fn types(&mut self, line: &str) {
        self.keys.write_all(format!("{line}\r").as_bytes()).unwrap();
        self.keys.flush().unwrap();
    }

    /// Presses Ctrl-C.
    pub fn interrupts(&mut self) {
        self.keys.write_all(INTERRUPT.as_bytes()).unwrap();
        self.keys.flush().unwrap();
    }

    /// Waits for the end, and for everything that was printed; tells the exit code.
    pub async fn ends(&mut self) -> u32 {
        let status = until("the end of the command", || {
            let ended = self.child.try_wait().unwrap();
            async move { ended }
        })
        .await;
        until("the end of the terminal", || {
            let ended = self.seen.lock().unwrap().ended;
            async move { ended.then_some(()) }
        })
        .await;
        status.exit_code()
    }

    /// Waits for the end, which is to be a success, and tells what the screen shows then.
    pub async fn succeeds(mut self) -> String {
        let code = self.ends().await;
        assert_eq!(code, 0, "{}", self.screen());
        self.screen()
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        if self.child.try_wait().unwrap().is_none() {
            self.child.kill().unwrap();
        }
        if std::thread::panicking() {
            eprintln!("--- the screen ---\n{}", self.screen());
        }
    }
}
