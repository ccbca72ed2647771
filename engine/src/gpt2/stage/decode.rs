//! New tokens through a hop, with the keys and values of those before them kept in caches.

use burn_tensor::Tensor;

use super::{HeldHop, HopInput, Source, Stage, StageError, held};
use crate::{
    device::Device,
    gpt2::{
        Cache,
        cache::Layers,
        part::{cpu, gpu},
    },
    parameters::{BurnParameter, CpuParameter, Store, read},
    sizes::Sizes,
};

/// The next tokens of one request.
pub struct Decode<'a> {
    /// The request's cache in this hop; it gets the new tokens.
    pub cache: &'a mut Cache,
    /// One row for each new token: ids [n] for the hop with the embedding, hidden states [n, d] for any other.
    /// n is at least one: many for a prompt or for drafts that are to be verified, else one.
    pub input: HopInput<'a>,
    /// In the hop with the head, how many of the last rows need logits: none within a prompt, all for drafts.
    pub logits: usize,
}

/// Requests that have been checked.
struct Batch<'a> {
    source: Source,
    caches: Vec<&'a mut Cache>,
    /// New tokens of each.
    rows: Vec<usize>,
    /// Rows of each that need logits.
    wanted: Vec<usize>,
}

impl Stage {
    /// An empty cache for one request of up to `positions` tokens through `hop`; [`Cache::bytes`] says before what it
    /// takes.
    ///
    /// # Errors
    ///
    /// [`StageError::UnknownHop`], and [`StageError::TooLong`] for more positions than the model has.
    pub fn open_cache(&self, hop: u32, positions: usize) -> Result<Cache, StageError> {
        let held = held(&self.hops, hop)?;
        let most = self.model.positions as usize;
        if positions > most {
            return Err(StageError::TooLong { tokens: positions, positions: most });
        }
        Ok(Cache::new(&self.model, &held.part, positions, &self.device))
    }

    /// New tokens of several requests through a hop, in one traversal; the requests may differ in length. For each,
    /// in order: hidden states [n, d] or, of the hop with the head, logits [`Decode::logits`, V].
    ///
    /// On the processor a request gets the same bits whatever else is in the batch, and in however many pieces its
    /// tokens come. When a batch is refused, every cache holds what it held.
    ///
    /// # Errors
    ///
    /// [`StageError::TooLong`] when a cache is full, [`StageError::WrongCache`] for one of another hop, and as for
    /// [`Stage::logits`].
    pub async fn decode(&self, hop: u32, requests: Vec<Decode<'_>>) -> Result<Vec<Vec<f32>>, StageError> {
        let held = held(&self.hops, hop)?;
        let mut batch = self.batch(hop, held, requests)?;
        if batch.rows.is_empty() {
            return Ok(vec![]);
        }
        let out = match (self.parameters.store(), &self.device) {
            (Store::Cpu(parameters), Device::Cpu) => self.decode_on_cpu(held, parameters, &mut batch)?,
            (Store::Burn(parameters), Device::Burn(device)) => {
                let sizes = self.sizes([1, batch.rows.iter().sum()]);
                let source = std::mem::replace(&mut batch.source, Source::Tokens(vec![]));
                let input = gpu::Input::new(source, sizes, device);
                self.decode_on_burn(held, parameters, input, &mut batch).await?
            }
            _ => return Err(StageError::Mixed),
        };
        let Batch { caches, rows, wanted, .. } = batch;
        caches.into_iter().zip(&rows).for_each(|(cache, &rows)| cache.grow(rows));
        let (lens, each) = match held.part.head {
            true => (wanted, self.model.vocabulary as usize),
            false => (rows, self.model.width as usize),
        };
        let mut rest = out.into_iter();
        Ok(lens.into_iter().map(|rows| rest.by_ref().take(rows * each).collect()).collect())
    }

