//! Loss scaling: gradients are made of the loss times a number, so that small ones do not vanish in half precision, and are divided by it
//! before anything else is made of them.

use std::fmt;
use std::str::FromStr;

use serde::de::value::MapAccessDeserializer;
use serde::de::{self, MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::error::TrainError;
use crate::tensor::format_number;

/// The least that a dynamic scale falls to, as in TensorFlow: gradients that are not finite without a scale are not mended by one.
const LEAST: f32 = 1.0;
/// The largest scale, 2⁹⁶: below its inverse there is room for factors of clipping, before single precision holds no more.
const MOST: f32 = (1_u128 << 96) as f32;
/// Steps in a row that may be skipped at a scale that does not fall any further.
pub(super) const MOST_SKIPPED: u64 = 100;

/// What the loss is multiplied by before gradients are made of it, and gradients are divided by before they are clipped and
/// followed. Where a gradient is not finite, the step is skipped: parameters, optimizer state, averages and running statistics stay as
/// they were, and the optimizer does not count it. The learning rate's schedule does, so that it ends with the last step.
///
/// With a scale that is a power of two, training in single precision makes the same bits as without, as long as no gradient overflows.
///
/// In a file it is `"none"`, `"dynamic"`, a number for all steps, or a table of what differs from the usual settings of a dynamic one:
/// `{ initial = 1024.0, growth_interval = 100 }`.
///
/// ```
/// use tightfit::train::{Config, LossScale};
///
/// let config = Config::default().loss_scale(LossScale::dynamic());
/// assert_eq!("dynamic".parse(), Ok(LossScale::dynamic()));
/// assert_eq!("1024".parse(), Ok(LossScale::Static(1024.0)));
/// # assert_eq!(config.loss_scale, Some(LossScale::dynamic()));
/// ```
///
/// Source: <https://docs.pytorch.org/docs/stable/amp.html#gradient-scaling>, <https://arxiv.org/abs/1710.03740>
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum LossScale {
    /// Gradients are made of the loss as it is.
    #[default]
    None,
    /// One number for all steps, above 0.
    Static(f32),
    /// As large as gradients allow: PyTorch's `GradScaler`, Keras's `LossScaleOptimizer`.
    Dynamic {
        /// The scale of the first step, at least 1.
        initial: f32,
        /// So many good steps in a row make it grow.
        growth_interval: u64,
        /// What it is multiplied by then, unless that were more than 2⁹⁶; above 1.
        growth_factor: f32,
        /// What it is multiplied by where a gradient is not finite, but it never falls below 1; in 0..1.
        backoff_factor: f32,
    },
}

/// The settings of a dynamic scale in a file.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Table {
    #[serde(default = "usual::initial")]
    initial: f32,
    #[serde(default = "usual::growth_interval")]
    growth_interval: u64,
    #[serde(default = "usual::growth_factor")]
    growth_factor: f32,
    #[serde(default = "usual::backoff_factor")]
    backoff_factor: f32,
}

/// PyTorch's defaults.
mod usual {
    pub(super) fn initial() -> f32 {
        65_536.0
    }

    pub(super) fn growth_interval() -> u64 {
        2000
    }

    pub(super) fn growth_factor() -> f32 {
        2.0
    }

    pub(super) fn backoff_factor() -> f32 {
        0.5
    }
}

impl LossScale {
    /// A dynamic one with PyTorch's defaults: from 65,536 on, twice as much after 2,000 good steps in a row, half as much where a gradient
    /// is not finite.
    pub fn dynamic() -> Self {
        LossScale::Dynamic {
            initial: usual::initial(),
            growth_interval: usual::growth_interval(),
            growth_factor: usual::growth_factor(),
            backoff_factor: usual::backoff_factor(),
        }
    }

    /// Whether there is one.
    pub(super) fn is_on(self) -> bool {
        self != LossScale::None
    }

