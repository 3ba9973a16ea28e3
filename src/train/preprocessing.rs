//! What is done to data before a model sees it: kept in files of weights, so that new data is read as the old was.

use std::path::Path;
use std::thread;

use serde::{Deserialize, Serialize};

use super::trainer::Trainer;
use super::weights::metadata_of;
use crate::data::series::SeriesPreprocessing;
use crate::data::table::TablePreprocessing;
use crate::data::text::Vocabulary;
use crate::data::{DataLoader, EpochOptions, INPUT, Values};
#[cfg(feature = "images")]
use crate::data::{ImageOptions, MaskOptions};
use crate::error::{DataError, GraphError, TrainError};
use crate::nn::Normalization;

/// The name of it in a file of weights.
const KEY: &str = "tightfit.preprocessing";
/// Batches in which samples are read for their statistics.
const BATCH: usize = 64;

/// How data was read that a model was trained on.
///
/// [`Trainer::save`] keeps it in the metadata of a file of weights, which other readers of safetensors pass over.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "kebab-case")]
pub struct Preprocessing {
    /// Size, colors and proportions of images.
    #[cfg(feature = "images")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub images: Option<ImageOptions>,
    /// What the values of masks mean.
    #[cfg(feature = "images")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub masks: Option<MaskOptions>,
    /// How bytes become numbers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub normalization: Option<Normalization>,
    /// Columns of a table, their categories and statistics.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub table: Option<TablePreprocessing>,
    /// Columns of a series and their scales.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub series: Option<SeriesPreprocessing>,
    /// The characters of a text.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub vocabulary: Option<Vocabulary>,
    /// Names of the classes, in the order of their labels.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub class_names: Vec<String>,
}

impl Preprocessing {
    /// What a file of weights says of it; `None` where it says nothing.
    ///
    /// # Errors
    /// Where the file is missing or no file of weights, or what it says cannot be read.
    pub fn of_weights(path: impl AsRef<Path>) -> Result<Option<Self>, TrainError> {
        let path = path.as_ref();
        let Some(text) = metadata_of(path)?.and_then(|mut metadata| metadata.remove(KEY)) else { return Ok(None) };
        let corrupt = |reason: String| DataError::Corrupt { path: path.to_owned(), reason };
        let found: Preprocessing = serde_json::from_str(&text)
            .map_err(|error| corrupt(format!("what it says of the data cannot be read ({error}): train it again")))?;
        if let Some(normalization) = &found.normalization {
            normalization.check()?;
        }
        Ok(Some(found))
    }

    /// As the metadata of a file.
    pub(super) fn metadata(&self) -> Option<(String, String)> {
        let text = serde_json::to_string(self).expect("bug: settings that JSON cannot hold");
        (*self != Preprocessing::default()).then(|| (KEY.to_owned(), text))
    }
}

impl Trainer {
    /// How the data was read: see [`set_preprocessing`](Self::set_preprocessing).
    pub fn preprocessing(&self) -> &Preprocessing {
        &self.preprocessing
    }

    /// Says how the data was read, for [`save`](Self::save) to keep it with the parameters.
    pub fn set_preprocessing(&mut self, preprocessing: Preprocessing) {
        self.lasting.layout.metadata = preprocessing.metadata();
        self.preprocessing = preprocessing;
    }
}

impl Normalization {
    /// Means and standard deviations of the channels of all images of `data`, which are bytes `[channels, …]`: give it the training part
    /// alone. `go_on` is told how many samples were read, and stops it by saying so; the statistics are then of these.
    ///
    /// They are exact: values are counted.
    ///
    /// # Errors
    /// Where samples are no bytes of up to four channels, or cannot be read, or a channel has the same value everywhere.
    pub fn fit<'d>(data: impl Into<DataLoader<'d>>, mut go_on: impl FnMut(usize) -> bool) -> Result<Self, TrainError> {
        let data = data.into();
        let mut counts: Vec<[u64; 256]> = Vec::new();
        let mut done = 0;
        thread::scope(|scope| {
            let mut batches = data.epoch(scope, EpochOptions::new(BATCH))?;
            while let Some(batch) = batches.next_batch()? {
                // None of it could be read.
                if batch.is_empty() {
                    batches.recycle(batch);
                    continue;
                }
                let channels = batch.feature(INPUT).and_then(|(_, shape)| Some((*shape.first()?, shape.numel())));
                let wrong = |text: &str| Err(DataError::Mismatch(text.to_owned()));
                let (Some(Values::U8(bytes)), Some((channels @ 1..=4, numel))) = (batch.get(INPUT), channels) else {
                    return wrong(
                        "only images of bytes with up to four channels can be normalized by their means and deviations",
                    );
                };
                if counts.is_empty() {
                    counts.resize(channels, [0; 256]);
                }
                if counts.len() != channels {
                    return wrong("images with different numbers of channels have no mean for each");
                }
                for (channel, values) in bytes.chunks((numel / channels).max(1)).enumerate() {
                    values.iter().for_each(|&byte| counts[channel % channels][usize::from(byte)] += 1);
                }
                done += batch.len();
                batches.recycle(batch);
                if !go_on(done) {
                    break;
                }
            }
            Ok(())
        })?;
        if counts.iter().flatten().all(|count| *count == 0) {
            let text = "there are no images to take means and deviations of";
            return Err(DataError::Mismatch(text.to_owned()).into());
        }
        let of = |counts: &[u64; 256]| {
            let count: u64 = counts.iter().sum();
            let moment = |power: i32| -> f64 {
                let sum = (0..).zip(counts).map(|(byte, &count)| f64::from(byte).powi(power) * count as f64);
                sum.sum::<f64>() / count as f64 / 255f64.powi(power)
            };
            (moment(1), (moment(2) - moment(1).powi(2)).max(0.0).sqrt())
        };
        let (mean, std): (Vec<_>, Vec<_>) = counts.iter().map(of).unzip();
        if let Some(channel) = std.iter().position(|std| *std < 1e-6) {
            let reason = format!(
                "channel {channel} has the same value in all images, by whose deviation nothing can be divided"
            );
            return Err(GraphError::Layer { layer: "input".to_owned(), reason }.into());
        }
        Ok(Normalization::new(mean, std)?)
    }
}
