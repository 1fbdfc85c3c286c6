//! One line of the table.

use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use crate::cli::table::{self, Column, column};
use crate::cli::terminal::{Style, paint};
use crate::cli::words;
use crate::model::clock::{Clock as _, SystemClock};
use crate::model::record::Lifecycle;
use crate::model::status::{WorktreeInfo, WorktreeStatus};
use crate::worktrees::open_files::{self, Holder};
use crate::worktrees::states::Seen;

const COLUMNS: [Column; 14] = [
    column("ID"),
    column("BRANCH").cut(),
    column("STATE"),
    column("CLAIM").optional(3).cut(),
    column("±TARGET").optional(1),
    column("CHANGES").optional(1),
    column("DIFF").optional(6),
    column("AGE").optional(5),
    column("PORT").optional(8),
    column("SIZE").optional(2),
    column("SEEN AS").optional(2),
    column("REAPABLE").optional(2).cut(),
    column("PROCESSES").optional(2).cut(),
    column("REPOSITORY").optional(7).cut(),
];

/// What git says of a row.
enum Told {
    Pending,
    Unknown,
    Status(Box<WorktreeStatus>),
}

/// One worktree.
pub(super) struct Row {
    info: Option<WorktreeInfo>,
    /// What a row without a record shows: id, branch or path, and state.
    bare: [String; 3],
    told: Told,
    processes: Option<Vec<Holder>>,
    /// Size, operator's state, whether it could go.
    extras: [String; 3],
}

/// The processes that work below a directory of this machine, in the order of their numbers.
async fn probe(path: String) -> Vec<Holder> {
    let found = tokio::task::spawn_blocking(move || open_files::probe(Path::new(&path))).await;
    // Where nothing can be told nothing is shown: this is for eyes, not for a decision.
    found.ok().and_then(Result::ok).unwrap_or_default()
}

/// The same for programs.
pub(super) async fn processes(path: String) -> Value {
    probe(path).await.into_iter().map(|holder| json!({"pid": holder.pid, "name": holder.name})).collect()
}

impl Row {
    /// A worktree of the worker. With `asked`, a missing status is one that cannot be told.
    pub(super) fn managed(info: WorktreeInfo, asked: bool, extras: [String; 3]) -> Self {
        let told = match info.status.clone() {
            Some(status) => Told::Status(Box::new(status)),
            None if asked || info.lifecycle == Lifecycle::Orphaned => Told::Unknown,
            None => Told::Pending,
        };
        Row { info: Some(info), bare: Default::default(), told, processes: None, extras }
    }

    fn bare(bare: [String; 3]) -> Self {
        Row { info: None, bare, told: Told::Unknown, processes: None, extras: Default::default() }
    }

    /// Another worktree of the repository.
    pub(super) fn unmanaged(value: &Value) -> Self {
        let text = |key: &str| value[key].as_str().map(str::to_owned);
        let name = text("branch").or_else(|| text("path")).unwrap_or_default();
        Row::bare([String::new(), name, "unmanaged".to_owned()])
    }

    /// Something below the worktree root that has no record.
    pub(super) fn unrecorded(seen: &Seen) -> Self {
        Row::bare([seen.worktree_id.clone(), seen.path.clone(), seen.state.as_str().to_owned()])
    }

    /// Its id, when its status has still to be asked for.
    pub(super) fn pending(&self) -> Option<String> {
        let pending = matches!(self.told, Told::Pending);
        self.info.as_ref().filter(|_| pending).map(|info| info.worktree_id.clone())
    }

    /// What came of asking.
    pub(super) fn tell(&mut self, status: Option<WorktreeStatus>) {
        self.told = status.map_or(Told::Unknown, |status| Told::Status(Box::new(status)));
    }

    /// Looks who works in it.
    pub(super) async fn look_at_processes(&mut self) {
        if let Some(info) = &self.info {
            self.processes = Some(probe(info.path.clone()).await);
        }
    }

    fn cells(&self, now: i64, several: bool) -> Vec<String> {
        let Some(info) = &self.info else {
            let mut cells = vec![String::new(); COLUMNS.len()];
            for (cell, text) in cells.iter_mut().zip(&self.bare) {
                *cell = paint(Style::Dim, text);
            }
            return cells;
        };
        let [target, changes, diff] = self.told_cells();
        let [size, seen_as, reapable] = &self.extras;
        let processes = self.processes.as_ref().map(|holders| open_files::describe(holders)).unwrap_or_default();
        let repository = PathBuf::from(&info.repo_path);
        let repository = repository.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        vec![
            info.worktree_id.clone(),
            info.branch.clone(),
            state(info.lifecycle),
            info.session_id.clone().unwrap_or_default(),
            target,
            changes,
            diff,
            words::age(info.created_at, now),
            info.dev_port.to_string(),
            size.clone(),
            seen_as.clone(),
            reapable.clone(),
            processes,
            if several { repository } else { String::new() },
        ]
    }

    fn told_cells(&self) -> [String; 3] {
        match &self.told {
            Told::Pending => ["…", "…", "…"].map(|text| paint(Style::Dim, text)),
            Told::Unknown => ["?", "?", ""].map(str::to_owned),
            Told::Status(status) => {
                let target = match (status.ahead, status.behind) {
                    _ if status.integrated && status.ahead > 0 => paint(Style::Green, "landed"),
                    (0, 0) => "=".to_owned(),
                    (ahead, 0) => format!("+{ahead}"),
                    (0, behind) => format!("-{behind}"),
                    (ahead, behind) => format!("+{ahead} -{behind}"),
                };
                [target, changes(status), words::diffstat(&status.diffstat)]
            }
        }
    }
}

fn state(lifecycle: Lifecycle) -> String {
    let style = match lifecycle {
        Lifecycle::Active => return lifecycle.as_str().to_owned(),
        Lifecycle::Claimed => Style::Cyan,
        Lifecycle::Landing => Style::Green,
        Lifecycle::LandBlocked => Style::Red,
        Lifecycle::Orphaned => Style::Yellow,
    };
    paint(style, lifecycle.as_str())
}

fn changes(status: &WorktreeStatus) -> String {
    let kinds = [("!", status.conflicted), ("+", status.staged), ("~", status.unstaged), ("?", status.untracked)];
    let mut told: Vec<String> =
        kinds.iter().filter(|(_, count)| *count > 0).map(|(mark, count)| format!("{mark}{count}")).collect();
    if status.in_rebase {
        told.push("rebase".to_owned());
    }
    if told.is_empty() { "clean".to_owned() } else { paint(Style::Yellow, &told.join(" ")) }
}

/// The table; nothing for no rows.
pub(super) fn render(rows: &[Row]) -> String {
    if rows.is_empty() {
        return String::new();
    }
    let now = SystemClock.now_ms();
    let mut repositories: Vec<&str> =
        rows.iter().filter_map(|row| Some(row.info.as_ref()?.repo_key.as_str())).collect();
    repositories.sort_unstable();
    repositories.dedup();
    let cells: Vec<Vec<String>> = rows.iter().map(|row| row.cells(now, repositories.len() > 1)).collect();
    table::render(&COLUMNS, &cells)
}
