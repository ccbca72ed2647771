//! The thread that has the texts: it loads the newest checkpoint or asks the workers, writes the texts whose turn it is in
//! one batch, and tells their tokens.

use std::{
    collections::BTreeMap,
    panic::{AssertUnwindSafe, catch_unwind},
    path::{Path, PathBuf},
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use anyhow::Context;
use control::pipeline::Asking;
use engine::{
    denoiser::{BlockError, sweep::Composed, write::Continuation},
    generate::{Request, Sampling, Step, TextId, Token},
};
use futures::executor::block_on;
use protocol::{serving::Sample, spec::RunSpec};
use rayon::{ThreadPool, ThreadPoolBuilder};

use super::{
    desk::{Desk, Told, Wanted},
    model::{Gpt2, Model, Newest},
    over_workers::OverWorkers,
    pieces::Pieces,
    queue::Number,
    samples::Kept,
    traversals::Traversals,
};
use crate::{data::tokenizer::Tokenizer, storage::data_dir::DataDir};

/// How often a newer checkpoint is looked for.
const LOOK: Duration = Duration::from_secs(1);
/// Texts wait so long for workers to hold the model again.
const WORKERS: Duration = Duration::from_mins(1);
/// Of a sample.
const SAMPLE_TOKENS: usize = 160;
const SAMPLE: Sampling = Sampling { temperature: 0.8, top_k: 0, top_p: 1.0, seed: 1 };

/// Everything that the thread needs.
pub(crate) struct Writer {
    desk: Arc<Desk>,
    source: Source,
    run: RunSpec,
    tokenizer: Arc<Tokenizer>,
    kept: Kept,
    pool: ThreadPool,
}

/// Where the model is.
pub(crate) enum Source {
    /// In the checkpoints of this folder.
    Checkpoints(PathBuf),
    /// On the workers, for so many texts at a time, with so many tokens guessed ahead.
    Workers { traversals: Arc<Traversals>, at_once: usize, drafts: usize },
}

/// A text that is being written.
enum Open {
    /// Somebody wants it.
    Wanted { number: Number, wanted: Wanted, since: Instant },
    /// For the samples of this step.
    Sample { step: u64, pieces: Pieces, text: String },
}

/// A model with the texts that it is writing.
struct Loaded {
    newest: Newest,
    model: Model,
    /// Of a GPT-2.
    open: BTreeMap<TextId, Open>,
}

/// Ends the thread when it is dropped.
pub(crate) struct WriterThread(Arc<Desk>);

impl Drop for WriterThread {
    fn drop(&mut self) {
        self.0.close();
    }
}

impl Writer {
    /// What will write for the requests at `desk`, with so many threads.
    ///
    /// # Errors
    /// When the threads cannot be started.
    pub(crate) fn new(
        make_desk: impl FnOnce(protocol::serving::Samples) -> Arc<Desk>,
        source: Source,
        data_dir: &DataDir,
        run: RunSpec,
        tokenizer: Arc<Tokenizer>,
        threads: usize,
    ) -> anyhow::Result<Self> {
        let pool = ThreadPoolBuilder::new()
            .num_threads(threads)
            .thread_name(|index| format!("writer-{index}"))
            .build()
            .context("the threads that write texts could not be started")?;
        let kept = Kept::read(&data_dir.samples(), &tokenizer.usual_prompt());
        let desk = make_desk(kept.samples.clone());
        Ok(Self { desk, source, run, tokenizer, kept, pool })
    }

    pub(crate) fn desk(&self) -> Arc<Desk> {
        self.desk.clone()
    }

    /// Writes until the value is dropped.
    ///
    /// # Errors
    /// When the thread cannot be started.
    pub(crate) fn start(mut self) -> anyhow::Result<WriterThread> {
        let running = WriterThread(self.desk.clone());
        thread::Builder::new()
            .name("writer".into())
            .spawn(move || {
                while !self.desk.is_closed() {
                    // A fault of one text must not end all others for ever.
                    if catch_unwind(AssertUnwindSafe(|| self.write())).is_err() {
                        tracing::error!("writing texts failed; it begins anew");
                        self.desk.in_use(None, Some("writing texts failed; it begins anew".into()));
                        thread::sleep(LOOK);
                    }
                }
            })
            .context("the thread that writes texts could not be started")?;
        Ok(running)
    }

    fn write(&mut self) {
        match &self.source {
            Source::Checkpoints(folder) => self.write_from(&folder.clone()),
            Source::Workers { traversals, at_once, drafts } => {
                let workers = OverWorkers::new(&self.run.model, traversals.clone(), *at_once, *drafts);
                self.write_over(&traversals.clone(), workers);
            }
        }
    }

    /// The workers hold the model.
    fn write_over(&mut self, traversals: &Traversals, workers: OverWorkers) {
        let mut model = Gpt2::Workers(workers);
        let mut open = BTreeMap::new();
        let mut held = None;
        let mut sampled = self.kept.samples.samples.last().map(|sample| sample.step);
        while !self.desk.is_closed() {
            match traversals.asking() {
                (Asking::Step(step), _) => {
                    if held.is_none() || self.desk.state().step != Some(step) {
                        self.desk.in_use(Some(step), None);
                    }
                    held = Some(step);
                    // A model that does not learn has no ages.
                    if self.run.trains && open.is_empty() && sampled != Some(step) && self.kept.wants(step) {
                        sampled = Some(step);
                        self.begin_sample(step, &mut model, &mut open);
                    }
                }
                // Whoever is there takes the layers soon.
                (Asking::Nobody, time) if held.is_some() && time < WORKERS => {}
                (asking, _) => {
                    let words = match asking {
                        Asking::Over => "the run has ended, and with it the texts that its devices write",
                        _ => {
                            "the model cannot be asked at the moment: too few devices hold it, or the run is paused"
                        }
                    };
                    self.desk.in_use(None, Some(words.into()));
                    held = None;
                    for (text, open) in std::mem::take(&mut open) {
                        model.close(text);
                        self.fail(open, words);
                    }
                    traversals.wait(LOOK);
                    continue;
                }
            }
            self.advance(&mut model, &mut open);
        }
    }

    /// The newest checkpoint in this folder has the model.
    fn write_from(&mut self, checkpoints: &Path) {
        let mut loaded: Option<Loaded> = None;
        let mut looked: Option<Instant> = None;
        // The checkpoint that could not be loaded is not tried again and again.
        let mut broken: Option<Newest> = None;
        while !self.desk.is_closed() {
            let idle = loaded.as_ref().is_none_or(|loaded| loaded.open.is_empty());
            if idle && looked.is_none_or(|at| at.elapsed() >= LOOK) {
                looked = Some(Instant::now());
                if let Some(newest) = Newest::of(checkpoints)
                    && broken.as_ref() != Some(&newest)
                    && self.is_worth(&newest, loaded.as_ref())
                {
                    loaded = self.load(newest, &mut broken);
                }
            }
            match &mut loaded {
                // What was loaded last counts until a newer one has come; a newer one is not begun in the middle.
                Some(Loaded { model: Model::Gpt2(model), open, .. }) => self.advance(model, open),
                Some(Loaded { model: Model::Blocks(blocks), .. }) => self.sweep(blocks),
                None => self.desk.wait(LOOK),
            }
        }
    }

    /// Whether a checkpoint is to be loaded: somebody waits for a text, a sample of it is wanted, or there is none yet.
    fn is_worth(&self, newest: &Newest, loaded: Option<&Loaded>) -> bool {
        let Some(loaded) = loaded else { return true };
        loaded.newest.step != newest.step && (self.desk.state().waiting > 0 || self.kept.wants(newest.step))
    }

    fn load(&mut self, newest: Newest, broken: &mut Option<Newest>) -> Option<Loaded> {
        match newest.load(&self.run) {
            Ok(mut model) => {
                let mut open = BTreeMap::new();
                self.desk.in_use(Some(newest.step), None);
                match &mut model {
                    Model::Gpt2(model) => self.begin_sample(newest.step, model, &mut open),
                    Model::Blocks(blocks) => self.sample_blocks(newest.step, blocks),
                }
                Some(Loaded { newest, model, open })
            }
            // It is removed when newer ones have come; that is no fault.
            Err(_) if !newest.folder.exists() => None,
            Err(error) => {
                let words = format!("the newest checkpoint cannot be used: {error:#}");
                tracing::warn!("{words}");
                self.desk.in_use(None, Some(words));
                *broken = Some(newest);
                None
            }
        }
    }

    /// What a sample of this step is asked with; None where none is wanted.
    fn sample(&self, step: u64) -> Option<Request> {
        let prompt = self.tokenizer.encode(&self.kept.samples.prompt).ok()?;
        (self.kept.wants(step) && !prompt.is_empty()).then(|| Request::new(prompt, SAMPLE_TOKENS, SAMPLE))
    }

    fn begin_sample(&self, step: u64, model: &mut Gpt2, open: &mut BTreeMap<TextId, Open>) {
        if let Some(request) = self.sample(step)
            && let Ok(text) = model.open(request)
        {
            open.insert(text, Open::Sample { step, pieces: Pieces::new(vec![]), text: String::new() });
        }
    }

    fn sample_blocks(&mut self, step: u64, blocks: &Composed) {
        let Some(request) = self.sample(step) else { return };
        let mut pieces = Pieces::new(vec![]);
        let mut text = String::new();
        let told = |tokens: &[u32]| {
            let new = tokens.iter().map(|id| pieces.add(*id, &self.tokenizer).unwrap_or_default());
            text.extend(new);
            !self.desk.is_closed()
        };
        if self.write_blocks(blocks, &request, 1, told).is_ok() {
            text.push_str(&pieces.rest());
            self.keep(Sample { step, text });
        }
    }

    /// Block mode: one text after the other, whole.
    fn sweep(&mut self, blocks: &Composed) {
        let taken = self.desk.take_up();
        if taken.is_empty() {
            self.desk.wait(LOOK);
        }
        for (number, wanted) in taken {
            let since = Instant::now();
            wanted.tell(Told::Place(0));
            let wants = || self.desk.is_on() && !self.desk.is_closed() && !wanted.is_abandoned();
            let told = |tokens: &[u32]| {
                // Nobody is told how likely they were: requests for that are refused.
                let token = |id: &u32| Token { id: *id, log_probability: f64::NAN, likeliest: vec![] };
                wanted.tell(Told::Wrote { prompt: vec![], tokens: tokens.iter().map(token).collect() });
                wants()
            };
            let written = self.write_blocks(blocks, &wanted.request, wanted.chunk, told);
            let is_whole = written.is_ok() && wants();
            wanted.tell(match written {
                Ok(()) if is_whole => Told::Ended,
                Ok(()) => Told::Failed("the organizer has switched this off".into()),
                Err(error) => Told::Failed(error.to_string()),
            });
            self.desk.ended(number, is_whole.then(|| since.elapsed().as_secs_f64()));
        }
    }

    fn write_blocks(
        &self,
        blocks: &Composed,
        request: &Request,
        chunk: usize,
        told: impl FnMut(&[u32]) -> bool + Send,
    ) -> Result<(), BlockError> {
        let context = self.run.context as usize;
        let Request { prompt, count, sampling, .. } = request;
        let wanted = Continuation { prompt, count: *count, chunk, context, sampling: *sampling };
        self.pool.install(|| block_on(blocks.write(wanted, told))).map(|_| ())
    }

    fn keep(&mut self, sample: Sample) {
        if let Err(error) = self.kept.add(sample) {
            tracing::warn!("what the model wrote cannot be kept: {error}");
        }
        self.desk.set_samples(self.kept.samples.clone());
    }

    /// Takes up what there is room for, and does one step of all texts.
    fn advance(&mut self, model: &mut Gpt2, open: &mut BTreeMap<TextId, Open>) {
        self.give_up(model, open);
        // A newer model waits until all texts of this one are written; those that wait get the newer one.
        for (number, wanted) in self.desk.take_up() {
            match model.open(wanted.request.clone()) {
                Ok(text) => {
                    wanted.tell(Told::Place(0));
                    open.insert(text, Open::Wanted { number, wanted, since: Instant::now() });
                }
                Err(error) => {
                    wanted.tell(Told::Failed(error.to_string()));
                    self.desk.ended(number, None);
                }
            }
        }
        if open.is_empty() {
            model.idle();
            self.desk.wait(LOOK);
            return;
        }
        match model.step(&self.pool) {
            Ok(steps) => steps.into_iter().for_each(|step| self.tell(open, step)),
            Err(error) => {
                let words = format!("the model cannot go on: {error}");
                for (text, open) in std::mem::take(open) {
                    model.close(text);
                    self.fail(open, &words);
                }
            }
        }
    }

    fn fail(&self, open: Open, words: &str) {
        if let Open::Wanted { number, wanted, .. } = open {
            wanted.tell(Told::Failed(words.to_owned()));
            self.desk.ended(number, None);
        }
    }

    /// Texts that nobody wants any more make room at once; while it is switched off, all do.
    fn give_up(&self, model: &mut Gpt2, open: &mut BTreeMap<TextId, Open>) {
        let on = self.desk.is_on();
        open.retain(|text, open| {
            let Open::Wanted { number, wanted, .. } = open else { return true };
            if on && !wanted.is_abandoned() {
                return true;
            }
            wanted.tell(Told::Failed("the organizer has switched this off".into()));
            model.close(*text);
            self.desk.ended(*number, None);
            false
        });
    }

    fn tell(&mut self, open: &mut BTreeMap<TextId, Open>, step: Step) {
        let Step { text, progress, finished } = step;
        match open.get_mut(&text) {
            Some(Open::Wanted { number, wanted, since }) => {
                wanted.tell(Told::Wrote { prompt: progress.prompt, tokens: progress.written });
                if finished {
                    wanted.tell(Told::Ended);
                    self.desk.ended(*number, Some(since.elapsed().as_secs_f64()));
                }
            }
            Some(Open::Sample { step, pieces, text }) => {
                for token in progress.written {
                    text.push_str(&pieces.add(token.id, &self.tokenizer).unwrap_or_default());
                }
                if finished {
                    text.push_str(&pieces.rest());
                    let sample = Sample { step: *step, text: std::mem::take(text) };
                    self.keep(sample);
                }
            }
            None => {}
        }
        if finished {
            open.remove(&text);
        }
    }
}
