//! Cut a model's layers into stages so that the slowest stage is as fast as can be.
//!
//! A stage of `n >= 1` layers on worker `w` takes
//! `seconds_per_layer(w) * (n + head_extra if it is the first + tail_extra if it is the last)` seconds; a single
//! stage takes both extras. The extras are in units of a layer. Workers may stay unused.
//!
//! Two things are beyond the golden instances, and off in them. Memory: the embedding and the head take up the room of
//! some layers (`first_room`, `last_room`). Links: sending overlaps computing, so a stage takes at least the time of its
//! frames, `link_seconds` at the ends of the pipeline and twice that in the middle, which sends both ways.
//!
//! The method is exact. The answer is one of finitely many stage times (worker x layers x place), so it is
//! found by binary search over them: given a limit, each worker has room for so many layers at each place, and
//! the question left is whether some choice of workers has room for all layers. That is a small dynamic
//! programme when the order is given, and a choice of head, tail and roomiest middle when it is not.
//!
//! Ties: among all partitions with the best value, the fewest workers, then the lowest-numbered ones. Layers
//! are then dealt evenly among the chosen workers, as the others' idle time buys nothing.

/// What a worker can do.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Candidate {
    /// Seconds of forward and backward for one layer; finite and not negative, or the worker is left out.
    pub seconds_per_layer: f64,
    /// Most layers its memory holds; 0 leaves it out.
    pub max_layers: u32,
    /// Layers' worth of memory that the first stage's embedding takes.
    pub first_room: u32,
    /// Layers' worth of memory that the last stage's head takes.
    pub last_room: u32,
    /// Seconds a micro-batch takes on its link in the busier direction, one frame; finite and not negative.
    pub link_seconds: f64,
}

impl Candidate {
    /// With a link that costs nothing, and ends of the model that take no memory.
    pub fn new(seconds_per_layer: f64, max_layers: u32) -> Self {
        Self { seconds_per_layer, max_layers, first_room: 0, last_room: 0, link_seconds: 0.0 }
    }
}

/// Layers over workers in their given order.
#[derive(Debug, Clone, PartialEq)]
pub struct Partition {
    /// Seconds of the slowest stage.
    pub value: f64,
    /// Layers of each worker, one entry per candidate; 0: unused.
    pub layers: Vec<u32>,
}

/// Layers over workers in an order of our choosing.
#[derive(Debug, Clone, PartialEq)]
pub struct UnorderedPartition {
    /// Seconds of the slowest stage.
    pub value: f64,
    /// Index of the worker of each stage, from the first stage to the last.
    pub order: Vec<usize>,
    /// Layers of each stage, as long as `order`.
    pub layers: Vec<u32>,
}

/// The best partition that keeps the workers in their order; None if the layers do not fit.
///
/// Time `O(W L log(W L))` for W workers and L layers.
pub fn partition_ordered(
    layers: u32,
    workers: &[Candidate],
    head_extra: f64,
    tail_extra: f64,
) -> Option<Partition> {
    let problem = Problem::new(layers, workers, head_extra, tail_extra)?;
    let limit = problem.smallest_limit(|limit| problem.choose_in_order(limit).is_some())?;
    let order = problem.choose_in_order(limit)?;
    let (value, dealt) = problem.deal(&order)?;
    Some(spread(value, &order, &dealt, workers.len()))
}

/// The best partition in which every worker, in its order, has at least one layer; None if there is none.
pub fn partition_all(
    layers: u32,
    workers: &[Candidate],
    head_extra: f64,
    tail_extra: f64,
) -> Option<Partition> {
    let problem = Problem::new(layers, workers, head_extra, tail_extra)?;
    let order: Vec<usize> = (0..workers.len()).collect();
    let (value, dealt) = problem.deal(&order)?;
    Some(spread(value, &order, &dealt, workers.len()))
}

