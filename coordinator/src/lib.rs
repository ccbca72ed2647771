//! The coordinator: decides who holds what, relays tensors between workers, keeps snapshots, serves the pages.
//!
//! Decisions live in [`run`] and [`plan`], which know no clock, socket or disk; [`shell`] does the IO.

pub mod block_mode;
pub mod config;
pub mod data;
pub mod evaluate;
pub mod generate;
pub mod mode;
pub mod pages;
pub mod plan;
pub mod predict;
pub mod recheck;
pub mod reference;
pub mod reproduce;
pub mod rounds;
pub mod run;
pub mod serve;
pub mod shell;
pub mod simulate;
pub mod storage;
mod token;
