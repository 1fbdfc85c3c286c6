//! A test gate that says when it has started, and waits until it is told how to end.

use std::path::PathBuf;

use super::{Seal, until};

/// Where each run writes a line: the directory it runs in, and the commit it finds there.
const RUNS: &str = "runs";
/// What lets it end: a file with its exit code.
const VERDICT: &str = "verdict";

/// It ends by itself after a minute, so that one whose starter was killed does not stay for ever.
const SCRIPT: &str = "\
here=${0%/*}
echo \"$(pwd -P) $(git rev-parse HEAD)\" >> \"$here/runs\"
turns=0
while [ ! -e \"$here/verdict\" ]; do
    turns=$((turns + 1))
    [ $turns -gt 1200 ] && exit 99
    sleep 0.05
done
exit \"$(cat \"$here/verdict\")\"
";

pub struct Gate {
    directory: PathBuf,
}

impl Gate {
    pub fn new(seal: &Seal, name: &str) -> Self {
        let directory = seal.path().join(format!("gate-{name}"));
        std::fs::create_dir(&directory).unwrap();
        std::fs::write(directory.join("gate.sh"), SCRIPT).unwrap();
        Self { directory }
    }

    /// What goes into `test_cmd`.
    pub fn command(&self) -> String {
        format!("sh {}", self.directory.join("gate.sh").display())
    }

    /// The directory and the commit of each run so far.
    pub fn runs(&self) -> Vec<(PathBuf, String)> {
        let text = std::fs::read_to_string(self.directory.join(RUNS)).unwrap_or_default();
        text.lines()
            .filter_map(|line| line.rsplit_once(' '))
            .map(|(place, commit)| (PathBuf::from(place), commit.to_owned()))
            .collect()
    }

    /// Waits until it runs, and tells where and on which commit.
    pub async fn started(&self) -> (PathBuf, String) {
        until("the start of the gate", || async { self.runs().pop() }).await
    }

    /// Lets it end, now and in all later runs, with this exit code.
    pub fn end(&self, exit_code: u8) {
        let draft = self.directory.join("draft");
        std::fs::write(&draft, exit_code.to_string()).unwrap();
        std::fs::rename(draft, self.directory.join(VERDICT)).unwrap();
    }
}
