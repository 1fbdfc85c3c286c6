//! How the tour speaks: short lines, in colour only where colour is welcome.

use serde_json::Value;

use crate::cli::output;
use crate::cli::words::short;

/// Prints the tour.
pub(super) struct Voice {
    colour: bool,
}

impl Voice {
    pub(super) fn new() -> Self {
        Self { colour: output::takes_colour() }
    }

    /// A heading: what comes next.
    pub(super) fn chapter(&self, text: &str) -> std::io::Result<()> {
        output::line("")?;
        output::line(&self.paint("1", text))
    }

    /// Something that was done or seen, and was checked.
    pub(super) fn say(&self, who: &str, text: &str) -> std::io::Result<()> {
        output::line(&format!("  {} {text}", self.paint("36", &format!("{who:<7}"))))
    }

    /// An event, as it came over the bus.
    pub(super) fn event(&self, kind: &str, event: &Value) -> std::io::Result<()> {
        let mut told = Vec::new();
        for key in
            ["branch", "target_branch", "merged_sha", "code", "reason", "conflict_files", "exit_code", "session_id"]
        {
            match event.get(key) {
                None | Some(Value::Null) => {}
                Some(Value::String(text)) if key == "merged_sha" => told.push(format!("{key}={}", short(text))),
                Some(Value::String(text)) => told.push(format!("{key}={text}")),
                Some(other) => told.push(format!("{key}={other}")),
            }
        }
        output::line(&self.paint("2", &format!("  event   {kind}  {}", told.join(" "))))
    }

    /// A line of some program's own output.
    pub(super) fn quote(&self, text: &str) -> std::io::Result<()> {
        output::line(&self.paint("2", &format!("          {text}")))
    }

    fn paint(&self, style: &str, text: &str) -> String {
        if self.colour { format!("\u{1b}[{style}m{text}\u{1b}[0m") } else { text.to_owned() }
    }
}
