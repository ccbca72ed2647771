//! What is said differently in the modes: one trait, with an implementation for each in `block_mode`,
//! `pipeline` and `serve_mode`. `modes` chooses between them.

use protocol::{
    spec::Hop,
    view::{RunView, WorkerView},
};

use super::Words;
use crate::state::{activity::Status, session::Session};

/// A column of numbers in the table of devices.
#[derive(Clone, Copy)]
pub(crate) struct Column {
    pub(crate) name: &'static str,
    pub(crate) read: fn(&WorkerView) -> String,
}

/// The words of a mode.
pub(crate) trait ModeText: Sync {
    /// What the run is, for someone who has never seen it.
    fn about(&self, run: &RunView) -> String;

    /// What the numbers of the curve mean, and how much text there is.
    fn task(&self, run: &RunView) -> String;

    /// What a device in the run is doing, for the card, the tab's title and the table.
    fn status(&self, status: Status) -> Words;

    /// What this device does beside its status, with numbers that change often.
    fn now(&self, session: &Session, run: Option<&RunView>) -> Option<String>;

    /// How far this device is, for the tab's title: "round 12".
    fn own_progress(&self, session: &Session) -> Option<String>;

    /// How far the run is, for the tab's title: "step 120".
    fn progress(&self, run: &RunView) -> String;

    /// Name of the column that says what a device holds.
    fn part(&self) -> &'static str;

    /// What a device holds.
    fn held(&self, worker: &WorkerView, run: &RunView) -> String;

    /// The columns of numbers in the table of devices.
    fn columns(&self) -> [Column; 4];

    /// What happens when a device is removed.
    fn removal(&self) -> &'static str;

    /// What happens when a device leaves for a while.
    fn absence(&self) -> &'static str;

    /// The numbers that leave a device.
    fn numbers_sent(&self) -> &'static str;

    /// Where the text to learn from goes.
    fn text_received(&self) -> &'static str;

    /// What a device with these parts sends to others.
    fn sends(&self, hops: &[Hop]) -> &'static str;

    /// In which order the devices compute.
    fn order(&self) -> &'static str;
}
