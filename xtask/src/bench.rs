//! `cargo xtask bench`: measures, keeps the numbers as JSON and prints them as a table.

use std::{
    fs,
    process::{Command, Stdio},
};

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use crate::{process, run, setup, workspace::Workspace};

/// A model whose training step is timed. The vocabulary is [`VOCABULARY`], the batch [`SEQUENCES`].
pub struct Shape {
    pub name: &'static str,
    pub layers: u32,
    pub width: u32,
    pub heads: u32,
    pub context: u32,
}

pub const SHAPES: [Shape; 3] = [
    Shape { name: "nano", layers: 3, width: 48, heads: 3, context: 64 },
    Shape { name: "micro", layers: 4, width: 128, heads: 4, context: 128 },
    Shape { name: "d256", layers: 4, width: 256, heads: 4, context: 128 },
];
/// CPU paths of the native engine, and their names in the table: our own kernels, and what they must beat.
const NATIVE: [(&str, &str); 2] = [("cpu", "cpu"), ("flex", "cpu, burn flex")];
/// What times transformers.
const TRANSFORMERS: &str = "tests/reference/decode_speed.py";
pub const VOCABULARY: u32 = 256;
pub const SEQUENCES: u32 = 8;
/// The field of a row that says how long a tab took from opening the page to its first accepted micro-batch.
pub const JOINED: &str = "seconds_to_first_micro_batch";

/// How full the pipe is with unequal workers over slow links: ours, the planner's optimum, and an even split.
pub fn pipeline(workspace: &Workspace) -> Result<()> {
    let rows = program(workspace, "bench_pipeline")?;
    println!("| split | layers | step | efficiency | optimum of the same plan |");
    println!("|---|---|---:|---:|---:|");
    for row in &rows {
        let number = |name: &str| row[name].as_f64();
        let percent =
            |share: Option<f64>| share.map_or("-".into(), |share| format!("{:.1} %", 100.0 * share));
        println!(
            "| {} | {} | {:.2} s | {} | {} |",
            row["split"].as_str().unwrap_or("?"),
            row["layers"],
            number("median_step_seconds").unwrap_or(f64::NAN),
            percent(number("efficiency")),
            percent(number("optimum_efficiency")),
        );
    }
    keep(workspace, "pipeline", rows)
}

/// The coordinator's relay beside a bare forwarder, with a slow receiver, and with many idle sessions.
pub fn relay(workspace: &Workspace) -> Result<()> {
    let rows = program(workspace, "bench_relay")?;
    for row in &rows {
        println!("{row}");
    }
    keep(workspace, "relay", rows)
}

/// Texts of one process with GPT-2's shapes and random weights, one and eight at a time; beside the limit of reading all
/// weights once a traversal, and beside transformers where COHORT_PYTHON names a Python that has it.
pub fn serving(workspace: &Workspace) -> Result<()> {
    let mut command = workspace.cargo();
    command.args(["run", "-p", "engine", "--example", "bench_decode"]);
    let mut rows = measure(&mut command)?;
    if let Some(python) = std::env::var_os("COHORT_PYTHON") {
        rows.extend(measure(Command::new(python).arg(workspace.root.join(TRANSFORMERS)))?);
    }
    println!("{}", texts_table(&rows));
    let over_links = program(workspace, "bench_texts")?;
    println!("{}", links_table(&over_links));
    rows.extend(over_links);
    keep(workspace, "serving", rows)
}

fn links_table(rows: &[Value]) -> String {
    let mut lines = vec![
        "| there and back | text | texts at a time | drafts | tokens/s | first token | traversals | bytes a token |"
            .to_owned(),
        "|---:|---|---:|---:|---:|---:|---:|---:|".to_owned(),
    ];
    let number = |row: &Value, name: &str| row[name].as_f64().unwrap_or(f64::NAN);
    for row in rows.iter().filter(|row| row["what"] == "texts over links") {
        lines.push(format!(
            "| {:.0} ms | {} | {} | {} | {:.1} | {:.2} s | {} | {:.0} |",
            1e3 * number(row, "round_trip_seconds"),
            row["text"].as_str().unwrap_or("?"),
            row["texts"],
            row["drafts"],
            number(row, "tokens_per_second"),
            number(row, "seconds_to_first_token"),
            row["traversals"],
            number(row, "bytes_per_token"),
        ));
    }
    lines.extend(rows.iter().filter(|row| row["what"] != "texts over links").map(Value::to_string));
    lines.join("\n")
}

fn texts_table(rows: &[Value]) -> String {
    let mut lines = vec![
        "| program | texts at a time | tokens/s | first token | of the memory's bandwidth |".to_owned(),
        "|---|---:|---:|---:|---:|".to_owned(),
    ];
    lines.extend(rows.iter().map(|row| {
        let number = |name: &str| row[name].as_f64().unwrap_or(f64::NAN);
        let share = row["share_of_bandwidth"].as_f64();
        format!(
            "| {} | {} | {:.1} | {:.2} s | {} |",
            row["program"].as_str().unwrap_or("cohort"),
            row["texts"],
            number("tokens_per_second"),
            number("seconds_to_first_token"),
            share.map_or("-".to_owned(), |share| format!("{:.0} %", 100.0 * share)),
        )
    }));
    lines.join("\n")
}

