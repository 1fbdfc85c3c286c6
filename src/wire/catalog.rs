//! The single list of functions: what is registered, documented and compared with the contract.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use schemars::JsonSchema;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::bindings::BindingConfig;
use super::configuration::{self, ConfigEntry};
use super::handler::{self, Answer};
use super::schedule::PruneSchedule;
use crate::land::{land_step, start};
use crate::model::Result;
use crate::model::event::EventKind;
use crate::queue::Dispatcher;
use crate::worktrees::{Context, acting, claim, create, get, list, prune, release, remove, status, validate};

/// What the functions work with.
pub struct Worker {
    /// The use cases' surroundings.
    pub ctx: Arc<Context>,
    /// Who runs land jobs.
    pub dispatcher: Arc<Dispatcher>,
    /// The configuration entry.
    pub config: ConfigEntry,
    /// When the sweep runs.
    pub schedule: PruneSchedule,
}

/// The work of one call.
pub type Work = Pin<Box<dyn Future<Output = Result<Answer>> + Send>>;

/// One function of the bus surface.
pub struct Function {
    /// Its id on the bus.
    pub id: &'static str,
    /// What it is for, what it returns and which refusals to expect, for whoever chooses a call.
    pub description: &'static str,
    /// Whether it is hidden from listings: only the engine calls it.
    pub internal: bool,
    /// Whether it is also bound to `http`, as POST on its id with a slash.
    pub http: bool,
    /// JSON Schema of its request.
    pub request_schema: Value,
    /// JSON Schema of its response.
    pub response_schema: Value,
    /// Runs one call.
    pub call: Arc<dyn Fn(Arc<Worker>, Value) -> Work + Send + Sync>,
}

/// The schema of a type, as the SDK would make it (draft 07).
#[must_use]
pub fn schema<T: JsonSchema>() -> Value {
    let root = schemars::r#gen::SchemaSettings::draft07().into_generator().into_root_schema_for::<T>();
    let mut value = serde_json::to_value(root).unwrap_or_default();
    whole_numbers(&mut value);
    value
}

/// Writes `0.0` as `0`: the schema crate keeps all bounds as floating-point numbers.
fn whole_numbers(value: &mut Value) {
    match value {
        Value::Number(number) => {
            let whole = number.as_f64().filter(|f| number.is_f64() && f.fract() == 0.0 && f.abs() < 1e15);
            if let Some(whole) = whole.and_then(|f| format!("{f:.0}").parse::<i64>().ok()) {
                *value = Value::from(whole);
            }
        }
        Value::Array(items) => items.iter_mut().for_each(whole_numbers),
        Value::Object(fields) => fields.values_mut().for_each(whole_numbers),
        _ => {}
    }
}

fn function<Req, Res, F, Fut>(id: &'static str, description: &'static str, run: F) -> Function
where
    Req: DeserializeOwned + JsonSchema + Send + 'static,
    Res: Serialize + JsonSchema + Send + 'static,
    F: Fn(Arc<Worker>, Req) -> Fut + Clone + Send + Sync + 'static,
    Fut: Future<Output = Result<Res>> + Send,
{
    let call = move |worker: Arc<Worker>, input: Value| -> Work {
        let run = run.clone();
        let actor = handler::actor(&input);
        let work = async move { Ok(Answer::new(run(worker, handler::request(input)?).await?)) };
        Box::pin(acting::on_behalf(actor, work))
    };
    Function {
        id,
        description,
        internal: false,
        http: false,
        request_schema: schema::<Req>(),
        response_schema: schema::<Res>(),
        call: Arc::new(call),
    }
}

impl Function {
    fn internal(self) -> Self {
        Function { internal: true, ..self }
    }

    fn over_http(self) -> Self {
        Function { http: true, ..self }
    }
}

