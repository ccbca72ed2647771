//! The outer step: what an aggregated delta does to the weights.

use serde::{Deserialize, Serialize};

use super::AggregateError;

/// What is done with the aggregated delta.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OuterStep {
    /// weights += delta.
    Mean,
    /// SGD with Nesterov momentum on the negative delta: see [`Outer::step`]. As in DiLoCo (Douillard et al.,
    /// <https://arxiv.org/abs/2311.08105>).
    Nesterov {
        /// Of the outer step; 0.7 in DiLoCo.
        learning_rate: f64,
        /// In [0, 1); 0.9 in DiLoCo.
        momentum: f64,
    },
}

/// The outer optimizer of one block or table.
#[derive(Debug, Clone, PartialEq)]
pub struct Outer {
    rule: OuterStep,
    momentum: Option<Vec<f32>>,
}

impl Outer {
    /// Before the first round.
    pub fn new(rule: OuterStep) -> Self {
        Outer { rule, momentum: None }
    }

    /// Goes on with the momentum of [`Outer::momentum`].
    pub fn resume(rule: OuterStep, momentum: Option<Vec<f32>>) -> Self {
        Outer { rule, momentum }
    }

    /// buf, of the length of the weights; none before the first Nesterov step. A snapshot must keep it.
    pub fn momentum(&self) -> Option<&[f32]> {
        self.momentum.as_deref()
    }

    /// Moves the weights `theta` by the aggregated delta:
    ///
    /// ```text
    /// Mean:      theta += delta
    /// Nesterov:  g = -delta;  buf = g in the first round, then momentum * buf + g
    ///            theta -= learning_rate * (g + momentum * buf)
    /// ```
    ///
    /// In f64, rounded once per round.
    ///
    /// # Errors
    /// A delta or a momentum of another length than the weights; nothing is changed then.
    pub fn step(&mut self, theta: &mut [f32], mean_delta: &[f32]) -> Result<(), AggregateError> {
        let expected = theta.len();
        let check = |what, found| {
            if found == expected {
                Ok(())
            } else {
                Err(AggregateError::Length { what, index: 0, found, expected })
            }
        };
        check("delta", mean_delta.len())?;
        match self.rule {
            OuterStep::Mean => {
                for (theta, &delta) in theta.iter_mut().zip(mean_delta) {
                    *theta = (f64::from(*theta) + f64::from(delta)) as f32;
                }
            }
            OuterStep::Nesterov { learning_rate, momentum } => {
                let buffer = self.momentum.get_or_insert_with(|| vec![0.0; expected]);
                check("momentum", buffer.len())?;
                for ((theta, &delta), buffer) in theta.iter_mut().zip(mean_delta).zip(buffer) {
                    // A buffer of zeros makes the first round's buf g.
                    let gradient = -f64::from(delta);
                    let moved = momentum * f64::from(*buffer) + gradient;
                    *theta = (f64::from(*theta) - learning_rate * (gradient + momentum * moved)) as f32;
                    *buffer = moved as f32;
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn outer_steps_follow_their_formulas() {
        let mut theta = [1.0, -2.0];
        let mut outer = Outer::new(OuterStep::Mean);
        outer.step(&mut theta, &[0.5, 0.25]).unwrap();
        assert_eq!((theta, outer.momentum()), ([1.5, -1.75], None));

        let rule = OuterStep::Nesterov { learning_rate: 0.5, momentum: 0.5 };
        let mut outer = Outer::new(rule);
        let mut theta = [0.0];
        outer.step(&mut theta, &[1.0]).unwrap();
        // buf -1; theta 0.5 (1 + 0.5).
        assert_eq!((theta, outer.momentum()), ([0.75], Some(&[-1.0][..])));
        let mut outer = Outer::resume(rule, outer.momentum().map(<[f32]>::to_vec));
        outer.step(&mut theta, &[1.0]).unwrap();
        // buf -1.5; theta 0.75 + 0.5 (1 + 0.75).
        assert_eq!((theta, outer.momentum()), ([1.625], Some(&[-1.5][..])));

        let length = AggregateError::Length { what: "delta", index: 0, found: 2, expected: 1 };
        assert_eq!(outer.step(&mut theta, &[1.0, 1.0]), Err(length));
        let length = AggregateError::Length { what: "momentum", index: 0, found: 1, expected: 2 };
        assert_eq!(outer.step(&mut [1.0, 1.0], &[1.0, 1.0]), Err(length));
    }
}
