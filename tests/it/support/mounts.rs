//! Tests that mount file systems, whoever runs them.

use std::future::Future;
use std::process::Command;

/// Tells a process that it may mount.
const INSIDE: &str = "WORKTREE_TEST_MOUNTS";

/// How a process gets mounts of its own: as root, as an ordinary user where the kernel lets one be root in a namespace,
/// and through sudo where that asks no question. Nobody else sees such mounts, and they end with the process.
const WAYS: [&[&str]; 3] = [
    &["unshare", "--mount"],
    &["unshare", "--user", "--map-root-user", "--mount"],
    &["sudo", "-n", "unshare", "--mount"],
];

/// What such a process is told of the environment, since sudo tells it nothing.
const KEPT: [&str; 4] = ["PATH", "HOME", "TMPDIR", "WORKTREE_TEST_HOSTILE"];

/// Plays a test where it may mount file systems: in a process of its own that runs this test alone. Panics with the
/// reason where this machine lets nobody mount anything.
pub fn with_mounts(module: &str, test: &str, play: impl Future<Output = ()>) {
    if std::env::var_os(INSIDE).is_some() {
        return tokio::runtime::Runtime::new().unwrap().block_on(play);
    }
    let probe = ["mount", "-t", "tmpfs", "tmpfs", "/tmp"];
    let mut refusals = String::new();
    let way = WAYS.into_iter().find(|way| match run(way, &probe) {
        Ok(_) => true,
        Err(refusal) => {
            refusals.push_str(&format!("{}: {refusal}\n", way.join(" ")));
            false
        }
    });
    let way = way.unwrap_or_else(|| {
        panic!(
            "no file system can be mounted here, which this test has to; run it as root, let `sudo -n` work, or allow \
             user namespaces (sysctl kernel.apparmor_restrict_unprivileged_userns=0)\n{refusals}"
        )
    });
    let program = std::env::current_exe().unwrap();
    let (_, module) = module.split_once("::").unwrap();
    let name = format!("{module}::{test}");
    let told = run(way, &[program.to_str().unwrap(), "--exact", &name, "--nocapture"]);
    let told = told.unwrap_or_else(|told| panic!("{name}, {}:\n{told}", way.join(" ")));
    assert!(told.contains("1 passed"), "no test was run: {told}");
}

/// Runs a command in one of the ways; what it wrote, as `Err` when it failed.
fn run(way: &[&str], command: &[&str]) -> Result<String, String> {
    let kept = KEPT.iter().filter_map(|name| std::env::var(name).ok().map(|value| format!("{name}={value}")));
    let output = Command::new(way[0])
        .args(&way[1..])
        .arg("env")
        .args(kept)
        .arg(format!("{INSIDE}=1"))
        .args(command)
        .output()
        .map_err(|error| error.to_string())?;
    let text = [output.stdout, output.stderr].concat();
    let text = String::from_utf8_lossy(&text).trim_end().to_owned();
    if output.status.success() { Ok(text) } else { Err(text) }
}
