//! A number that no run can have is refused by the name of its field, in every message.

#![allow(clippy::unwrap_used)]

mod common;

use std::fmt::Debug;

use common::{Sent, framed, from_worker, to_worker};
use proptest::{prelude::*, sample::Index};
use protocol::{
    checked::{FieldError, Problem},
    frame::{self, FrameError},
    limits,
    message::{FrameHeader, FromWorker, LinkSpeed, PassSeconds, Profile, Up},
    spec::Backend,
};
use serde_json::Value;

/// Floating-point numbers that are possible nowhere. Beyond all limits but [`WITHOUT_UPPER_LIMIT`].
const IMPOSSIBLE: [f64; 5] = [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, -1e30, 1e120];

/// Any positive number is possible here: the organizer may well turn clipping off by a huge one.
const WITHOUT_UPPER_LIMIT: &str = "Welcome.run.optimizer.clip_norm";

/// Stands for the number to replace. No field that the strategies draw has its bytes: at 1.5e16 it is possible in few,
/// and exact in f32 as in f64.
const MARK: f32 = f32::from_bits(0x5a5b_5c5d);

/// Every floating-point number in `value`, with the names of the fields that lead to it.
fn floats<'a>(value: &'a mut Value, path: &str, found: &mut Vec<(String, &'a mut Value)>) {
    match value {
        Value::Number(number) if number.is_f64() => found.push((path.to_owned(), value)),
        // The entries of a list go by its name.
        Value::Array(entries) => entries.iter_mut().for_each(|entry| floats(entry, path, found)),
        Value::Object(fields) => {
            for (name, field) in fields {
                let path = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
                floats(field, &path, found);
            }
        }
        _ => {}
    }
}

/// The header of `message` with the given bytes in place of [`MARK`], whichever width it has there.
fn replaced<M: FrameHeader>(message: &M, value: f64) -> Vec<u8> {
    let mut header = postcard::to_stdvec(message).unwrap();
    let (wide, narrow) = (f64::from(MARK).to_le_bytes(), MARK.to_le_bytes());
    let places = |header: &[u8], mark: &[u8]| {
        (0..header.len()).filter(|&at| header[at..].starts_with(mark)).collect::<Vec<_>>()
    };
    if let [at] = places(&header, &wide)[..] {
        header[at..at + 8].copy_from_slice(&value.to_le_bytes());
    } else if let [at] = places(&header, &narrow)[..] {
        header[at..at + 4].copy_from_slice(&(value as f32).to_le_bytes());
    } else {
        panic!("the mark has no place of its own in {header:?}");
    }
    header
}