    /// Whether it can be.
    ///
    /// # Errors
    /// [`TrainError::Setting`] where a number is out of its range.
    pub fn check(self) -> Result<(), TrainError> {
        let refuse = |name: &str, value: &dyn fmt::Debug, needed: &str| {
            Err(TrainError::Setting(format!("{name} = {value:?} is not possible: it must be {needed}")))
        };
        match self {
            LossScale::Static(scale) if !(1.0 / MOST..=MOST).contains(&scale) => {
                refuse("loss_scale", &scale, "from 1.3e-29 to 7.9e28")
            }
            LossScale::Dynamic { initial, .. } if !(LEAST..=MOST).contains(&initial) => {
                refuse("loss_scale: initial", &initial, "from 1 to 7.9e28")
            }
            LossScale::Dynamic { growth_interval: 0, .. } => {
                refuse("loss_scale: growth_interval", &0, "1 step or more")
            }
            LossScale::Dynamic { growth_factor, .. } if !(growth_factor > 1.0 && growth_factor.is_finite()) => {
                refuse("loss_scale: growth_factor", &growth_factor, "above 1")
            }
            LossScale::Dynamic { backoff_factor, .. } if !(backoff_factor > 0.0 && backoff_factor < 1.0) => {
                refuse("loss_scale: backoff_factor", &backoff_factor, "above 0 and below 1")
            }
            _ => Ok(()),
        }
    }
}

/// As files write it, but for settings of a dynamic one.
impl fmt::Display for LossScale {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LossScale::None => f.write_str("none"),
            LossScale::Static(scale) => write!(f, "{scale:?}"),
            LossScale::Dynamic { .. } => f.write_str("dynamic"),
        }
    }
}

impl FromStr for LossScale {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let scale = match text.trim().to_ascii_lowercase().as_str() {
            "none" => LossScale::None,
            "dynamic" => LossScale::dynamic(),
            number => LossScale::Static(number.parse().map_err(|_| "it must be dynamic, none or a number".to_owned())?),
        };
        scale.check().map_err(|error| error.to_string())?;
        Ok(scale)
    }
}

impl Serialize for LossScale {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match *self {
            LossScale::Static(scale) => serializer.serialize_f32(scale),
            LossScale::Dynamic { initial, growth_interval, growth_factor, backoff_factor }
                if *self != LossScale::dynamic() =>
            {
                Table { initial, growth_interval, growth_factor, backoff_factor }.serialize(serializer)
            }
            LossScale::None | LossScale::Dynamic { .. } => serializer.collect_str(self),
        }
    }
}

impl<'de> Deserialize<'de> for LossScale {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct NumberNameOrTable;
        impl<'de> Visitor<'de> for NumberNameOrTable {
            type Value = LossScale;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("\"dynamic\", \"none\", a number, or a table of the settings of a dynamic scale")
            }

            fn visit_i64<E: de::Error>(self, scale: i64) -> Result<LossScale, E> {
                self.visit_f64(scale as f64)
            }

            fn visit_u64<E: de::Error>(self, scale: u64) -> Result<LossScale, E> {
                self.visit_f64(scale as f64)
            }

            fn visit_f64<E: de::Error>(self, scale: f64) -> Result<LossScale, E> {
                Ok(LossScale::Static(scale as f32))
            }

            fn visit_str<E: de::Error>(self, name: &str) -> Result<LossScale, E> {
                name.parse().map_err(E::custom)
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<LossScale, A::Error> {
                let Table { initial, growth_interval, growth_factor, backoff_factor } =
                    Table::deserialize(MapAccessDeserializer::new(map))?;
                Ok(LossScale::Dynamic { initial, growth_interval, growth_factor, backoff_factor })
            }
        }
        deserializer.deserialize_any(NumberNameOrTable)
    }
}

/// Where the scaling of a training is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct ScalingState {
    /// The scale at hand, of a dynamic one.
    scale: Option<f32>,
    /// Good steps in a row since it changed.
    good_steps: u64,
    /// The last steps in a row that were skipped.
    skipped_in_row: u64,
    /// All that were skipped.
    skipped_steps: u64,
}

impl ScalingState {
    /// Steps that were skipped.
    pub(super) fn skipped_steps(&self) -> u64 {
        self.skipped_steps
    }
}

/// The scaling of a training.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Scaling {
    setting: LossScale,
    pub(super) state: ScalingState,
}

impl Scaling {
    pub(super) fn new(setting: LossScale) -> Self {
        let mut scaling = Scaling::default();
        scaling.set(setting);
        scaling
    }

