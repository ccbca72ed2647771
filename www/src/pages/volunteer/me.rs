//! This tab's device, as every card of the page sees it.

use leptos::prelude::*;
use protocol::view::WorkerView;

use crate::{
    browser::{live::Live, tab::Tab, title},
    state::{
        activity::{Activity, of_session},
        mode::Mode,
        tally::Tally,
    },
    text::{
        Words,
        activity::{tab_title, words},
    },
};

/// What the page knows of its own device.
#[derive(Clone, Copy)]
pub(crate) struct Me {
    /// Its Web Worker and session.
    pub(crate) tab: Tab,
    /// What it is doing.
    pub(crate) activity: Memo<Activity>,
    /// Whether a Web Worker is at work.
    pub(crate) active: Memo<bool>,
    /// The same in words.
    pub(crate) words: Memo<Words>,
    /// The mode of its run.
    pub(crate) mode: Memo<Mode>,
    /// As the coordinator lists it, while it does.
    pub(crate) listed: Memo<Option<WorkerView>>,
    /// Accepted micro-batches or deltas over all sessions of this tab.
    pub(crate) accepted: Memo<u64>,
}

impl Me {
    /// Follows the tab and the run.
    pub(crate) fn new(live: Live, tab: Tab) -> Self {
        // Words that differ between modes are only needed once the device was told of its run.
        let mode = Memo::new(move |_| {
            let own = tab.session.with(|session| session.run.as_ref().map(Mode::of));
            own.or(live.mode.get()).unwrap_or(Mode::Pipeline)
        });
        let activity = Memo::new(move |_| {
            let (phase, link, now) = (live.phase.get(), live.link.get(), live.clock.get());
            tab.session.with(|session| of_session(session, phase, link, now))
        });
        let listed = Memo::new(move |_| {
            let id = tab.session.with(|session| session.worker)?;
            live.run.with(|run| run.as_ref()?.workers.iter().find(|worker| worker.id == id).cloned())
        });
        let accepted = Memo::new_with_compare(
            move |before: Option<&(Tally, u64)>| {
                let mut tally = before.map_or(Tally::default(), |before| before.0);
                if let Some(me) = listed.get() {
                    let deltas = me.replica.map(|replica| replica.accepted);
                    tally.count(me.id, deltas.unwrap_or(me.accepted_micro_batches));
                }
                (tally, tally.sum())
            },
            |before, after| before != after,
        );
        Me {
            tab,
            activity,
            active: Memo::new(move |_| tab.session.with(|session| session.stage.is_active())),
            words: Memo::new(move |_| activity.with(|activity| words(activity, mode.get().text()))),
            mode,
            listed,
            accepted: Memo::new(move |_| accepted.get().1),
        }
    }

    /// A tab in the background still tells how it fares.
    pub(crate) fn title_follows(self) {
        Effect::new(move |_| {
            self.activity.with(|activity| {
                self.tab
                    .session
                    .with(|session| title::set(&tab_title(activity, session, self.mode.get().text())));
            });
        });
    }
}
