//! An engine as a process of its own, to be killed and to be measured.

use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use serde_json::Value;

/// A running `examples/engine`.
pub struct Process {
    child: Child,
    pub url: String,
}

fn program() -> PathBuf {
    // target/debug/deps/it-… → target/debug/examples/engine, which cargo builds together with the tests.
    let here = std::env::current_exe().unwrap();
    here.parent().unwrap().parent().unwrap().join("examples/engine")
}

impl Process {
    /// Starts it and does not wait for anything.
    pub fn spawn(state_dir: &Path) -> Process {
        let child = Command::new(program())
            .arg(state_dir)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .expect("examples/engine is built with the tests");
        Process { child, url: String::new() }
    }

    /// Starts it with files limited to this many KiB, as on a disk that runs full; waits until it is ready.
    pub fn start_limited(state_dir: &Path, kib: u32) -> Process {
        // Ignored, the signal becomes an error of the write, as a full disk is.
        let script = format!("trap '' XFSZ; ulimit -f {kib}; exec \"$0\" \"$1\"");
        let mut command = Command::new("bash");
        command.arg("-c").arg(script).arg(program()).arg(state_dir);
        let child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().unwrap();
        Process { child, url: String::new() }.ready()
    }

    /// Starts it and waits until it is ready.
    pub fn start(state_dir: &Path) -> Process {
        Process::spawn(state_dir).ready()
    }

    fn ready(self) -> Process {
        let mut process = self;
        let mut line = String::new();
        BufReader::new(process.child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let ready: Value = serde_json::from_str(&line).unwrap_or_else(|_| panic!("not ready: {line:?}"));
        process.url = ready["url"].as_str().unwrap().to_owned();
        process
    }

    /// SIGKILL, and gone when this returns.
    pub fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Memory in use, in bytes.
    pub fn memory(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap();
        let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
        line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() * 1024
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // Killed already, most of the time.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}