    /// Goes on with another setting. What was skipped stays so.
    pub(super) fn set(&mut self, setting: LossScale) {
        if setting != self.setting {
            let scale = match setting {
                LossScale::Dynamic { initial, .. } => Some(initial),
                LossScale::None | LossScale::Static(_) => None,
            };
            let skipped_steps = self.state.skipped_steps;
            *self = Scaling { setting, state: ScalingState { scale, skipped_steps, ..ScalingState::default() } };
        }
    }

    /// Goes on from there. A dynamic scale begins anew where that had none.
    pub(super) fn take_up(&mut self, state: ScalingState) {
        let is_possible = |scale: f32| (LEAST..=MOST).contains(&scale);
        if self.state.scale.is_some() == state.scale.is_some_and(is_possible) {
            self.state = ScalingState { scale: self.state.scale.and(state.scale), ..state };
        } else {
            self.state.skipped_steps = state.skipped_steps;
        }
    }

    /// Whether there is one.
    pub(super) fn is_on(&self) -> bool {
        self.setting.is_on()
    }

    /// The scale of the next step.
    pub(super) fn scale(&self) -> Option<f32> {
        match self.setting {
            LossScale::None => None,
            LossScale::Static(scale) => Some(scale),
            LossScale::Dynamic { .. } => self.state.scale,
        }
    }

    /// Steps that were skipped.
    pub(super) fn skipped_steps(&self) -> u64 {
        self.state.skipped_steps
    }

    /// The last steps that were, one after the other.
    pub(super) fn skipped_in_row(&self) -> u64 {
        self.state.skipped_in_row
    }

    /// Whether the next step hardly makes a difference: too many were skipped, and the scale does not fall any further.
    pub(super) fn is_stuck(&self) -> bool {
        self.state.skipped_in_row >= MOST_SKIPPED && self.state.scale.is_none_or(|scale| scale <= LEAST)
    }

    /// At which scale that is so.
    pub(super) fn words(&self) -> String {
        match self.setting {
            LossScale::Dynamic { .. } => format!("although the loss scale fell to {}", format_number(LEAST)),
            LossScale::None => "without a loss scale".to_owned(),
            LossScale::Static(scale) => format!("with a loss scale of {}", format_number(scale)),
        }
    }

