//! Measures what the coordinator costs: relaying tensor frames beside a bare forwarder, memory while a receiver is
//! slow, and memory of idle sessions. One JSON object a line.

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
    forwarder::{FORWARDER, Forwarder},
    frames::SHAPES,
    route::Route,
};

#[tokio::main]
async fn main() -> Result<()> {
    match env::args().nth(1).as_deref() {
        None => measure().await,
        Some(FORWARDER) => forwarder::serve().await,
        Some(other) => bail!("`{other}` is not known: start it without arguments to measure"),
    }
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
    Ok(())
}

fn print(row: &Value) {
    println!("{row}");
}
