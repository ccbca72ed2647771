//! Measures what the coordinator costs: relaying tensor frames beside a bare forwarder, memory while a receiver is
//! slow, memory of idle sessions, and what floods change of it. One JSON object a line.

mod attacker;
mod floods;
mod forwarder;
mod frames;
mod idle;
mod numbers;
mod peer;
mod route;
mod slow;
mod traffic;

use std::env;

use anyhow::{Result, bail};
use serde_json::Value;
use tests::{Coordinator, resources};

use crate::{
    attacker::ATTACKER,
    forwarder::{FORWARDER, Forwarder},
    frames::SHAPES,
    route::Route,
};

#[tokio::main]
async fn main() -> Result<()> {
    let arguments: Vec<String> = env::args().skip(1).collect();
    match arguments.first().map(String::as_str) {
        None => measure().await,
        Some(FLOODS) => measure_floods(arguments.get(1).map(String::as_str)).await,
        Some(ATTACKER) => attacker::attack(&arguments[1..]).await,
        Some(FORWARDER) => forwarder::serve().await,
        Some(other) => bail!("`{other}` is not known: start it without arguments to measure"),
    }
}

/// The argument with which only floods are measured, and with another only the one so called.
const FLOODS: &str = "floods";

async fn measure_floods(only: Option<&str>) -> Result<()> {
    resources::ensure_files(idle::FILES)?;
    floods::measure(&SHAPES[0], only).await?.iter().for_each(print);
    Ok(())
}

async fn measure() -> Result<()> {
    resources::ensure_files(idle::FILES)?;
    for shape in &SHAPES {
        let coordinator = Coordinator::start(&shape.toml(), &[]).await?;
        let forwarder = Forwarder::start().await?;
        let mut ours = Route::through_coordinator(&coordinator, shape).await?;
        // First, while its memory is still that of a coordinator that has relayed nothing.
        if shape.shows_back_pressure {
            print(&slow::measure(&mut ours, shape).await?);
        }
        let bare = Route::through_forwarder(&forwarder, shape).await?;
        traffic::compare(ours, bare, shape).await?.iter().for_each(print);
    }
    print(&idle::measure().await?);
    measure_floods(None).await
}

fn print(row: &Value) {
    println!("{row}");
}
