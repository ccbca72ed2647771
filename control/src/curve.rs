//! The learning curve: bounded, however long the run.

use protocol::view::CurvePoint;

/// Points kept. A chart shows fewer.
const MOST: usize = 4096;

/// Points in the order of their steps. When there are too many, every second one of the older half goes; points with
/// a validation loss stay longest.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Curve {
    points: Vec<CurvePoint>,
}

impl Curve {
    /// A curve of points in the order of their steps.
    pub fn new(points: Vec<CurvePoint>) -> Self {
        let mut curve = Self::default();
        for point in points {
            curve.push(point);
        }
        curve
    }

    /// The points.
    pub fn points(&self) -> &[CurvePoint] {
        &self.points
    }

    /// The newest point.
    pub fn last(&self) -> Option<&CurvePoint> {
        self.points.last()
    }

    /// Adds a point. Points of the same or later steps, which were undone, go.
    pub fn push(&mut self, point: CurvePoint) {
        self.cut_after(point.step.saturating_sub(1));
        self.points.push(point);
        if self.points.len() > MOST {
            self.thin();
        }
    }

    /// Forgets the points of steps after `step`, which were undone.
    pub fn cut_after(&mut self, step: u64) {
        let keep = self.points.partition_point(|point| point.step <= step);
        self.points.truncate(keep);
    }

    fn thin(&mut self) {
        let older = self.points.len() / 2;
        let mut index = 0;
        let mut plain = 0usize;
        self.points.retain(|point| {
            index += 1;
            if index > older || point.validation_loss.is_some() {
                return true;
            }
            plain += 1;
            plain.is_multiple_of(2)
        });
        // Measured at nearly every step: then those go too.
        if self.points.len() > MOST {
            let mut index = 0usize;
            self.points.retain(|_| {
                index += 1;
                index > older || index.is_multiple_of(2)
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn point(step: u64, validation_loss: Option<f64>) -> CurvePoint {
        CurvePoint {
            step,
            train_loss: 1.0,
            validation_loss,
            learning_rate: 0.1,
            tokens_per_second: 1.0,
            evaluation: None,
            participation: None,
        }
    }

    #[test]
    fn a_long_curve_stays_bounded_and_in_order() {
        for every in [1, 10, 1_000_000] {
            let mut curve = Curve::default();
            for step in 1..=50_000 {
                curve.push(point(step, (step % every == 0).then_some(1.0)));
            }
            let points = curve.points();
            assert!(points.len() <= MOST);
            assert!(points.windows(2).all(|pair| pair[0].step < pair[1].step));
            assert_eq!(points.last().unwrap().step, 50_000);
            let newest = points.iter().filter(|p| p.step > 49_000).count();
            assert_eq!(newest, 1000, "the newest are all there");
        }
    }

    #[test]
    fn points_of_undone_steps_go() {
        let mut curve = Curve::new((1..=10).map(|step| point(step, None)).collect());
        curve.cut_after(6);
        assert_eq!(curve.last().unwrap().step, 6);
        curve.push(point(4, None));
        assert_eq!(curve.points().iter().map(|p| p.step).collect::<Vec<_>>(), [1, 2, 3, 4]);
    }
}