/// The best partition over all orders of the workers; None if the layers do not fit.
///
/// Time `O(W^2 log L log(W L))` for W workers and L layers. Middle stages keep the workers' order.
pub fn partition_unordered(
    layers: u32,
    workers: &[Candidate],
    head_extra: f64,
    tail_extra: f64,
) -> Option<UnorderedPartition> {
    let problem = Problem::new(layers, workers, head_extra, tail_extra)?;
    let limit = problem.smallest_limit(|limit| problem.fits_in_any_order(limit))?;
    let order = problem.choose_any_order(limit)?;
    let (value, layers) = problem.deal(&order)?;
    Some(UnorderedPartition { value, order, layers })
}

/// Where a stage stands in the pipeline.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    First,
    Middle,
    Last,
    Only,
}

const PLACES: [Place; 4] = [Place::First, Place::Middle, Place::Last, Place::Only];

struct Problem<'a> {
    layers: u32,
    workers: &'a [Candidate],
    head_extra: f64,
    tail_extra: f64,
}

impl<'a> Problem<'a> {
    /// None when nothing sensible can be asked: no layers, no workers, or extras that are not numbers.
    fn new(layers: u32, workers: &'a [Candidate], head_extra: f64, tail_extra: f64) -> Option<Self> {
        let extra = |x: f64| x.is_finite() && x >= 0.0;
        (layers > 0 && !workers.is_empty() && extra(head_extra) && extra(tail_extra)).then_some(Self {
            layers,
            workers,
            head_extra,
            tail_extra,
        })
    }

    /// Most layers this worker may ever hold at a place.
    fn cap(&self, worker: usize, place: Place) -> u32 {
        let Candidate { seconds_per_layer, max_layers, first_room, last_room, link_seconds } =
            self.workers[worker];
        let sound = |x: f64| x.is_finite() && x >= 0.0;
        if !sound(seconds_per_layer) || !sound(link_seconds) {
            return 0;
        }
        let taken = match place {
            Place::First => first_room,
            Place::Middle => 0,
            Place::Last => last_room,
            Place::Only => first_room.saturating_add(last_room),
        };
        max_layers.saturating_sub(taken).min(self.layers)
    }

    /// The one place where a stage's time is computed: equal stages must give equal bits, as the search
    /// compares limits with times exactly.
    fn seconds(&self, worker: usize, place: Place, layers: u32) -> f64 {
        let (extra, frames) = match place {
            Place::First => (self.head_extra, 1.0),
            Place::Middle => (0.0, 2.0),
            Place::Last => (self.tail_extra, 1.0),
            Place::Only => (self.head_extra + self.tail_extra, 0.0),
        };
        let Candidate { seconds_per_layer, link_seconds, .. } = self.workers[worker];
        (seconds_per_layer * (f64::from(layers) + extra)).max(frames * link_seconds)
    }

    /// Most layers the worker can take at a place within `limit` seconds; 0 if it cannot stand there.
    fn room(&self, worker: usize, place: Place, limit: f64) -> u64 {
        let (mut low, mut high) = (0, self.cap(worker, place));
        while low < high {
            let middle = high - (high - low) / 2;
            if self.seconds(worker, place, middle) <= limit { low = middle } else { high = middle - 1 }
        }
        u64::from(low)
    }

    fn rooms(&self, place: Place, limit: f64) -> Vec<u64> {
        (0..self.workers.len()).map(|w| self.room(w, place, limit)).collect()
    }

    /// The smallest possible stage time that `fits`; `fits` must stay true once true.
    fn smallest_limit(&self, fits: impl Fn(f64) -> bool) -> Option<f64> {
        let mut limits: Vec<f64> = (0..self.workers.len())
            .flat_map(|w| PLACES.map(|place| (w, place)))
            .flat_map(|(w, place)| (1..=self.cap(w, place)).map(move |n| self.seconds(w, place, n)))
            .collect();
        limits.sort_unstable_by(f64::total_cmp);
        limits.dedup();
        let at = limits.partition_point(|limit| !fits(*limit));
        limits.get(at).copied()
    }

