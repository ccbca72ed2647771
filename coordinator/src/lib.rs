//! The coordinator: the program `cohort`.
//!
//! ```text
//! commands/   one file a command; serve/ starts a coordinator
//! server/     what answers on the network: sessions, blobs, the API of the pages
//! runtime/    the one interpreter of a run's actions, with the IO of each mode
//! config/     run.toml                       data/     from a corpus to batches of tokens
//! storage/    what a run keeps on disk       pages/    the pages inside the program
//! model_folder/   a model in a folder: ours, transformers', GGUF
//! run_folder.rs   how a folder of a run is recognised   address.rs   whose address a request comes from
//! serving/    texts for whoever asks     tls/      certificates
//! ```
//!
//! What is decided is decided in `control`; here it is carried out. The library has what tests and benches drive from
//! outside.

#![deny(missing_docs, unreachable_pub)]

mod address;
pub mod commands;
pub mod config;
pub mod data;
mod model_folder;
pub mod pages;
mod run_folder;
mod runtime;
mod server;
mod serving;
mod storage;
pub mod tls;

pub use runtime::Ending;
pub use server::ranges;
