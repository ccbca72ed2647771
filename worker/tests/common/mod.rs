//! A coordinator that says what a test tells it to, a store, and a virtual clock, around the real session.
//!
//! [`play`] runs a script beside the session until both are done. Time passes only when nothing else can happen, so a
//! session that hangs is found at once: nothing is left to wake it.
#![allow(dead_code)]

pub mod clock;
pub mod coordinator;
pub mod store;

use std::{cell::RefCell, rc::Rc};

use engine::Device;
use futures::{channel::oneshot, executor::LocalPool, task::LocalSpawnExt};
use protocol::{
    VERSION,
    message::{DeviceStatus, Hello, LinkSpeed, PassSeconds, Profile, WorkerKind},
    spec::Backend,
    tab::SessionEvent,
};
use worker::{
    End, Leave,
    devices::{Candidate, Devices},
    platform::{self, Platform},
};

use clock::{Clock, Time};
use coordinator::{Coordinator, Network};
use store::{Blobs, Store};

/// No test needs more of the virtual clock.
const LIMIT: f64 = 1e5;

/// What a script holds in its hands.
#[derive(Clone)]
pub struct World {
    pub time: Rc<Time>,
    pub coordinator: Coordinator,
    pub store: Rc<Store>,
    pub events: Rc<RefCell<Vec<(f64, SessionEvent)>>>,
    leave: Rc<RefCell<Option<oneshot::Sender<()>>>>,
}

impl World {
    /// The person leaves.
    pub fn leave(&self) {
        self.leave.borrow_mut().take();
    }

    /// Waits until the session has told something.
    pub async fn told<T>(&self, find: impl Fn(&SessionEvent) -> Option<T>) -> T {
        loop {
            if let Some(found) = self.events.borrow().iter().find_map(|(_, event)| find(event)) {
                return found;
            }
            self.time.sleep(0.01).await;
        }
    }
}

struct Reporter {
    time: Rc<Time>,
    events: Rc<RefCell<Vec<(f64, SessionEvent)>>>,
}

impl platform::Reporter for Reporter {
    fn tell(&self, event: SessionEvent) {
        self.events.borrow_mut().push((self.time.now(), event));
    }

    fn status(&self) -> DeviceStatus {
        DeviceStatus { memory_bytes: 4096, pressure: None }
    }
}

/// How a session went.
pub struct Played<T> {
    /// What the script gave.
    pub script: T,
    pub end: End,
    /// When the session ended.
    pub ended_at: f64,
    pub events: Vec<(f64, SessionEvent)>,
}

/// A profile that is not measured.
pub fn described() -> Devices {
    let pass = PassSeconds { forward: 0.1, backward: 0.2 };
    let profile = Profile {
        backend: Backend::Cpu,
        device: "described".into(),
        threads: 1,
        memory_bytes: 0,
        layer: pass,
        embedding: pass,
        head_seconds: 0.3,
        link: None::<LinkSpeed>,
    };
    Devices::described(profile, Device::Cpu)
}

/// The processor, to be measured.
pub fn measured() -> Devices {
    let cpu = Candidate { backend: Backend::Cpu, description: "CPU".into(), largest_buffer: None };
    Devices::new(vec![cpu], 1, 0)
}

/// Plays a session with a described device.
pub fn play<T: 'static>(script: impl AsyncFnOnce(World) -> T + 'static) -> Played<T> {
    play_on(described(), script)
}

/// Plays a session until it has ended and the script is done.
///
/// # Panics
/// When neither can go on.
pub fn play_on<T: 'static>(devices: Devices, script: impl AsyncFnOnce(World) -> T + 'static) -> Played<T> {
    let time = Rc::new(Time::default());
    let (ask, leave) = Leave::new();
    let world = World {
        coordinator: Coordinator::new(time.clone()),
        store: Rc::new(Store::new(time.clone())),
        events: Rc::default(),
        leave: Rc::new(RefCell::new(Some(ask))),
        time: time.clone(),
    };
    let platform = Platform {
        network: Network(world.coordinator.clone()),
        clock: Clock(time.clone()),
        blobs: Blobs(world.store.clone()),
        reporter: Reporter { time: time.clone(), events: world.events.clone() },
    };
    let hello =
        Hello { protocol: VERSION, build: "test".into(), kind: WorkerKind::Native, name: "virtual".into() };
    let (end, done) = (Rc::new(RefCell::new(None)), Rc::new(RefCell::new(None)));
    let mut pool = LocalPool::new();
    let spawner = pool.spawner();
    spawner
        .spawn_local({
            let (end, time) = (end.clone(), time.clone());
            async move {
                let how = worker::run(&platform, hello, devices, leave).await;
                *end.borrow_mut() = Some((how, time.now()));
            }
        })
        .unwrap();
    spawner
        .spawn_local({
            let (done, world) = (done.clone(), world.clone());
            async move { *done.borrow_mut() = Some(script(world).await) }
        })
        .unwrap();
    loop {
        pool.run_until_stalled();
        let both = end.borrow().is_some() && done.borrow().is_some();
        if both {
            break;
        }
        let ended = end.borrow().is_some();
        let events = || {
            world
                .events
                .borrow()
                .iter()
                .map(|(at, event)| format!("{at:9.3} {event:?}\n"))
                .collect::<String>()
        };
        assert!(time.advance(), "nothing can happen any more; session ended: {ended}\n{}", events());
        assert!(time.now() < LIMIT, "it goes on for ever; session ended: {ended}\n{}", events());
    }
    let (end, ended_at) = end.take().unwrap();
    let script = done.take().unwrap();
    Played { script, end, ended_at, events: world.events.take() }
}
