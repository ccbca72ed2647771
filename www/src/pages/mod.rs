//! One page a file.

mod dashboard;
pub(crate) mod not_found;
pub(crate) mod organizer;
pub(crate) mod playground;
pub(crate) mod volunteer;
pub(crate) mod watch;
