//! Makes the data that the binary carries along.

#[path = "build/compress.rs"]
mod compress;
#[path = "build/gpt2.rs"]
mod gpt2;
#[path = "build/pages.rs"]
mod pages;
#[path = "build/webster.rs"]
mod webster;

use std::{env, error::Error, path::PathBuf};

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-changed=build");
    let out = PathBuf::from(env::var("OUT_DIR")?);
    pages::embed(&out)?;
    webster::embed(&out)?;
    gpt2::embed(&out)
}
