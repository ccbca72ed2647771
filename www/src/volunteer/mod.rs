//! The cards of the volunteer's page.

pub mod device;
pub mod join;
pub mod part;
pub mod privacy;
pub mod staying;
pub mod work;