/// All functions, in the order in which a caller meets them.
#[must_use]
pub fn functions() -> Vec<Function> {
    vec![
        function(
            "worktree::create",
            "Creates a git worktree on its own new branch and returns the directory to work in. Start from base_ref \
             (HEAD by default) or from a pull request of origin; pass session_id to claim it at once. All or nothing: \
             after a refusal nothing is left behind. Expect W110 (no repository there), W112 (base_ref names no \
             commit), W120/W121 (branch taken), W503/W504 (not allowed, budget reached).",
            |worker, request| async move { create::run(&worker.ctx, request).await },
        ),
        function(
            "worktree::list",
            "Lists worktrees, oldest first: all, those of one repository (then also the unmanaged ones, which are \
             never touched), or those a session holds. include_status asks git about each; a status that cannot be \
             told is null. Expect W110 for a repo_path outside any repository.",
            |worker, request| async move { list::run(&worker.ctx, request).await },
        )
        .over_http(),
        function(
            "worktree::get",
            "Returns one worktree with its record and its status. Expect W200 when there is none of that id.",
            |worker, request| async move { get::run(&worker.ctx, request).await },
        )
        .over_http(),
        function(
            "worktree::validate",
            "Tells whether a path lies in a usable git worktree, and whether this worker created it. A managed \
             worktree whose directory is gone becomes orphaned. Expect W111 for a relative path.",
            |worker, request| async move { validate::run(&worker.ctx, request).await },
        )
        .over_http(),
        function(
            "worktree::claim",
            "Takes a worktree for a session; repeating it is harmless. Expect W210 naming the session that holds it; \
             force takes it over and returns previous_session_id, where gates.allow_force is set (else W501).",
            |worker, request| async move { claim::run(&worker.ctx, request).await },
        ),
        function(
            "worktree::release",
            "Gives a worktree back; its files and its branch stay. Expect W211 when the session does not hold it.",
            |worker, request| async move { release::run(&worker.ctx, request).await },
        ),
        function(
            "worktree::status",
            "Tells what git says about one worktree: changes, commits ahead and behind, whether a rebase is open, \
             and whether its work has already reached the target. Expect W200, W201 (directory gone) and W202 \
             (something else lies there).",
            |worker, request| async move { status::run(&worker.ctx, request).await },
        )
        .over_http(),
        function(
            "worktree::remove",
            "Removes a worktree that holds nothing unsaved; with delete_branch also its branch, once it has landed. \
             Expect W220 (uncommitted files, with counts), W221 (commits not landed), W222 (processes at work in it), \
             W401 (being landed) and W500/W501 (switched off). force overrides W220 to W222.",
            |worker, request| async move { remove::run(&worker.ctx, request).await },
        ),
        function(
            "worktree::prune",
            "Removes worktrees that are finished: unclaimed, idle for prune_expire_hours, clean, quiet, and with \
             nothing that their target lacks. Returns what went and why the rest stays; dry_run only tells. Expect \
             W500 when pruning is switched off.",
            |worker, request| async move {
                worker.dispatcher.redrive(&worker.ctx);
                prune::run(&worker.ctx, request).await
            },
        ),
        function(
            "worktree::land",
            "Lands the branch of a worktree on target_branch: rebased, tested by test_cmd at the rebased commit, \
             fast-forwarded by compare-and-swap, cleaned up (unless keep). Answers at once with a job_id; \
             worktree::landed or worktree::land-blocked tells how it ended. Commit everything first. Expect W112 \
             (no such target), W401 (already landing), W402/W403 (an operation is open), W500/W502 (not allowed).",
            |worker, request| async move { start::run(&worker.ctx, &worker.dispatcher, request).await },
        ),
        function(
            "worktree::land-step",
            "Runs one land job to its end. The queue calls it; calling it again is harmless.",
            |worker, request| async move { land_step::run(&worker.ctx, &worker.dispatcher, request).await },
        )
        .internal(),
        function(
            "worktree::on-config-change",
            "Reads the stored configuration again and applies it; an invalid one leaves the previous in force.",
            |worker, request| async move { configuration::on_change(&worker, request).await },
        )
        .internal(),
    ]
}

/// What a trigger type is for, with the fields that its events carry.
#[must_use]
pub fn trigger_description(kind: EventKind) -> &'static str {
    match kind {
        EventKind::Created => {
            "A worktree was created. Carries worktree_id, repo_path, path, branch, base_ref, base_sha, session_id when \
             it was claimed at once, timestamp (ms)."
        }
        EventKind::Claimed => {
            "A session took a worktree. Carries worktree_id, repo_path, session_id, previous_session_id when it was \
             taken by force, timestamp (ms)."
        }
        EventKind::Released => {
            "A session gave a worktree back. Carries worktree_id, repo_path, session_id, previous_session_id when \
             another session held it, timestamp (ms)."
        }
        EventKind::Removed => {
            "A worktree was removed. Carries worktree_id, repo_path, path, branch, branch_deleted, forced, session_id \
             when one held it, timestamp (ms)."
        }
        EventKind::Landed => {
            "A branch landed. Carries worktree_id, repo_path, branch, target_branch, merged_sha, gated (false: no \
             test_cmd was given), kept_reason when the worktree was kept although nobody asked for it, session_id \
             when one held it, timestamp (ms)."
        }
        EventKind::LandBlocked => {
            "A land was stopped and waits for its owner; nothing was landed. Carries worktree_id, repo_path, \
             target_branch, reason, code, message (what to do), conflict_files, exit_code and output_tail where they \
             apply, session_id when one held it, timestamp (ms)."
        }
    }
}

/// The schema of what a binding may filter on.
#[must_use]
pub fn binding_schema() -> Value {
    schema::<BindingConfig>()
}
