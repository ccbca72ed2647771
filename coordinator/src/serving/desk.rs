//! Where requests are handed in, by many connections, and taken up by the one thread that has the model.

use std::{
    collections::HashMap,
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use engine::generate::{self, Token};
use protocol::serving::Samples;
use tokio::sync::mpsc::{self, UnboundedReceiver, UnboundedSender};

use super::queue::{Most, Number, Queue};
use crate::address::Address;

/// Time that a text takes, before any has been written.
const USUAL_SECONDS: f64 = 5.0;
/// Weight of the newest text in that.
const NEWEST: f64 = 0.2;

/// What comes of one of the texts of a request, whose index is told with it.
#[derive(Debug)]
pub(crate) enum Told {
    /// So many texts are before it; 0: it is being written.
    Place(usize),
    /// Tokens, and scores of the prompt's tokens but the first where they were asked for.
    Wrote { prompt: Vec<Token>, tokens: Vec<Token> },
    /// It has all its tokens.
    Ended,
    /// It cannot be written, in words.
    Failed(String),
}

/// Texts that cannot be taken now.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Refused {
    /// Too many wait; ask again after this long.
    Full(Duration),
    /// Nothing is written at the moment, in words.
    Closed(String),
}

/// A text that is asked for.
#[derive(Debug, Clone)]
pub(crate) struct Asked {
    /// What is to be written.
    pub(crate) request: generate::Request,
    /// Tokens of one sweep, in block mode.
    pub(crate) chunk: usize,
    /// Bytes that its keys and values take.
    pub(crate) bytes: u64,
}

/// A text that is wanted.
#[derive(Debug)]
pub(super) struct Wanted {
    pub(super) request: generate::Request,
    /// Tokens of one sweep, in block mode.
    pub(super) chunk: usize,
    index: usize,
    told: UnboundedSender<(usize, Told)>,
}

impl Wanted {
    /// Tells whoever wants it; false when nobody does any more.
    pub(super) fn tell(&self, told: Told) -> bool {
        self.told.send((self.index, told)).is_ok()
    }

    /// Nobody wants it any more.
    pub(super) fn is_abandoned(&self) -> bool {
        self.told.is_closed()
    }
}

/// What can be seen from outside.
#[derive(Debug, Clone, Default)]
pub(crate) struct State {
    /// The organizer's switch.
    pub(crate) on: bool,
    /// Steps that the model has been trained for; None before there is one.
    pub(crate) step: Option<u64>,
    /// Texts that wait.
    pub(crate) waiting: usize,
    fault: Option<String>,
}

struct Inside {
    queue: Queue,
    wanted: HashMap<Number, Wanted>,
    next: Number,
    state: State,
    samples: Samples,
    seconds: f64,
    at_once: usize,
    closed: bool,
}

/// The desk.
pub(crate) struct Desk {
    inside: Mutex<Inside>,
    news: Condvar,
}

/// Texts of one request; who drops it does not want them any more.
pub(crate) struct Texts {
    desk: Arc<Desk>,
    numbers: Vec<Number>,
    /// What comes of them, by their index.
    pub(crate) told: UnboundedReceiver<(usize, Told)>,
}

impl Texts {
    /// Does not want one of them any more.
    pub(crate) fn leave(&self, index: usize) {
        if let Some(number) = self.numbers.get(index) {
            self.desk.lock().queue.leave(*number);
            self.desk.lock().wanted.remove(number);
            self.desk.news.notify_one();
        }
    }
}

impl Drop for Texts {
    fn drop(&mut self) {
        for index in 0..self.numbers.len() {
            self.leave(index);
        }
    }
}

impl Desk {
    pub(crate) fn new(most: Most, samples: Samples) -> Arc<Self> {
        let state = State { on: true, ..State::default() };
        let at_once = most.at_once.max(1);
        Arc::new(Self {
            inside: Mutex::new(Inside {
                queue: Queue::new(most),
                wanted: HashMap::new(),
                next: 0,
                state,
                samples,
                seconds: USUAL_SECONDS,
                at_once,
                closed: false,
            }),
            news: Condvar::new(),
        })
    }

