//! What a run leaves: a table, JSON, and on request the figures and the drawing in the README.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use serde_json::json;

use crate::measure::{Bench, Curve, Row};
use crate::svg;

/// Prints the table and writes the files.
pub fn write(bench: &Bench, publish: bool) -> anyhow::Result<()> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let table = table(&bench.rows)?;
    println!("{table}");
    for curve in &bench.curves {
        println!("{}", slope(curve));
    }
    let machine = machine(bench)?;
    let found = json!({"machine": machine, "rows": bench.rows, "curves": bench.curves});
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), PathBuf::from);
    let place = target.join("bench");
    std::fs::create_dir_all(&place)?;
    std::fs::write(place.join("floor.json"), serde_json::to_string_pretty(&found)? + "\n")?;
    println!("written: {}", place.join("floor.json").display());
    if publish {
        let mut figures = String::new();
        writeln!(figures, "{machine}\n")?;
        writeln!(figures, "{table}")?;
        if !bench.curves.is_empty() {
            writeln!(figures, "![How costs grow](docs/speed.svg)\n")?;
            for curve in &bench.curves {
                writeln!(figures, "- {}", slope(curve))?;
            }
            std::fs::write(root.join("docs/speed.svg"), svg::draw(&bench.curves)?)?;
        }
        publish_in(&root.join("README.md"), &figures)?;
    }
    Ok(())
}

/// Where the figures stand in the README.
const FROM: &str = "<!-- figures of cargo bench -- --publish -->\n";
const TO: &str = "<!-- end of the figures -->\n";

fn publish_in(readme: &Path, figures: &str) -> anyhow::Result<()> {
    let text = std::fs::read_to_string(readme)?;
    let (before, rest) = text.split_once(FROM).context("the README has no place for the figures")?;
    let (_, after) = rest.split_once(TO).context("the figures in the README have no end")?;
    std::fs::write(readme, format!("{before}{FROM}\n{}\n\n{TO}{after}", figures.trim_end()))?;
    Ok(())
}

fn table(rows: &[Row]) -> anyhow::Result<String> {
    let mut table = String::from("| work | floor in the same run | ours | floor | ratio | target | |\n");
    table.push_str("|---|---|--:|--:|--:|--:|---|\n");
    for row in rows {
        let Row { work, floor, unit, .. } = row;
        let verdict = if row.is_met() { "met" } else { "missed" };
        let (ours, value) = (figure(row.ours), figure(row.floor_value));
        writeln!(
            table,
            "| {work} | {floor} | {ours} {unit} | {value} {unit} | {:.2} | {:.2} | {verdict} |",
            row.ratio, row.target
        )?;
    }
    Ok(table)
}

/// With as many digits as mean something.
fn figure(value: f64) -> String {
    match value {
        v if v >= 100.0 => format!("{v:.0}"),
        v if v >= 10.0 => format!("{v:.1}"),
        v => format!("{v:.2}"),
    }
}

fn slope(curve: &Curve) -> String {
    let Curve { work, over, .. } = curve;
    let mut text = format!("{work}: {} ms more for every 1,000 {over}", figure(Curve::slope(&curve.ours)));
    if !curve.floor.is_empty() {
        text.push_str(&format!(" (git alone: {})", figure(Curve::slope(&curve.floor))));
    }
    text
}

/// What the figures were taken on.
fn machine(bench: &Bench) -> anyhow::Result<String> {
    let cores = std::thread::available_parallelism()?;
    let git = std::process::Command::new("git").arg("version").output().context("git")?;
    let git = String::from_utf8(git.stdout)?;
    let place = if bench.place.is_in_memory() { "in memory (tmpfs)" } else { "on disk" };
    Ok(format!("Measured on {cores} cores, {}, {}; repositories {place}.", std::env::consts::OS, git.trim()))
}