    /// What follows a step whose gradients are finite, or not.
    #[must_use]
    pub(super) fn after(mut self, are_finite: bool) -> Self {
        let state = &mut self.state;
        state.skipped_in_row = if are_finite { 0 } else { state.skipped_in_row + 1 };
        state.skipped_steps += u64::from(!are_finite);
        if let (LossScale::Dynamic { growth_interval, growth_factor, backoff_factor, .. }, Some(scale)) =
            (self.setting, &mut state.scale)
        {
            state.good_steps = if are_finite { state.good_steps + 1 } else { 0 };
            if !are_finite {
                *scale = (*scale * backoff_factor).max(LEAST);
            } else if state.good_steps >= growth_interval {
                state.good_steps = 0;
                if *scale * growth_factor <= MOST {
                    *scale *= growth_factor;
                }
            }
        }
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn dynamic(initial: f32, growth_interval: u64) -> LossScale {
        LossScale::Dynamic { initial, growth_interval, growth_factor: 2.0, backoff_factor: 0.5 }
    }

    #[test]
    fn a_scale_grows_after_good_steps_and_falls_where_gradients_overflow() {
        let mut scaling = Scaling::new(dynamic(8.0, 3));
        let mut seen = Vec::new();
        for outcome in "++-+++--++-+++++++".chars() {
            scaling = scaling.after(outcome == '+');
            seen.push(scaling.scale().expect("dynamic"));
        }
        let expected = [8., 8., 4., 4., 4., 8., 4., 2., 2., 2., 1., 1., 1., 2., 2., 2., 4., 4.];
        assert_eq!(seen, expected);
        assert_eq!((scaling.skipped_steps(), scaling.state.good_steps), (4, 1));
    }

    #[test]
    fn a_scale_stays_within_its_bounds() {
        let mut scaling = Scaling::new(dynamic(MOST / 3.0, 1));
        for _ in 0..3 {
            scaling = scaling.after(true);
        }
        assert_eq!(scaling.scale(), Some(MOST / 3.0 * 2.0));
        assert!((1.0 / MOST).is_normal() && MOST.is_finite());
        for skipped in 1..=200 {
            scaling = scaling.after(false);
            // It takes 96 steps to fall from there.
            assert_eq!(scaling.is_stuck(), skipped >= MOST_SKIPPED, "{skipped}");
        }
        assert_eq!(scaling.scale(), Some(1.0));
        assert!(!scaling.after(true).is_stuck());
        // From higher up the scale still falls after so many.
        let slow = LossScale::Dynamic { initial: MOST, growth_interval: 1, growth_factor: 2.0, backoff_factor: 0.9 };
        let mut slow = Scaling::new(slow);
        for _ in 0..MOST_SKIPPED {
            slow = slow.after(false);
        }
        assert!(!slow.is_stuck() && slow.scale() > Some(1.0));
    }

    #[test]
    fn another_setting_begins_anew_and_keeps_what_was_skipped() {
        let mut scaling = Scaling::new(dynamic(8.0, 3)).after(true).after(false).after(true);
        scaling.set(dynamic(8.0, 3));
        assert_eq!(
            scaling.state,
            ScalingState { scale: Some(4.0), good_steps: 1, skipped_in_row: 0, skipped_steps: 1 }
        );
        let state = scaling.state;
        scaling.set(dynamic(16.0, 3));
        assert_eq!((scaling.scale(), scaling.state.good_steps, scaling.skipped_steps()), (Some(16.0), 0, 1));
        scaling.take_up(state);
        assert_eq!((scaling.scale(), scaling.state.good_steps), (Some(4.0), 1));
        scaling.set(LossScale::Static(2.0));
        scaling.take_up(state);
        assert_eq!((scaling.scale(), scaling.state.good_steps, scaling.skipped_steps()), (Some(2.0), 0, 1));
        assert_eq!(Scaling::new(LossScale::None).after(true).scale(), None);
    }

    #[test]
    fn settings_are_read_as_they_are_written() {
        let other = dynamic(1024.0, 100);
        let texts = ["\"none\"", "\"dynamic\"", "0.5"];
        for (setting, text) in [LossScale::None, LossScale::dynamic(), LossScale::Static(0.5)].into_iter().zip(texts) {
            assert_eq!(serde_json::to_string(&setting).expect("writes"), text);
            assert_eq!(serde_json::from_str::<LossScale>(text).expect("reads"), setting);
        }
        let text = serde_json::to_string(&other).expect("writes");
        assert_eq!(serde_json::from_str::<LossScale>(&text).expect("reads"), other);
        let part = r#"{"initial": 1024, "growth_interval": 100}"#;
        assert_eq!(serde_json::from_str::<LossScale>(part).expect("reads"), other);
        assert_eq!(serde_json::from_str::<LossScale>("1024").expect("reads"), LossScale::Static(1024.0));
        for (text, words) in [
            ("\"auto\"", "it must be dynamic, none or a number"),
            ("true", "\"dynamic\", \"none\", a number"),
            (r#"{"interval": 3}"#, "growth_interval"),
        ] {
            let error = serde_json::from_str::<LossScale>(text).expect_err(text).to_string();
            assert!(error.contains(words), "{error}");
        }
    }

    #[test]
    fn settings_that_make_no_sense_are_refused() {
        let of = |initial, growth_interval, growth_factor, backoff_factor| LossScale::Dynamic {
            initial,
            growth_interval,
            growth_factor,
            backoff_factor,
        };
        for (setting, words) in [
            (LossScale::Static(0.0), "loss_scale = 0.0 is not possible: it must be from 1.3e-29 to 7.9e28"),
            (LossScale::Static(f32::NAN), "loss_scale = NaN"),
            (LossScale::Static(f32::INFINITY), "loss_scale = inf"),
            (of(0.5, 1, 2.0, 0.5), "loss_scale: initial = 0.5"),
            (of(1.0, 0, 2.0, 0.5), "loss_scale: growth_interval = 0"),
            (of(1.0, 1, 1.0, 0.5), "loss_scale: growth_factor = 1.0"),
            (of(1.0, 1, 2.0, 1.0), "loss_scale: backoff_factor = 1.0"),
        ] {
            let error = setting.check().expect_err(words).to_string();
            assert!(error.contains(words), "{error}");
        }
        assert!(LossScale::dynamic().check().is_ok() && LossScale::Static(1e-20).check().is_ok());
    }
}
