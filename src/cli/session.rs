//! One command of an operator from its words to its exit code.

use clap::Args;
use serde_json::Value;
use tokio::sync::OnceCell;

use super::interrupt::Interrupts;
use super::link::{CHANGE_LIMIT, Link};
use super::place::{Place, Reach};
use super::trouble::{Outcome, Trouble};
use super::{Exit, output};

/// What every command of an operator takes.
#[derive(Debug, Clone, Args)]
#[group(skip)]
pub(super) struct Common {
    #[command(flatten)]
    pub(super) reach: Reach,
    /// Print JSON, and failures as {"code", "message"} on standard error
    #[arg(long)]
    pub(super) json: bool,
}

/// What a command works with. The connection is made when it is first asked for.
pub(super) struct Session {
    name: &'static str,
    place: Place,
    link: OnceCell<Link>,
    /// Whether programs read the output.
    pub(super) json: bool,
    /// The signals that ask it to stop.
    pub(super) interrupts: Interrupts,
}

impl Session {
    fn new(name: &'static str, common: Common, before: Reach) -> Outcome<Self> {
        let place = common.reach.resolve(before)?;
        let interrupts = Interrupts::listen()?;
        Ok(Session { name, place, link: OnceCell::new(), json: common.json, interrupts })
    }

    /// The connection to the engine.
    ///
    /// # Errors
    /// When there is none to be had.
    pub(super) async fn link(&self) -> Outcome<&Link> {
        self.link.get_or_try_init(|| Link::open(&self.place)).await
    }

    /// A call that changes something. A signal does not end the command before it is answered.
    ///
    /// # Errors
    /// What the function or the engine refuses.
    pub(super) async fn change(&self, function_id: &str, payload: Value) -> Outcome<Value> {
        let link = self.link().await?;
        let _held = self.interrupts.change();
        link.call(function_id, payload, CHANGE_LIMIT).await
    }

    /// Prints a result: the value for programs, else the words.
    ///
    /// # Errors
    /// When standard output is closed.
    pub(super) fn print(&self, value: &Value, words: impl FnOnce() -> String) -> Outcome<()> {
        if self.json {
            output::json(value)?;
        } else {
            let words = words();
            if !words.is_empty() {
                output::line(words.trim_end_matches('\n'))?;
            }
        }
        Ok(())
    }

    async fn end(self, outcome: Option<Outcome>) -> Exit {
        let outcome = outcome.unwrap_or(Err(Trouble::Interrupted));
        let closed = match self.link.into_inner() {
            Some(link) => link.close().await,
            None => Ok(()),
        };
        let exit = outcome.unwrap_or_else(|trouble| {
            trouble.tell(self.name, self.json);
            trouble.exit()
        });
        match closed {
            Ok(()) => exit,
            Err(error) => {
                Trouble::Failed(error).tell(self.name, self.json);
                if exit == Exit::Success { Exit::Failure } else { exit }
            }
        }
    }
}

/// Runs a command to its end, or to the signal that ends it.
pub(super) async fn attend<A>(
    name: &'static str,
    common: Common,
    before: Reach,
    run: impl AsyncFn(A, &Session) -> Outcome,
    arguments: A,
) -> Exit {
    let as_json = common.json;
    let session = match Session::new(name, common, before) {
        Ok(session) => session,
        Err(trouble) => {
            trouble.tell(name, as_json);
            return trouble.exit();
        }
    };
    let interrupts = session.interrupts.clone();
    let outcome = interrupts.watch_over(Box::pin(run(arguments, &session))).await;
    session.end(outcome).await
}