    /// Checks all requests before anything is computed.
    fn batch<'a>(
        &self,
        hop: u32,
        held: &HeldHop,
        requests: Vec<Decode<'a>>,
    ) -> Result<Batch<'a>, StageError> {
        let (mut tokens, mut states) = (Vec::new(), Vec::new());
        let mut batch =
            Batch { source: Source::Tokens(vec![]), caches: vec![], rows: vec![], wanted: vec![] };
        for Decode { cache, input, logits } in requests {
            if !cache.fits(&self.model, &held.part, &self.device) {
                return Err(StageError::WrongCache { hop });
            }
            let rows = match &input {
                HopInput::Tokens(tokens) => tokens.len(),
                HopInput::Hidden(hidden) => hidden.len() / self.model.width as usize,
            };
            let (source, _) = self.enter(hop, input, [1, rows])?;
            let after = cache.len() + rows;
            if after > cache.positions() {
                return Err(StageError::TooLong { tokens: after, positions: cache.positions() });
            }
            if logits > rows {
                let what = "a request for logits";
                return Err(StageError::Length { what, found: logits, expected: rows });
            }
            match source {
                Source::Tokens(ids) => tokens.extend(ids),
                Source::Hidden(hidden) if states.is_empty() => states = hidden,
                Source::Hidden(hidden) => states.extend(hidden),
            }
            batch.caches.push(cache);
            batch.rows.push(rows);
            batch.wanted.push(logits);
        }
        batch.source = if held.part.embedding { Source::Tokens(tokens) } else { Source::Hidden(states) };
        Ok(batch)
    }

    fn decode_on_cpu(
        &self,
        held: &HeldHop,
        parameters: &[CpuParameter],
        batch: &mut Batch<'_>,
    ) -> Result<Vec<f32>, StageError> {
        let Sizes { width, heads, .. } = self.sizes([1, 1]);
        let Batch { source, caches, rows, wanted } = batch;
        let mut requests = Vec::with_capacity(caches.len());
        for (cache, &rows) in caches.iter_mut().zip(&*rows) {
            let past = cache.len();
            let Layers::Cpu(layers) = &mut cache.layers else { return Err(StageError::Mixed) };
            requests.push(cpu::Request { rows, past, layers });
        }
        let source = std::mem::replace(source, Source::Tokens(vec![]));
        let hidden = cpu::decode(source, parameters, &held.indices, [width, heads], &mut requests);
        if !held.part.head {
            return Ok(hidden);
        }
        let last = last_rows(rows, wanted).flat_map(|rows| &hidden[rows.start * width..rows.end * width]);
        let last: Vec<f32> = last.copied().collect();
        Ok(cpu::thin_logits(&last, parameters, &held.indices, width))
    }

    async fn decode_on_burn(
        &self,
        held: &HeldHop,
        parameters: &[BurnParameter],
        input: gpu::Input,
        batch: &mut Batch<'_>,
    ) -> Result<Vec<f32>, StageError> {
        let Sizes { width, heads, .. } = self.sizes([1, 1]);
        let Batch { caches, rows, wanted, .. } = batch;
        let hidden = {
            let mut requests = Vec::with_capacity(caches.len());
            for (cache, &rows) in caches.iter_mut().zip(&*rows) {
                let past = cache.len();
                let Layers::Burn(layers) = &mut cache.layers else { return Err(StageError::Mixed) };
                requests.push(gpu::Request { rows, past, layers });
            }
            gpu::decode(input, parameters, &held.indices, [width, heads], &mut requests)
        };
        if !held.part.head {
            return read(hidden).await.map_err(StageError::Device);
        }
        let last: Vec<_> = last_rows(rows, wanted)
            .filter(|rows| !rows.is_empty())
            .map(|rows| hidden.clone().narrow(1, rows.start, rows.len()))
            .collect();
        if last.is_empty() {
            return Ok(vec![]);
        }
        let logits = gpu::logits(Tensor::cat(last, 1), parameters, &held.indices);
        read(logits).await.map_err(StageError::Device)
    }
}

/// Where the last `wanted` of each request's rows lie in the batch.
fn last_rows(rows: &[usize], wanted: &[usize]) -> impl Iterator<Item = std::ops::Range<usize>> {
    rows.iter().zip(wanted).scan(0, |end, (rows, wanted)| {
        *end += rows;
        Some(*end - wanted..*end)
    })
}
