//! What goes on while one waits: a moving line on a terminal, plain lines elsewhere, nothing for programs.

use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};

use super::output;

/// The line. It goes away when it is dropped.
pub(super) struct Progress {
    bar: Option<ProgressBar>,
    /// What was said last in plain lines.
    said: Option<String>,
    silent: bool,
}

impl Progress {
    /// Nothing is said yet. With `silent`, nothing ever is.
    pub(super) fn new(silent: bool) -> Self {
        Progress { bar: None, said: None, silent }
    }

    /// What goes on now. Saying the same again changes nothing.
    pub(super) fn say(&mut self, text: &str) {
        if self.silent || self.said.as_deref() == Some(text) {
            return;
        }
        self.said = Some(text.to_owned());
        if !output::errors_are_seen() {
            output::complain(text);
            return;
        }
        let bar = self.bar.get_or_insert_with(|| {
            let bar = ProgressBar::new_spinner();
            if let Ok(style) = ProgressStyle::with_template("{spinner} {msg} ({elapsed})") {
                bar.set_style(style);
            }
            bar.enable_steady_tick(Duration::from_millis(120));
            bar
        });
        bar.set_message(text.to_owned());
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}