/// Puts each impossible number into one of the message's floating-point fields. JSON knows what the fields are called
/// but no NaN, postcard the other way round: so a mark is put in through one, and replaced in the other.
fn impossible_numbers_are_refused<M: FrameHeader + Debug>(
    sent: &Sent<M>,
    which: Index,
) -> Result<(), TestCaseError> {
    let mut json = serde_json::to_value(&sent.message).unwrap();
    let mut found = Vec::new();
    // Without the name of the way, as in the errors.
    let message = json.as_object_mut().unwrap().values_mut().next().unwrap();
    floats(message, "", &mut found);
    if found.is_empty() {
        return Ok(());
    }
    let which = which.index(found.len());
    let (path, place) = &mut found[which];
    **place = f64::from(MARK).into();
    let path = path.clone();
    let marked: M = serde_json::from_value(json).unwrap();

    for value in IMPOSSIBLE {
        if value.is_finite() && value > 0.0 && path == WITHOUT_UPPER_LIMIT {
            continue;
        }
        let header = replaced(&marked, value);
        let FrameError::Field(error) = frame::decode::<M>(&framed(&header, &sent.payload)).unwrap_err()
        else {
            panic!("{path} with {value} is refused for something else");
        };
        prop_assert_eq!(&error.field, &path);
        prop_assert!(matches!(error.problem, Problem::OutOfRange { .. }), "{error}");
        // Its own program does not send it either.
        let message: M = postcard::from_bytes(&header).unwrap();
        let FrameError::Field(own) = frame::encode(&message, &sent.payload).unwrap_err() else {
            panic!("{path} with {value} is sent");
        };
        // NaN differs from itself.
        prop_assert_eq!(format!("{own:?}"), format!("{error:?}"));
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn impossible_numbers_are_refused_in_every_field(
        up in from_worker(), down in to_worker(), which in any::<Index>(),
    ) {
        impossible_numbers_are_refused(&up, which)?;
        impossible_numbers_are_refused(&down, which)?;
    }
}

fn profile() -> Profile {
    let pass = PassSeconds { forward: 0.01, backward: 0.02 };
    Profile {
        backend: Backend::Cpu,
        device: "processor".into(),
        threads: 8,
        memory_bytes: 1 << 32,
        layer: pass,
        embedding: pass,
        head_seconds: 0.03,
        link: Some(LinkSpeed { round_trip_seconds: 0.0, up: 1e6, down: 1e7 }),
    }
}

/// What a profile is refused for.
fn refused(profile: Profile) -> FieldError {
    match frame::encode(&FromWorker::Up(Up::Profile(profile)), &[]).unwrap_err() {
        FrameError::Field(error) => error,
        other => panic!("{other}"),
    }
}

#[test]
fn a_hostile_profile_is_refused_in_each_field() {
    assert!(frame::encode(&FromWorker::Up(Up::Profile(profile())), &[]).is_ok());

    type Set = fn(&mut Profile, f64);
    let numbers: [(&str, Set); 8] = [
        ("layer.forward", |profile, value| profile.layer.forward = value),
        ("layer.backward", |profile, value| profile.layer.backward = value),
        ("embedding.forward", |profile, value| profile.embedding.forward = value),
        ("embedding.backward", |profile, value| profile.embedding.backward = value),
        ("head_seconds", |profile, value| profile.head_seconds = value),
        ("link.round_trip_seconds", |profile, value| {
            profile.link.as_mut().unwrap().round_trip_seconds = value;
        }),
        ("link.up", |profile, value| profile.link.as_mut().unwrap().up = value),
        ("link.down", |profile, value| profile.link.as_mut().unwrap().down = value),
    ];
    for (field, set) in numbers {
        for value in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, -0.001, 1e300] {
            let mut hostile = profile();
            set(&mut hostile, value);
            let error = refused(hostile);
            assert_eq!(error.field, format!("Profile.{field}"), "{value}");
            assert!(matches!(error.problem, Problem::OutOfRange { .. }), "{error}");
        }
    }
    // What is divided by is more than nothing.
    for (field, set) in numbers.into_iter().filter(|(field, _)| *field != "link.round_trip_seconds") {
        let mut hostile = profile();
        set(&mut hostile, 0.0);
        assert_eq!(refused(hostile).field, format!("Profile.{field}"));
    }

    let error = refused(Profile { threads: u32::MAX, ..profile() });
    let problem = Problem::TooLarge { value: u32::MAX.into(), limit: limits::THREADS };
    assert_eq!(error, FieldError { field: "Profile.threads".into(), problem });
    assert_eq!(error.to_string(), "Profile.threads is 4294967295: at most 65536 is possible");

    let error = refused(Profile { memory_bytes: u64::MAX, ..profile() });
    let problem = Problem::TooLarge { value: u64::MAX, limit: limits::MEMORY_BYTES };
    assert_eq!(error, FieldError { field: "Profile.memory_bytes".into(), problem });

    let error = refused(Profile { device: "x".repeat(limits::LABEL + 1), ..profile() });
    assert_eq!(error.field, "Profile.device");

    let mut infinite = profile();
    infinite.head_seconds = f64::INFINITY;
    assert_eq!(
        refused(infinite).to_string(),
        "Profile.head_seconds is inf: send a finite number from 1e-9 to 10000000"
    );
}