    /// The lowest-numbered worker that holds the whole model within `limit`.
    fn choose_one(&self, limit: f64) -> Option<usize> {
        (0..self.workers.len()).find(|w| self.room(*w, Place::Only, limit) >= u64::from(self.layers))
    }

    /// Most stages worth looking at: each needs a worker and a layer.
    fn most_stages(&self) -> usize {
        self.workers.len().min(self.layers as usize)
    }

    /// The fewest, then lowest-numbered workers that hold the model in their given order within `limit`.
    fn choose_in_order(&self, limit: f64) -> Option<Vec<usize>> {
        if let Some(only) = self.choose_one(limit) {
            return Some(vec![only]);
        }
        let count = self.workers.len();
        let stages = self.most_stages();
        if stages < 2 {
            return None;
        }
        let need = u64::from(self.layers);
        let [first, middle, last] = [Place::First, Place::Middle, Place::Last].map(|p| self.rooms(p, limit));
        // tail[k][w]: most layers that k workers numbered w or more can hold as the last k of at least k + 1
        // stages; None if no k of them can stand there.
        let mut tail: Vec<Vec<Option<u64>>> = vec![vec![Some(0); count + 1]];
        for k in 1..stages {
            let mut row = vec![None; count + 1];
            for w in (0..count).rev() {
                let here = if k == 1 { last[w] } else { middle[w] };
                let with = tail[k - 1][w + 1].filter(|_| here > 0).map(|rest| rest + here);
                row[w] = with.max(row[w + 1]);
            }
            tail.push(row);
            // Fewest workers first: stop at the first k that will do.
            let fits = |w: usize| first[w] > 0 && tail[k][w + 1].is_some_and(|rest| first[w] + rest >= need);
            if let Some(head) = (0..count).find(|w| fits(*w)) {
                return Some(trace(head, need.saturating_sub(first[head]), k, &middle, &last, &tail));
            }
        }
        None
    }

    /// Most layers `stages >= 2` workers can hold within a limit with the given head and tail.
    fn fits_in_any_order(&self, limit: f64) -> bool {
        self.choose_one(limit).is_some() || {
            let stages = self.most_stages();
            stages >= 2 && Rooms::new(self, limit).ends(stages, u64::from(self.layers)).is_some()
        }
    }

    /// The fewest workers that hold the model in some order within `limit`; of these the lowest-numbered head
    /// and tail, and the roomiest workers between them.
    fn choose_any_order(&self, limit: f64) -> Option<Vec<usize>> {
        if let Some(only) = self.choose_one(limit) {
            return Some(vec![only]);
        }
        let need = u64::from(self.layers);
        let rooms = Rooms::new(self, limit);
        // More stages never hold less, so the fewest are found by bisection.
        let counts: Vec<usize> = (2..=self.most_stages()).collect();
        let at = counts.partition_point(|stages| rooms.ends(*stages, need).is_none());
        let stages = *counts.get(at)?;
        let (head, tail) = rooms.ends(stages, need)?;
        let mut between: Vec<usize> =
            rooms.roomiest.iter().copied().filter(|w| *w != head && *w != tail).take(stages - 2).collect();
        between.sort_unstable();
        Some([head].into_iter().chain(between).chain([tail]).collect())
    }

