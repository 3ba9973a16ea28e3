//! All augmentations as settings: a table of a run file, or a line.

use std::fmt;
use std::str::FromStr;

use serde::de::{self, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::{Map, Value};

use super::geometry::{Fill, FillMode, Interpolation};
use super::interval::Interval;
use super::{ColorJitter, CutMix, MixUp, RandomAffine, RandomChoice, RandomErasing, RandomFlip, RandomResizedCrop};
use crate::data::{BatchTransform, Features, TargetKind, Transform};
use crate::error::{DataError, unknown};

/// How much something is changed: by up to so much in both directions, or from one number to another.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Amount {
    /// Up to so much more or less than what changes nothing.
    UpTo(f64),
    /// From one number to another.
    Between(f64, f64),
}

impl Amount {
    /// The interval, where `nothing` changes nothing.
    fn around(self, nothing: f64) -> Interval {
        match self {
            Amount::UpTo(distance) => Interval::around(nothing, distance),
            Amount::Between(low, high) => Interval { low, high },
        }
    }
}

impl Serialize for Amount {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Amount::UpTo(distance) => distance.serialize(serializer),
            Amount::Between(low, high) => [low, high].serialize(serializer),
        }
    }
}

impl<'de> Deserialize<'de> for Amount {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Numbers;
        impl<'de> Visitor<'de> for Numbers {
            type Value = Amount;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a number, or the lowest and the highest one")
            }

            fn visit_f64<E: de::Error>(self, number: f64) -> Result<Amount, E> {
                Ok(Amount::UpTo(number))
            }

            fn visit_i64<E: de::Error>(self, number: i64) -> Result<Amount, E> {
                Ok(Amount::UpTo(number as f64))
            }

            fn visit_u64<E: de::Error>(self, number: u64) -> Result<Amount, E> {
                Ok(Amount::UpTo(number as f64))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut numbers: A) -> Result<Amount, A::Error> {
                match (numbers.next_element()?, numbers.next_element()?, numbers.next_element::<f64>()?) {
                    (Some(low), Some(high), None) => Ok(Amount::Between(low, high)),
                    (low, ..) => Err(de::Error::invalid_length(usize::from(low.is_some()), &self)),
                }
            }
        }
        deserializer.deserialize_any(Numbers)
    }
}

