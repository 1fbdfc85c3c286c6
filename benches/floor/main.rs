//! What the product costs, each figure against its floor in the same run: git's own commands on the same repository,
//! one echo on a loopback socket, one fsync.
//!
//! ```text
//! cargo bench                       every row: a table, and target/bench/floor.json
//! cargo bench -- create land        the rows whose names begin so
//! cargo bench -- --quick            small repositories, one round: whether everything still runs
//! cargo bench -- --publish          also writes the figures into the README, and docs/speed.svg
//! ```
//!
//! Floor and product alternate, so that both meet the same machine; a ratio is that of the two medians. Whatever is
//! prepared or put away for a round is not timed. A run fails when a measured command fails; a missed target is printed
//! and does not fail it, for no figure of one machine is a test.

#![expect(unreachable_pub, reason = "a program of its own; nothing outside can reach anything")]
#![expect(
    clippy::disallowed_methods,
    reason = "a bench starts real programs and writes files that need survive nothing"
)]
#![expect(clippy::print_stdout, clippy::print_stderr, reason = "a table for people")]

mod measure;
mod place;
mod relay;
mod report;
mod rows;
mod stand;
mod svg;

use std::process::ExitCode;

use anyhow::Context as _;

use self::measure::{Bench, Size};

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> anyhow::Result<()> {
    let mut wanted = Vec::new();
    let (mut size, mut publish) = (Size::full(), false);
    for argument in std::env::args().skip(1) {
        match argument.as_str() {
            // What cargo itself passes.
            "--bench" => {}
            "--quick" => size = Size::quick(),
            "--publish" => publish = true,
            name if !name.starts_with('-') => wanted.push(argument),
            other => anyhow::bail!("unknown option {other}; see the head of benches/floor/main.rs"),
        }
    }
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let mut bench = Bench::new(size, wanted)?;
    runtime.block_on(rows::all(&mut bench)).context("the run ends here")?;
    report::write(&bench, publish)
}