    fn lock(&self) -> MutexGuard<'_, Inside> {
        self.inside.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What can be seen from outside.
    pub(crate) fn state(&self) -> State {
        let inside = self.lock();
        State { waiting: inside.queue.waiting(), ..inside.state.clone() }
    }

    /// Why nothing is written now, in words; None: it is.
    pub(crate) fn why(&self) -> Option<String> {
        let state = &self.lock().state;
        if !state.on {
            return Some("the organizer has switched this off".into());
        }
        if let Some(fault) = &state.fault {
            return Some(fault.clone());
        }
        state.step.is_none().then(|| "the model has no snapshot yet; it can be asked after the first".into())
    }

    pub(crate) fn samples(&self) -> Samples {
        self.lock().samples.clone()
    }

    /// Hands the texts of a request in.
    ///
    /// # Errors
    /// [`Refused`]: none of them is taken.
    pub(crate) fn ask(self: &Arc<Self>, address: Address, texts: Vec<Asked>) -> Result<Texts, Refused> {
        if let Some(why) = self.why() {
            return Err(Refused::Closed(why));
        }
        let mut inside = self.lock();
        let first = inside.next;
        let numbered: Vec<(Number, u64)> =
            (first..).zip(&texts).map(|(number, text)| (number, text.bytes)).collect();
        if inside.queue.enter(address, &numbered).is_err() {
            let rounds = inside.queue.waiting().div_ceil(inside.at_once).max(1);
            return Err(Refused::Full(Duration::from_secs_f64((rounds as f64 * inside.seconds).max(1.0))));
        }
        inside.next += texts.len() as u64;
        let (sender, told) = mpsc::unbounded_channel();
        for (index, (number, Asked { request, chunk, .. })) in (first..).zip(texts).enumerate() {
            inside.wanted.insert(number, Wanted { request, chunk, index, told: sender.clone() });
        }
        inside.tell_places();
        drop(inside);
        self.news.notify_one();
        let numbers = numbered.into_iter().map(|(number, _)| number).collect();
        Ok(Texts { desk: self.clone(), numbers, told })
    }

    /// The organizer's switch. Texts that are under way end; those that wait are told.
    pub(crate) fn switch(&self, on: bool) {
        let mut inside = self.lock();
        inside.state.on = on;
        if !on {
            inside.fail_all("the organizer has switched this off");
        }
        drop(inside);
        self.news.notify_one();
    }

    /// Ends the writer.
    pub(super) fn close(&self) {
        self.lock().closed = true;
        self.news.notify_one();
    }

    pub(super) fn is_closed(&self) -> bool {
        self.lock().closed
    }

    /// Waits until something is wanted, or for so long.
    pub(super) fn wait(&self, most: Duration) {
        let inside = self.lock();
        let idle = |inside: &mut Inside| inside.queue.waiting() == 0 && !inside.closed;
        drop(self.news.wait_timeout_while(inside, most, idle));
    }

    /// The texts whose turn it is, as far as there is room.
    pub(super) fn take_up(&self) -> Vec<(Number, Wanted)> {
        let mut inside = self.lock();
        let mut taken = Vec::new();
        while let Some(number) = inside.queue.next() {
            match inside.wanted.remove(&number) {
                Some(wanted) => taken.push((number, wanted)),
                None => inside.queue.leave(number),
            }
        }
        if !taken.is_empty() {
            inside.tell_places();
        }
        taken
    }

    /// Whether a text that has been taken up is still to be written.
    pub(super) fn is_on(&self) -> bool {
        self.lock().state.on
    }