macro_rules! settings {
    ($($(#[$doc:meta])* $name:ident: $kind:ty,)*) => {
        /// Which augmentations there are, and how strong: what stands in the table `[augment]` of a run file. Without a setting, nothing is
        /// changed.
        ///
        /// As text it is a list of settings: `rotation=10,zoom=0.9..1.1,mixup=0.2`. There `flip` stands for `horizontal_flip=0.5`, and
        /// `jitter=0.2` for the same `brightness`, `contrast` and `saturation`.
        ///
        /// Samples are cropped, flipped, moved (rotation, shear, zoom and shift at once), then changed in colour, then erased; last, batches
        /// are mixed.
        ///
        /// ```
        /// use tightfit::data::Features;
        /// use tightfit::data::augment::Augmentation;
        /// use tightfit::tensor::DType;
        ///
        /// let augmentation: Augmentation = "flip,rotation=10,zoom=0.1,fill_mode=constant,mixup=0.2".parse()?;
        /// assert_eq!(augmentation.rotation.map(|rotation| rotation.to_string()), Some("10".to_owned()));
        /// let images = Features::new(DType::U8, [3, 32, 32]).with_labels(10, []);
        /// let (transforms, batch_transforms) = augmentation.transforms(&images)?;
        /// assert_eq!((transforms.len(), batch_transforms.len()), (2, 1));
        /// assert!("rotate=10".parse::<Augmentation>().is_err());
        /// # Ok::<(), tightfit::error::DataError>(())
        /// ```
        #[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
        #[serde(default, deny_unknown_fields)]
        pub struct Augmentation {
            $($(#[$doc])* #[serde(skip_serializing_if = "Option::is_none")] pub $name: Option<$kind>,)*
        }

        impl Augmentation {
            /// Names of all settings.
            pub const SETTINGS: &[&str] = &[$(stringify!($name)),*];
        }
    };
}

settings! {
    /// Probability of left and right changing places.
    horizontal_flip: f64,
    /// Probability of up and down changing places.
    vertical_flip: f64,
    /// Degrees, clockwise: 10 is from −10 to 10.
    rotation: Amount,
    /// Degrees along the horizontal axis.
    shear: Amount,
    /// Degrees along the vertical axis.
    shear_y: Amount,
    /// How many times as large things are: 0.1 is from 0.9 to 1.1.
    zoom: Amount,
    /// In shares of the width and of the height, each way drawn by itself: 0.1 is from −0.1 to 0.1.
    shift: Amount,
    /// What stands where an image that was moved has no pixels: without this setting, its mirror image.
    fill_mode: FillMode,
    /// The value there with `fill_mode = "constant"`: of bytes from 0 to 255, without this setting 0.
    fill_value: f64,
    /// How pixels of images that were moved are made; `bilinear` without this setting.
    interpolation: Interpolation,
    /// Cuts out a part with such a share of the area, and resizes it to the size of the image: a number is the least share, to 1.
    crop: Amount,
    /// Width divided by height of that part; from 3/4 to 4/3 without this setting.
    crop_ratio: Amount,
    /// Factor of the brightness: 0.2 is from 0.8 to 1.2.
    brightness: Amount,
    /// Factor of the contrast.
    contrast: Amount,
    /// Factor of the saturation.
    saturation: Amount,
    /// Part of the circle of colours by which the hue is turned, at most 0.5.
    hue: Amount,
    /// Probability of a rectangle being erased.
    erasing: f64,
    /// Share of its area; from 0.02 to 0.33 without this setting. A number is the only one.
    erasing_scale: Amount,
    /// Height divided by width of it; from 0.3 to 3.3 without this setting. A number is the only one.
    erasing_ratio: Amount,
    /// Its value: of bytes from 0 to 255, without this setting 0.
    erasing_value: f64,
    /// Blends samples: both parameters of the beta distribution, usually 0.2. With `cutmix` too, one of both for each batch.
    mixup: f64,
    /// Replaces rectangles by those of other samples: both parameters of the beta distribution, usually 1.
    cutmix: f64,
}

/// Transforms of samples, and of batches, in the order in which they are done.
pub type Transforms = (Vec<Box<dyn Transform>>, Vec<Box<dyn BatchTransform>>);

impl Augmentation {
    /// Whether nothing is changed.
    pub fn is_empty(&self) -> bool {
        let wants = Augmentation { fill_mode: None, fill_value: None, interpolation: None, ..self.clone() };
        wants == Augmentation::default()
    }

    /// The transforms of samples that have this: masks are filled with the label that is ignored, or 0, and labels mixed as what they are.
    ///
    /// # Errors
    /// [`DataError::Mismatch`] where a setting is out of its range, has no effect without another, or cannot be done to such samples.
    pub fn transforms(&self, features: &Features) -> Result<Transforms, DataError> {
        self.check_alone()?;
        let target = features.target();
        let (samples, batches) = (self.of_samples(&target), self.of_batches(&target));
        let features = samples.iter().try_fold(features.clone(), |features, transform| transform.features(features))?;
        batches.iter().try_fold(features, |features, transform| transform.features(features))?;
        Ok((samples, batches))
    }

    /// Checks all settings, whatever the samples are: what can be said before there are any.
    ///
    /// # Errors
    /// [`DataError::Mismatch`] where a setting is out of its range, or has no effect without another.
    pub fn check(&self) -> Result<(), DataError> {
        let image = Features::new(crate::tensor::DType::U8, [3, 8, 8]).with_labels(2, []);
        self.transforms(&image).map(drop)
    }

    /// Settings that belong to others, and distances below 0.
    fn check_alone(&self) -> Result<(), DataError> {
        let distances = [
            ("rotation", self.rotation),
            ("shear", self.shear),
            ("shear_y", self.shear_y),
            ("zoom", self.zoom),
            ("shift", self.shift),
            ("brightness", self.brightness),
            ("contrast", self.contrast),
            ("saturation", self.saturation),
            ("hue", self.hue),
        ];
        for (name, amount) in distances {
            if let Some(Amount::UpTo(distance)) = amount
                && distance < 0.0
            {
                return Err(DataError::Mismatch(format!(
                    "augmentation: `{name}` = {distance} is not possible: one number says how far it goes both ways, so it must be 0 or \
                     more; two are the lowest and the highest"
                )));
            }
        }
        let moves = [self.rotation, self.shear, self.shear_y, self.zoom, self.shift].iter().any(Option::is_some);
        let is_constant = self.fill_mode == Some(FillMode::Constant);
        let needs = [
            (self.fill_mode.is_some() && !moves, "fill_mode", "`rotation`, `shear`, `zoom` or `shift`"),
            (self.fill_value.is_some() && !is_constant, "fill_value", "`fill_mode` = constant"),
            (self.interpolation.is_some() && !moves, "interpolation", "`rotation`, `shear`, `zoom` or `shift`"),
            (self.crop_ratio.is_some() && self.crop.is_none(), "crop_ratio", "`crop`"),
            (self.erasing_scale.is_some() && self.erasing.is_none(), "erasing_scale", "`erasing`"),
            (self.erasing_ratio.is_some() && self.erasing.is_none(), "erasing_ratio", "`erasing`"),
            (self.erasing_value.is_some() && self.erasing.is_none(), "erasing_value", "`erasing`"),
        ];
        match needs.into_iter().find(|(is_missing, ..)| *is_missing) {
            Some((_, name, needed)) => {
                Err(DataError::Mismatch(format!("augmentation: `{name}` has no effect without {needed}: set that too")))
            }
            None => Ok(()),
        }
    }

    fn of_samples(&self, target: &TargetKind) -> Vec<Box<dyn Transform>> {
        let mut transforms: Vec<Box<dyn Transform>> = Vec::new();
        let around =
            |amount: Option<Amount>, nothing| amount.map_or(Interval::only(nothing), |amount| amount.around(nothing));
        let only = |amount: Option<Amount>, usual: Interval| match amount {
            None => usual,
            Some(Amount::UpTo(number)) => Interval::only(number),
            Some(amount) => amount.around(0.0),
        };
        if let Some(crop) = self.crop {
            let scale = match crop {
                Amount::UpTo(least) => Interval { low: least, high: 1.0 },
                between @ Amount::Between(..) => between.around(1.0),
            };
            let usual = RandomResizedCrop::default();
            transforms.push(Box::new(RandomResizedCrop { scale, ratio: only(self.crop_ratio, usual.ratio), ..usual }));
        }
        if self.horizontal_flip.is_some() || self.vertical_flip.is_some() {
            let [horizontal, vertical] = [self.horizontal_flip, self.vertical_flip].map(Option::unwrap_or_default);
            transforms.push(Box::new(RandomFlip { horizontal, vertical }));
        }
        if [self.rotation, self.shear, self.shear_y, self.zoom, self.shift].iter().any(Option::is_some) {
            let label = match target {
                TargetKind::Labels { ignored: Some(ignored), .. } => *ignored,
                _ => 0,
            };
            let value = self.fill_value.unwrap_or_default() as f32;
            transforms.push(Box::new(RandomAffine {
                rotation: around(self.rotation, 0.0),
                shear: [self.shear, self.shear_y].map(|shear| around(shear, 0.0)),
                zoom: around(self.zoom, 1.0),
                shift: [around(self.shift, 0.0); 2],
                fill: Fill { mode: self.fill_mode.unwrap_or_default(), value, label },
                interpolation: self.interpolation.unwrap_or_default(),
            }));
        }
        if [self.brightness, self.contrast, self.saturation, self.hue].iter().any(Option::is_some) {
            // A factor is not below 0, however far it may be from 1.
            let factor = |amount| match (amount, around(amount, 1.0)) {
                (Some(Amount::UpTo(distance)), Interval { low, high }) if distance > 1.0 => {
                    Interval { low: low.max(0.0), high }
                }
                (_, interval) => interval,
            };
            transforms.push(Box::new(ColorJitter {
                brightness: factor(self.brightness),
                contrast: factor(self.contrast),
                saturation: factor(self.saturation),
                hue: around(self.hue, 0.0),
            }));
        }
        if let Some(probability) = self.erasing {
            let usual = RandomErasing::default();
            transforms.push(Box::new(RandomErasing {
                probability,
                scale: only(self.erasing_scale, usual.scale),
                ratio: only(self.erasing_ratio, usual.ratio),
                value: self.erasing_value.map_or(usual.value, |value| value as f32),
            }));
        }
        transforms
    }

    fn of_batches(&self, target: &TargetKind) -> Vec<Box<dyn BatchTransform>> {
        let mut transforms: Vec<Box<dyn BatchTransform>> = Vec::new();
        if let Some(alpha) = self.mixup {
            transforms.push(Box::new(MixUp { alpha, target: target.clone() }));
        }
        if let Some(alpha) = self.cutmix {
            transforms.push(Box::new(CutMix { alpha, target: target.clone() }));
        }
        if transforms.len() > 1 {
            transforms = vec![Box::new(RandomChoice { transforms })];
        }
        transforms
    }
}

impl FromStr for Augmentation {
    type Err = DataError;

    fn from_str(text: &str) -> Result<Self, DataError> {
        let mut settings = Map::new();
        let mut set = |name: &str, value: Value| match settings.insert(name.to_owned(), value) {
            Some(_) => Err(DataError::Mismatch(format!("augmentation: `{name}` is set twice: set it once"))),
            None => Ok(()),
        };
        for part in text.split(',').map(str::trim).filter(|part| !part.is_empty()) {
            let (name, value) = part.split_once('=').unwrap_or((part, ""));
            let (name, value) = (name.trim().replace('-', "_"), value.trim());
            match (&*name, value) {
                ("flip", "") => set("horizontal_flip", 0.5.into())?,
                ("flip", value) => set("horizontal_flip", parsed(value))?,
                ("jitter", value) if !value.is_empty() => {
                    ["brightness", "contrast", "saturation"].iter().try_for_each(|name| set(name, parsed(value)))?;
                }
                (name, "") if Self::SETTINGS.contains(&name) || name == "jitter" => {
                    let text = format!("augmentation: `{name}` has no value: write it as `{name}=…`");
                    return Err(DataError::Mismatch(text));
                }
                (name, value) if Self::SETTINGS.contains(&name) => set(name, parsed(value))?,
                (name, _) => {
                    let known = Self::SETTINGS.iter().copied().chain(["flip", "jitter"]);
                    return Err(DataError::Mismatch(unknown("augmentation", name, known)));
                }
            }
        }
        // Each by itself, so that a message can name it.
        let mut augmentation = Map::new();
        for (name, value) in settings {
            let one = Map::from_iter([(name.clone(), value)]);
            serde_json::from_value::<Augmentation>(one.clone().into())
                .map_err(|error| DataError::Mismatch(format!("augmentation: `{name}`: {error}")))?;
            augmentation.extend(one);
        }
        let augmentation: Augmentation =
            serde_json::from_value(augmentation.into()).map_err(|error| DataError::Mismatch(error.to_string()))?;
        augmentation.check()?;
        Ok(augmentation)
    }
}

/// A number, two with dots between them, or a word.
fn parsed(value: &str) -> Value {
    let number = |text: &str| text.trim().parse::<f64>().ok().filter(|number| number.is_finite());
    let ends = value.split_once("..").and_then(|(low, high)| Some((number(low)?, number(high)?)));
    match (number(value), ends) {
        (Some(number), _) => number.into(),
        (None, Some((low, high))) => vec![low, high].into(),
        (None, None) => value.into(),
    }
}

impl fmt::Display for Amount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Amount::UpTo(distance) => write!(f, "{distance}"),
            Amount::Between(low, high) => write!(f, "{low}..{high}"),
        }
    }
}

impl fmt::Display for Augmentation {
    /// The settings in the form that is parsed.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let settings = serde_json::to_value(self).map_err(|_| fmt::Error)?;
        let shown = |value: &Value| match value {
            Value::Array(ends) => {
                ends.iter().map(|end| format!("{}", end.as_f64().unwrap_or(f64::NAN))).collect::<Vec<_>>().join("..")
            }
            Value::String(word) => word.clone(),
            value => format!("{}", value.as_f64().unwrap_or(f64::NAN)),
        };
        let names = Self::SETTINGS.iter().filter_map(|name| Some(format!("{name}={}", shown(settings.get(name)?))));
        f.write_str(&names.collect::<Vec<_>>().join(","))
    }
}
