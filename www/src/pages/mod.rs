//! One page a file.

mod dashboard;
pub mod not_found;
pub mod organizer;
pub mod volunteer;
pub mod watch;