    /// A text that had been taken up has ended, after so many seconds of writing; None: it was given up.
    pub(super) fn ended(&self, number: Number, seconds: Option<f64>) {
        let mut inside = self.lock();
        inside.queue.leave(number);
        if let Some(seconds) = seconds {
            inside.seconds += NEWEST * (seconds - inside.seconds);
        }
    }

    /// Which model is in use, or why none can be.
    pub(crate) fn in_use(&self, step: Option<u64>, fault: Option<String>) {
        let mut inside = self.lock();
        if let Some(words) = &fault {
            inside.fail_all(words);
        }
        (inside.state.step, inside.state.fault) = (step, fault);
    }

    /// What the model wrote at several ages has changed.
    pub(super) fn set_samples(&self, samples: Samples) {
        self.lock().samples = samples;
    }
}

impl Inside {
    fn tell_places(&self) {
        for (place, number) in self.queue.places().into_iter().enumerate() {
            if let Some(wanted) = self.wanted.get(&number) {
                wanted.tell(Told::Place(place + 1));
            }
        }
    }

    /// Those that wait are told why they are not written.
    fn fail_all(&mut self, words: &str) {
        for (number, wanted) in self.wanted.drain() {
            wanted.tell(Told::Failed(words.to_owned()));
            self.queue.leave(number);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use engine::generate::Sampling;

    use super::*;

    fn desk(at_once: usize, waiting: usize) -> Arc<Desk> {
        let desk = Desk::new(Most { at_once, waiting, bytes: 1 << 20 }, Samples::default());
        desk.in_use(Some(20), None);
        desk
    }

    fn ask(desk: &Arc<Desk>, texts: usize) -> Result<Texts, Refused> {
        let request = generate::Request::new(vec![1], 5, Sampling::GREEDY);
        let asked = Asked { request, chunk: 1, bytes: 10 };
        desk.ask(Address::V4(Ipv4Addr::new(10, 0, 0, 1)), vec![asked; texts])
    }

    fn last(texts: &mut Texts) -> Option<Told> {
        std::iter::from_fn(|| texts.told.try_recv().ok()).last().map(|(_, told)| told)
    }

    #[test]
    fn whoever_waits_is_told_the_place_and_moves_up() {
        let desk = desk(1, 5);
        let first = ask(&desk, 1).ok().unwrap();
        let mut second = ask(&desk, 1).ok().unwrap();
        let mut third = ask(&desk, 1).ok().unwrap();
        assert!(matches!(last(&mut third), Some(Told::Place(3))));
        let taken = desk.take_up();
        assert_eq!(taken.len(), 1);
        assert!(matches!(last(&mut third), Some(Told::Place(2))));
        // The first gives up while it is written, the second while it waits.
        drop(first);
        assert!(taken[0].1.is_abandoned());
        assert!(matches!(last(&mut second), Some(Told::Place(1))));
        drop(second);
        desk.ended(taken[0].0, None);
        assert_eq!(desk.take_up().len(), 1);
        assert_eq!(desk.state().waiting, 0);
    }

    #[test]
    fn too_many_are_told_when_to_come_back() {
        let desk = desk(1, 4);
        let _waiting = ask(&desk, 3).ok().unwrap();
        assert!(matches!(ask(&desk, 1).err(), Some(Refused::Full(after)) if after >= Duration::from_secs(1)));
    }

    #[test]
    fn nothing_is_taken_without_a_model_or_while_it_is_switched_off() {
        let desk = desk(1, 2);
        let mut waits = ask(&desk, 1).ok().unwrap();
        desk.switch(false);
        assert!(matches!(last(&mut waits), Some(Told::Failed(_))));
        assert!(
            matches!(ask(&desk, 1).err(), Some(Refused::Closed(words)) if words.contains("switched this off"))
        );
        desk.switch(true);
        desk.in_use(None, None);
        assert!(
            matches!(ask(&desk, 1).err(), Some(Refused::Closed(words)) if words.contains("no snapshot yet"))
        );
    }
}
