//! A child process whose output is kept, and shown when the test fails.

use std::io::{BufRead as _, BufReader, Read};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::until;

pub struct Process {
    name: &'static str,
    child: Child,
    lines: Arc<Mutex<Vec<String>>>,
    log: Arc<Mutex<String>>,
}

impl Process {
    pub fn start(name: &'static str, mut command: Command) -> Self {
        let mut child = command
            .env("RUST_LOG", "info,worktree=debug")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap_or_else(|error| panic!("starting {name}: {error}"));
        let lines = Arc::new(Mutex::new(Vec::new()));
        let log = Arc::new(Mutex::new(String::new()));
        let (out, seen) = (child.stdout.take().unwrap(), Arc::clone(&lines));
        read_lines(out, move |line| seen.lock().unwrap().push(line));
        let (err, kept) = (child.stderr.take().unwrap(), Arc::clone(&log));
        read_lines(err, move |line| {
            let mut log = kept.lock().unwrap();
            log.push_str(&line);
            log.push('\n');
        });
        Self { name, child, lines, log }
    }

    /// What it wrote to standard output so far, line by line.
    pub fn lines(&self) -> Vec<String> {
        self.lines.lock().unwrap().clone()
    }

    /// What it wrote to standard error so far.
    pub fn log(&self) -> String {
        self.log.lock().unwrap().clone()
    }

    /// The first line on standard output.
    pub async fn first_line(&mut self) -> String {
        let what = format!("the first line of {}", self.name);
        until(&what, || {
            let ended = self.child.try_wait().unwrap();
            let line = self.lines().into_iter().next();
            assert!(line.is_some() || ended.is_none(), "{} ended with {ended:?}:\n{}", self.name, self.log());
            async move { line }
        })
        .await
    }

    /// Waits for its end.
    pub async fn ended(&mut self) -> ExitStatus {
        let what = format!("the end of {}", self.name);
        until(&what, || {
            let ended = self.child.try_wait().unwrap();
            async move { ended }
        })
        .await
    }

    /// Whether it has not ended.
    pub fn runs(&self) -> bool {
        // A zombie that nobody has waited for counts as ended.
        !matches!(self.state(), 'Z' | 'X')
    }

    /// Whether it was stopped by a signal.
    pub fn stands_still(&self) -> bool {
        self.state() == 'T'
    }

    /// Its state as the kernel tells it; `X` when there is no such process.
    fn state(&self) -> char {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.child.id())).unwrap_or_default();
        stat.rsplit_once(") ").and_then(|(_, rest)| rest.chars().next()).unwrap_or('X')
    }

    /// SIGTERM.
    pub fn signal_stop(&self) {
        self.signal(Signal::SIGTERM);
    }

    /// SIGTERM, and wait for its end.
    pub async fn stop(&mut self) -> ExitStatus {
        self.signal_stop();
        self.ended().await
    }

    /// SIGKILL: it gets no chance to do anything more.
    pub fn kill(&mut self) {
        self.signal(Signal::SIGKILL);
        self.child.wait().unwrap();
    }

    /// Sends it a signal.
    pub fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(i32::try_from(self.child.id()).unwrap()), signal).unwrap();
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if self.child.try_wait().unwrap().is_none() {
            self.kill();
        }
        if std::thread::panicking() {
            eprintln!("--- log of {} ---\n{}", self.name, self.log());
        }
    }
}

fn read_lines(from: impl Read + Send + 'static, mut each: impl FnMut(String) + Send + 'static) {
    std::thread::spawn(move || {
        for line in BufReader::new(from).split(b'\n') {
            let Ok(line) = line else { return };
            each(String::from_utf8_lossy(&line).into_owned());
        }
    });
}
