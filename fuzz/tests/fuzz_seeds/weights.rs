//! Parts of snapshots with and without moments, a checkpoint, and its config.

use engine::{
    Device,
    checkpoint::{Checkpoint, config},
    parameters::ParameterSet,
};
use futures::executor::block_on;
use fuzz::weights::{MODEL, whole};
use protocol::spec::Moments;

use crate::Seeds;

pub(crate) fn seeds() -> Seeds {
    let mut set = ParameterSet::draw(&MODEL, &whole(), 1, &Device::Cpu);
    for shape in set.shapes().to_vec() {
        set.add_gradient(&shape.name, &vec![0.5; shape.len()]).unwrap();
    }
    // At no rate, so that the weights stay as they were drawn: the same bits on every processor.
    set.apply(1.0, 0.0, &testkit::fixtures::optimizer()).unwrap();
    let part = |moments| block_on(set.export(moments)).unwrap();
    vec![
        ("real-full".into(), part(Moments::Full)),
        ("real-f16".into(), part(Moments::F16)),
        ("real-none".into(), part(Moments::None)),
        ("real-checkpoint".into(), block_on(Checkpoint::new(&MODEL, &set)).unwrap().weights),
        ("real-config".into(), config(&MODEL).into_bytes()),
    ]
}