/// Runs a program of the package `tests` that measures the coordinator.
fn program(workspace: &Workspace, name: &str) -> Result<Vec<Value>> {
    setup::for_building(workspace)?;
    run::build(workspace)?;
    let mut command = workspace.cargo();
    // As optimized as the coordinator it is compared with; tests are not.
    let optimized = ["--config", "profile.dev.package.tests.opt-level=3"];
    measure(command.args(optimized).args(["run", "--bin", name]).env("COHORT_BIN", workspace.cohort()))
}

fn keep(workspace: &Workspace, name: &str, rows: Vec<Value>) -> Result<()> {
    let folder = workspace.target.join("bench");
    let file = folder.join(format!("{name}.json"));
    fs::create_dir_all(&folder)
        .and_then(|()| fs::write(&file, format!("{:#}\n", Value::from(rows))))
        .with_context(|| format!("cannot write {}", file.display()))?;
    println!("written to {}", file.display());
    Ok(())
}

/// Tokens per second of one full training step, natively and in Chromium, from the median of several steps.
pub fn engine(workspace: &Workspace) -> Result<()> {
    setup::for_building(workspace)?;
    let browser = setup::browser(workspace)?;
    run::build(workspace)?;

    let mut rows = Vec::new();
    for shape in &SHAPES {
        for (device, backend) in NATIVE {
            let mut command = workspace.cargo();
            command.args(["run", "--example", "bench_step", "--", "--device", device]).args(arguments(shape));
            rows.extend(measure(&mut command)?.into_iter().map(|row| native(shape, backend, row)));
        }
    }
    let mut command = workspace.cargo();
    command
        .args(["run", "--bin", "bench_tab"])
        .env("COHORT_BIN", workspace.cohort())
        .env("CHROME", &browser.chromium)
        .env("CHROMEDRIVER", &browser.driver);
    rows.extend(measure(&mut command)?);

    let (joins, steps): (Vec<Value>, Vec<Value>) =
        rows.iter().cloned().partition(|row| !row[JOINED].is_null());
    println!("{}", table(&steps));
    for join in joins {
        println!(
            "from opening the page to the first accepted micro-batch: {:.2} s",
            join[JOINED].as_f64().unwrap_or(f64::NAN)
        );
    }
    keep(workspace, "engine", rows)
}

/// For `engine/examples/bench_step.rs`.
fn arguments(shape: &Shape) -> Vec<String> {
    [
        ("--layers", shape.layers),
        ("--widths", shape.width),
        ("--heads", shape.heads),
        ("--context", shape.context),
        ("--vocabulary", VOCABULARY),
        ("--sequences", SEQUENCES),
    ]
    .into_iter()
    .flat_map(|(name, value)| [name.to_owned(), value.to_string()])
    .collect()
}

/// A line of `bench_step` in the words of the table.
fn native(shape: &Shape, backend: &str, mut row: Value) -> Value {
    row["shape"] = json!(shape.name);
    row["where"] = json!("native");
    row["backend"] = json!(backend);
    row
}

/// Runs a program that prints one JSON object a line.
fn measure(command: &mut Command) -> Result<Vec<Value>> {
    let words = process::words(command);
    eprintln!("$ {words}");
    let output = command.stderr(Stdio::inherit()).output();
    let output = output.with_context(|| format!("cannot start `{words}`"))?;
    ensure!(output.status.success(), "`{words}` failed");
    let rows = rows(&String::from_utf8_lossy(&output.stdout))?;
    ensure!(!rows.is_empty(), "`{words}` printed no numbers");
    Ok(rows)
}

fn rows(text: &str) -> Result<Vec<Value>> {
    text.lines()
        .filter(|line| line.starts_with('{'))
        .map(|line| serde_json::from_str(line).with_context(|| format!("not JSON: {line}")))
        .collect()
}

fn table(rows: &[Value]) -> String {
    let text = |row: &Value, name: &str| row[name].as_str().unwrap_or("?").to_owned();
    let number = |row: &Value, name: &str| row[name].as_f64().unwrap_or(f64::NAN);
    let mut lines = vec![
        "| shape | where | backend | tokens/s | median step |".to_owned(),
        "|---|---|---|---:|---:|".to_owned(),
    ];
    lines.extend(rows.iter().map(|row| {
        let [shape, place, backend] = ["shape", "where", "backend"].map(|name| text(row, name));
        let [rate, step] = ["tokens_per_second", "median_seconds"].map(|name| number(row, name));
        format!("| {shape} | {place} | {backend} | {rate:.0} | {step:.3} s |")
    }));
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_become_a_table() {
        let printed = "{\"texts\":8,\"tokens_per_second\":164.4,\"seconds_to_first_token\":0.7,\"share_of_bandwidth\":0.328}\n\
                       {\"program\":\"transformers 5\",\"texts\":1,\"tokens_per_second\":30,\"seconds_to_first_token\":0.14}\n";
        let table = texts_table(&rows(printed).unwrap());
        assert!(table.contains("| cohort | 8 | 164.4 | 0.70 s | 33 % |"), "{table}");
        assert!(table.ends_with("| transformers 5 | 1 | 30.0 | 0.14 s | - |"), "{table}");
    }

    #[test]
    fn lines_become_a_table() {
        let printed = "warming up\n{\"tokens_per_second\":1234.5,\"median_seconds\":0.25}\n";
        let rows: Vec<_> =
            rows(printed).unwrap().into_iter().map(|row| native(&SHAPES[0], "cpu", row)).collect();
        let table = table(&rows);
        assert!(table.ends_with("| nano | native | cpu | 1234 | 0.250 s |"), "{table}");
    }
}
