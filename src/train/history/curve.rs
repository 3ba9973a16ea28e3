//! A value over any number of steps, in bounded memory.

use serde::{Deserialize, Serialize};

use super::exact::{Number, canonical, same};

/// Points of a curve.
const MOST_POINTS: usize = 1024;

/// What some steps one after the other reported.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
#[serde(from = "Row", into = "Row")]
pub struct CurvePoint {
    /// The last of them.
    pub step: u64,
    /// How many.
    pub count: u64,
    /// The sum of their values.
    pub sum: f64,
    /// The smallest of them, NaN where one is.
    pub min: f64,
    /// The largest of them, NaN where one is.
    pub max: f64,
}

/// A point in JSON.
type Row = (u64, u64, Number, Number, Number);

impl From<Row> for CurvePoint {
    fn from((step, count, sum, min, max): Row) -> Self {
        CurvePoint { step, count, sum: sum.0, min: min.0, max: max.0 }
    }
}

impl From<CurvePoint> for Row {
    fn from(CurvePoint { step, count, sum, min, max }: CurvePoint) -> Self {
        (step, count, Number(sum), Number(min), Number(max))
    }
}

/// Bit for bit, so that a value that is not a number equals itself.
impl PartialEq for CurvePoint {
    fn eq(&self, other: &Self) -> bool {
        (self.step, self.count) == (other.step, other.count)
            && same(self.sum, other.sum)
            && same(self.min, other.min)
            && same(self.max, other.max)
    }
}

impl CurvePoint {
    fn one(step: u64, value: f64) -> Self {
        let value = canonical(value);
        CurvePoint { step, count: 1, sum: value, min: value, max: value }
    }

    /// The mean of their values.
    pub fn mean(&self) -> f64 {
        self.sum / self.count as f64
    }

    /// With the steps of a point after it.
    fn with(self, next: CurvePoint) -> CurvePoint {
        // `f64::min` leaves NaN out.
        let pick = |a: f64, b: f64, of: fn(f64, f64) -> f64| if a.is_nan() || b.is_nan() { f64::NAN } else { of(a, b) };
        CurvePoint {
            step: next.step,
            count: self.count + next.count,
            sum: canonical(self.sum + next.sum),
            min: pick(self.min, next.min, f64::min),
            max: pick(self.max, next.max, f64::max),
        }
    }
}

/// What steps report of one value, in at most 1,024 points. When all are full, neighbours are merged in pairs, and a point is full at
/// twice as many reports.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "Kept")]
pub struct Curve {
    interval: u64,
    points: Vec<CurvePoint>,
}

/// A curve as it is read, before it is checked.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Kept {
    interval: u64,
    points: Vec<CurvePoint>,
}

impl TryFrom<Kept> for Curve {
    type Error = String;

    fn try_from(Kept { interval, points }: Kept) -> Result<Self, String> {
        if !interval.is_power_of_two() {
            return Err(format!("a curve's interval is a power of two, found {interval}"));
        }
        let last = points.len().saturating_sub(1);
        let is_full =
            |(at, point): (usize, &CurvePoint)| point.count == interval || (at == last && point.count < interval);
        let is_right = points.len() <= MOST_POINTS
            && points.iter().enumerate().all(is_full)
            && points.iter().all(|point| point.count > 0)
            && points.is_sorted_by(|a, b| a.step < b.step);
        if !is_right {
            return Err("a curve's points are not those of any run: the file is damaged".to_owned());
        }
        Ok(Curve { interval, points })
    }
}

impl Default for Curve {
    fn default() -> Self {
        Curve { interval: 1, points: Vec::new() }
    }
}

impl Curve {
    /// Adds what a step reports; one that is not after the last is left out.
    pub(super) fn push(&mut self, step: u64, value: f64) {
        let next = CurvePoint::one(step, value);
        match self.points.last_mut() {
            Some(last) if step <= last.step => return,
            Some(last) if last.count < self.interval => {
                *last = last.with(next);
                return;
            }
            _ => {}
        }
        if self.points.len() == MOST_POINTS {
            let merged = |pair: &[CurvePoint]| pair[1..].iter().fold(pair[0], |a, &b| a.with(b));
            self.points = self.points.chunks(2).map(merged).collect();
            self.interval *= 2;
        }
        self.points.push(next);
    }

    /// The points, in order of steps; the last may still be filling.
    pub fn points(&self) -> &[CurvePoint] {
        &self.points
    }

    /// Reports that make up a full point.
    pub fn interval(&self) -> u64 {
        self.interval
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_curve_has_all_steps_in_few_points() {
        let mut curve = Curve::default();
        for step in 1..=10_000_u64 {
            curve.push(step, step as f64);
            let points = curve.points();
            assert!(points.len() <= MOST_POINTS);
            assert_eq!(points.iter().map(|point| point.count).sum::<u64>(), step);
            assert_eq!(points.last().expect("a point").step, step);
        }
        assert_eq!(curve.interval(), 16);
        let first = curve.points()[0];
        assert_eq!((first.step, first.count, first.mean(), first.min, first.max), (16, 16, 8.5, 1.0, 16.0));
        curve.push(10_000, 0.0);
        curve.push(5, 0.0);
        assert_eq!(curve.points().iter().map(|point| point.count).sum::<u64>(), 10_000);
    }

    #[test]
    fn what_is_not_finite_stays_visible() {
        let mut curve = Curve::default();
        for step in 1..=2 * MOST_POINTS as u64 {
            curve.push(step, if step == 7 { f64::NAN } else { 1.0 });
        }
        let wrong: Vec<_> = curve.points().iter().filter(|point| !point.mean().is_finite()).collect();
        assert!(wrong.len() == 1 && wrong[0].step == 8 && wrong[0].min.is_nan() && wrong[0].max.is_nan());
    }
}