    /// Layers for these stages, one worker each, and the time of the slowest.
    ///
    /// Every stage starts with one layer; each further layer goes where it ends up fastest. For a fixed set of
    /// stages this is exact. None if they cannot hold all layers.
    fn deal(&self, order: &[usize]) -> Option<(f64, Vec<u32>)> {
        let place = |i: usize| match (i == 0, i + 1 == order.len()) {
            (true, true) => Place::Only,
            (true, false) => Place::First,
            (false, true) => Place::Last,
            (false, false) => Place::Middle,
        };
        let spare = (self.layers as usize).checked_sub(order.len())?;
        let cap = |i: usize| self.cap(order[i], place(i));
        if (0..order.len()).any(|i| cap(i) == 0) {
            return None;
        }
        let mut layers = vec![1u32; order.len()];
        let after = |i: usize, n: u32| self.seconds(order[i], place(i), n);
        for _ in 0..spare {
            let next = (0..order.len())
                .filter(|i| layers[*i] < cap(*i))
                .min_by(|a, b| after(*a, layers[*a] + 1).total_cmp(&after(*b, layers[*b] + 1)))?;
            layers[next] += 1;
        }
        let value = (0..order.len()).map(|i| after(i, layers[i])).fold(0.0, f64::max);
        Some((value, layers))
    }
}

/// Follow the table of [`Problem::choose_in_order`] to the lowest-numbered workers: `k` more after `head`, with
/// room for `need` layers.
fn trace(
    head: usize,
    mut need: u64,
    mut k: usize,
    middle: &[u64],
    last: &[u64],
    tail: &[Vec<Option<u64>>],
) -> Vec<usize> {
    let mut order = vec![head];
    for w in head + 1..last.len() {
        if k == 0 {
            break;
        }
        let here = if k == 1 { last[w] } else { middle[w] };
        if here > 0 && tail[k - 1][w + 1].is_some_and(|rest| here + rest >= need) {
            order.push(w);
            need = need.saturating_sub(here);
            k -= 1;
        }
    }
    order
}

/// What each worker can hold at each place, for stages in any order.
struct Rooms {
    first: Vec<u64>,
    middle: Vec<u64>,
    last: Vec<u64>,
    /// Workers by room in the middle, most first; equal room: lowest number first.
    roomiest: Vec<usize>,
    /// Place of each worker in `roomiest`.
    rank: Vec<usize>,
    /// Room of the first i of `roomiest` together.
    sums: Vec<u64>,
}

impl Rooms {
    fn new(problem: &Problem<'_>, limit: f64) -> Self {
        let [first, middle, last] =
            [Place::First, Place::Middle, Place::Last].map(|p| problem.rooms(p, limit));
        let mut roomiest: Vec<usize> = (0..middle.len()).collect();
        roomiest.sort_by_key(|w| std::cmp::Reverse(middle[*w]));
        let mut rank = vec![0; middle.len()];
        let mut sums = vec![0];
        let mut sum = 0;
        for (at, w) in roomiest.iter().enumerate() {
            rank[*w] = at;
            sum += middle[*w];
            sums.push(sum);
        }
        Self { first, middle, last, roomiest, rank, sums }
    }

    /// The lowest-numbered head and tail with which at most `stages >= 2` workers hold `need` layers.
    fn ends(&self, stages: usize, need: u64) -> Option<(usize, usize)> {
        let workers = 0..self.first.len();
        let heads = workers.clone().filter(|h| self.first[*h] > 0);
        let pairs = heads.flat_map(|h| workers.clone().map(move |t| (h, t)));
        pairs
            .filter(|(h, t)| h != t && self.last[*t] > 0)
            .find(|(h, t)| self.first[*h] + self.last[*t] + self.between(stages - 2, *h, *t) >= need)
    }

    /// Most layers that `count` workers other than `a` and `b` hold in the middle.
    fn between(&self, count: usize, a: usize, b: usize) -> u64 {
        let (near, far) = if self.rank[a] < self.rank[b] { (a, b) } else { (b, a) };
        let mut taken = count;
        let mut left_out = 0;
        for w in [near, far] {
            if self.rank[w] < taken {
                taken += 1;
                left_out += self.middle[w];
            }
        }
        self.sums[taken.min(self.roomiest.len())] - left_out
    }
}

fn spread(value: f64, order: &[usize], dealt: &[u32], workers: usize) -> Partition {
    let mut layers = vec![0; workers];
    for (w, n) in order.iter().zip(dealt) {
        layers[*w] = *n;
    }
    Partition { value, layers }
}
