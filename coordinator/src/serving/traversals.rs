//! Texts that the workers write: the traversal under way, between the thread that has the texts, the run that decides
//! which worker is next, and the sessions by which its rows come and go.

use std::{
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use axum::body::Bytes;
use control::pipeline::{Asking, Event};
use protocol::{
    message::{Decode, Decoded, ReadToken, TextRows, Traversal},
    refusal::Refusal,
    spec::ModelSpec,
    tensor::{TensorMeta, decode_floats},
    worker_id::WorkerId,
};
use tokio::sync::mpsc::UnboundedSender;

/// Rows on their way to the next hop.
#[derive(Debug, Clone)]
pub(super) struct Rows {
    pub(super) meta: TensorMeta,
    pub(super) payload: Bytes,
}

/// What became of a traversal.
#[derive(Debug)]
pub(super) enum Outcome {
    /// What was read from the logits, text by text in the order of the request.
    Read(Vec<ReadToken>),
    /// All caches are lost.
    Lost,
}

#[derive(Debug)]
struct Current {
    number: u64,
    texts: Vec<TextRows>,
    rows: Rows,
    /// The worker that was asked, for which hop, and whether that has the head.
    asked: Option<(WorkerId, Traversal, bool)>,
    /// What the hop with the head has answered, before the run has heard of it.
    read: Vec<ReadToken>,
    outcome: Option<Outcome>,
}

#[derive(Debug)]
struct Inside {
    /// Whether the workers can be asked ...
    asking: Asking,
    /// ... and since when they cannot.
    since: Instant,
    /// How often all caches were lost.
    losses: u64,
    number: u64,
    current: Option<Current>,
    told: Option<UnboundedSender<Event>>,
}

/// The traversal under way, seen from three sides.
#[derive(Debug)]
pub(crate) struct Traversals {
    vocabulary: u32,
    width: u32,
    inside: Mutex<Inside>,
    news: Condvar,
}

impl Traversals {
    /// None is under way.
    pub(crate) fn new(model: &ModelSpec) -> Arc<Self> {
        let (asking, losses, number, current, told) = (Asking::Nobody, 0, 0, None, None);
        let since = Instant::now();
        Arc::new(Self {
            vocabulary: model.vocabulary,
            width: model.width,
            inside: Mutex::new(Inside { asking, since, losses, number, current, told }),
            news: Condvar::new(),
        })
    }

    fn lock(&self) -> MutexGuard<'_, Inside> {
        self.inside.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Where the run hears.
    pub(crate) fn tell(&self, told: UnboundedSender<Event>) {
        self.lock().told = Some(told);
    }

    // The side of the texts.

    /// Whether the workers can be asked, and if not, for how long they could not.
    pub(super) fn asking(&self) -> (Asking, Duration) {
        let inside = self.lock();
        (inside.asking, inside.since.elapsed())
    }

    /// Waits until the workers can be asked, or for so long.
    pub(super) fn wait(&self, most: Duration) {
        let cannot = |inside: &mut Inside| !matches!(inside.asking, Asking::Step(_));
        drop(self.news.wait_timeout_while(self.lock(), most, cannot));
    }

    /// Traversals that were begun.
    pub(crate) fn begun(&self) -> u64 {
        self.lock().number
    }

    /// How often all caches were lost.
    pub(super) fn losses(&self) -> u64 {
        self.lock().losses
    }

    /// Begins a traversal; false if caches were lost since the caller counted `losses`.
    pub(super) fn begin(&self, losses: u64, texts: Vec<TextRows>, rows: Rows) -> bool {
        let mut inside = self.lock();
        if inside.losses != losses {
            return false;
        }
        inside.number += 1;
        let number = inside.number;
        inside.current = Some(Current { number, texts, rows, asked: None, read: vec![], outcome: None });
        inside.say(Event::Traverse { number });
        true
    }

    /// What became of the traversal that was begun last, if anything has within this time.
    pub(super) fn outcome(&self, most: Duration) -> Option<Outcome> {
        let pending =
            |inside: &mut Inside| inside.current.as_ref().is_some_and(|current| current.outcome.is_none());
        let (mut inside, _) =
            self.news.wait_timeout_while(self.lock(), most, pending).unwrap_or_else(PoisonError::into_inner);
        match &mut inside.current {
            Some(current) => {
                let outcome = current.outcome.take()?;
                inside.current = None;
                Some(outcome)
            }
            None => Some(Outcome::Lost),
        }
    }

    /// Texts have ended.
    pub(super) fn ended(&self, texts: Vec<u64>) {
        self.lock().say(Event::TextsEnded(texts));
    }

    // The side of the run.

    /// The message for a hop, with the rows as they are after the hop before. None: nobody wants that traversal any more,
    /// and the run hears so.
    pub(crate) fn decode(&self, worker: WorkerId, of: Traversal, last: bool) -> Option<(Decode, Bytes)> {
        let mut inside = self.lock();
        match &mut inside.current {
            Some(current) if current.number == of.number => {
                current.asked = Some((worker, of, last));
                let decode = Decode { of, texts: current.texts.clone(), rows: current.rows.meta.clone() };
                Some((decode, current.rows.payload.clone()))
            }
            _ => {
                inside.say(Event::TraversalGone { number: of.number });
                None
            }
        }
    }

    /// The last hop has answered, and the run has heard of it.
    pub(crate) fn traversed(&self, number: u64) {
        if let Some(current) = &mut self.lock().current
            && current.number == number
        {
            current.outcome = Some(Outcome::Read(std::mem::take(&mut current.read)));
        }
        self.news.notify_all();
    }

    /// All caches are lost.
    pub(crate) fn lost(&self) {
        let mut inside = self.lock();
        inside.losses += 1;
        if let Some(current) = &mut inside.current {
            (current.asked, current.outcome) = (None, Some(Outcome::Lost));
        }
        drop(inside);
        self.news.notify_all();
    }

    /// Whether the workers can be asked.
    pub(crate) fn can_be_asked(&self, asking: Asking) {
        let mut inside = self.lock();
        if matches!(inside.asking, Asking::Step(_)) {
            inside.since = Instant::now();
        }
        inside.asking = asking;
        drop(inside);
        self.news.notify_all();
    }

    // The side of the sessions.

    /// Takes what a hop has answered; what was not asked for is not kept, and the run judges it.
    ///
    /// # Errors
    /// [`Refusal::Malformed`] for an answer that is not what was asked for.
    pub(crate) fn answered(
        &self,
        worker: WorkerId,
        decoded: &Decoded,
        payload: &[u8],
    ) -> Result<(), Refusal> {
        let mut inside = self.lock();
        let Some(current) = &mut inside.current else { return Ok(()) };
        let Some((_, _, last)) =
            current.asked.take_if(|(asked, of, _)| (*asked, *of) == (worker, decoded.of))
        else {
            return Ok(());
        };
        let malformed = |detail: String| Refusal::Malformed { detail: format!("Decoded: {detail}") };
        if last {
            self.check_read(&current.texts, &decoded.tokens).map_err(malformed)?;
            current.read.clone_from(&decoded.tokens);
            return Ok(());
        }
        let wanted = [current.texts.iter().map(|text| text.rows).sum(), self.width];
        if decoded.rows.shape != wanted {
            let found = &decoded.rows.shape;
            return Err(malformed(format!("rows of shape {found:?} came where {wanted:?} are asked for")));
        }
        // So that whoever sends what is broken or not finite is known: the next hop could not tell.
        decode_floats(&decoded.rows, payload).map_err(|error| malformed(error.to_string()))?;
        current.rows = Rows { meta: decoded.rows.clone(), payload: Bytes::copy_from_slice(payload) };
        Ok(())
    }

    /// Whether a token was read from each row, and each is one that this row can give.
    fn check_read(&self, texts: &[TextRows], tokens: &[ReadToken]) -> Result<(), String> {
        let rows = texts.iter().flat_map(|text| {
            let choices = (0..text.reading.choices).map(|_| None);
            text.reading.scored.iter().copied().map(Some).chain(choices)
        });
        let wanted = rows.clone().count();
        if tokens.len() != wanted {
            return Err(format!("{} tokens were read where {wanted} are asked for", tokens.len()));
        }
        for (token, known) in tokens.iter().zip(rows) {
            let mut ids = std::iter::once(token.id).chain(token.likeliest.iter().map(|(id, _)| *id));
            if known.is_some_and(|known| known != token.id) || ids.any(|id| id >= self.vocabulary) {
                return Err(format!("token {} cannot have been read there", token.id));
            }
        }
        Ok(())
    }
}

impl Inside {
    /// Nobody listens before the run has begun, or after its end.
    fn say(&self, event: Event) {
        if let Some(told) = &self.told {
            let _ = told.send(event);
        }
    }
}
