//! `tightfit predict`: what a trained model says of new data, as CSV or JSON.

mod text;

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use clap::Args;
use serde_json::{Map, Value, json};
use tightfit::command::{files, plural};
use tightfit::data::Dataset;
use tightfit::train::{Config, Loss, Prediction, Preprocessing, Trainer};

use super::data::{self, DataArgs, ToPredict};
use super::failure::{Failure, keep};
use super::first_use;
use super::interrupt::stop_when_asked;
use super::output::{Output, shown};
use super::overwrite;
use super::run_file::set;
use super::settings::{DeviceArgs, ModelArgs};
use super::values::count;
use super::weights;

#[derive(Args, Debug)]
pub(crate) struct PredictArgs {
    #[command(flatten)]
    model: ModelArgs,

    /// Images, folders of images, tables, series or arrays of the kind that the model was trained on
    #[arg(value_name = "PATH")]
    paths: Vec<PathBuf>,

    #[command(flatten)]
    device: DeviceArgs,
    #[command(flatten)]
    data: DataArgs,

    /// Parameters: a file that `train --save` wrote, or one of PyTorch, Keras or ONNX [default: those in the model's file]
    #[arg(long, value_name = "FILE")]
    weights: Option<PathBuf>,

    /// How many classes are named, the most probable first
    #[arg(long, value_name = "N", default_value = "1", value_parser = count::<usize>)]
    top: usize,

    /// Writes predictions here (.csv or .json, one object a line) and not to the terminal; of a segmentation, a folder for masks
    #[arg(long, value_name = "FILE|DIR")]
    output: Option<PathBuf>,

    /// Lets a model of text go on with this
    #[arg(long, value_name = "TEXT", conflicts_with = "paths")]
    prompt: Option<String>,

    /// How many characters a model of text writes
    #[arg(long, value_name = "N", default_value = "200", value_parser = count::<usize>, requires = "prompt")]
    length: usize,
}

impl PredictArgs {
    pub(crate) fn model(&self) -> &OsStr {
        self.model.name()
    }
}

/// What numbers of an output are.
#[derive(Clone, Debug, PartialEq)]
enum Answer {
    /// Logits of classes, or probabilities.
    Classes { names: Vec<String>, from_logits: bool },
    /// Logits of classes of each pixel.
    Pixels { names: Vec<String> },
    /// Numbers of these names.
    Numbers { names: Vec<String> },
}

pub(crate) fn run(args: &PredictArgs, output: &Output) -> Result<u8, Failure> {
    let mut file = args.model.run_file()?;
    set(&mut file.budget.device, args.device.device.as_ref());
    set(&mut file.budget.threads, args.device.threads.as_ref());
    args.data.put_over(&mut file.data, &mut file.augment);
    let (model, config) = file.resolve_for_evaluation()?;
    set(&mut file.model.weights, args.weights.as_ref());
    let weights = weights::required(&file)?;
    let inputs: Vec<_> = std::iter::once(("--weights", Some(&*weights)))
        .chain(args.paths.iter().map(|path| ("PATH", Some(&**path))))
        .collect();
    overwrite::refuse(&[("--output", args.output.as_deref())], &inputs, None)?;
    let trained = weights::preprocessing(&weights)?.unwrap_or_default();
    if let Some(prompt) = &args.prompt {
        return text::go_on(args, &file, (model, config), (&weights, &trained), prompt, output);
    }
    let paths = match (&args.paths[..], &file.data.path) {
        ([], None) => return Err(Failure::bad_input("of what? Give files or folders, or --data PATH")),
        ([], Some(path)) => vec![path.clone()],
        (paths, _) => paths.to_vec(),
    };
    let ToPredict { model, config, data, loader } = data::open_to_predict(&file, model, config, &trained, &paths)?;
    let answer = answer_of(&model.output_shape()?, &config, &trained);
    if matches!(answer, Answer::Pixels { .. }) && args.output.is_none() {
        return Err(Failure::bad_input(
            "a segmentation says a class for each pixel: --output DIR is where masks are written",
        ));
    }
    first_use::for_device(file.device(), args.device.no_calibrate, output);
    let mut trainer = Trainer::for_evaluation(model, config, file.device())?;
    weights::load(&mut trainer, &weights, &file)?;
    let _stop = stop_when_asked()?;
    let mut prediction = trainer.predict(&loader)?;
    // Those that could not be read are left out.
    let skipped = loader.skipped_samples();
    let read = (0..data.len()).filter(|index| skipped.binary_search(index).is_err()).map(|index| data.origin(index));
    let read: Vec<String> = read.collect();
    if read.is_empty() {
        return Err(Failure::bad_input("no sample could be read"));
    }
    if let Answer::Pixels { names } = &answer {
        let folder = args.output.as_deref().expect("bug: it was asked for");
        return masks(&prediction, names, &read, folder, output);
    }
    if let Some(table) = &trained.table {
        table.invert_targets(&mut prediction.values);
    }
    if let Some(series) = &trained.series {
        series.invert_targets(&mut prediction.values);
    }
    let rows = rows(&prediction, &answer, &read, args.top);
    tell(&rows, args.output.as_deref(), output)?;
    Ok(0)
}

/// What a model with such an output says.
fn answer_of(shape: &[usize], config: &Config, trained: &Preprocessing) -> Answer {
    let outputs = shape.iter().product::<usize>();
    let numbered = |count: usize| (0..count).map(|class| class.to_string()).collect::<Vec<_>>();
    let names = |count: usize| {
        let known = trained.class_names.len() == count;
        if known { trained.class_names.clone() } else { numbered(count) }
    };
    if let Some(series) = &trained.series {
        let steps = outputs / series.targets.len().max(1);
        let of = |step: usize| series.targets.iter().map(move |(name, _)| format!("{name}+{}", step + 1));
        return Answer::Numbers { names: (0..steps).flat_map(of).collect() };
    }
    match (shape, &config.loss) {
        ([_, _, _], _) => Answer::Pixels { names: names(shape[0]) },
        (_, Loss::CrossEntropy { from_logits, .. } | Loss::SoftCrossEntropy { from_logits, .. }) => {
            Answer::Classes { names: names(outputs), from_logits: *from_logits }
        }
        _ => {
            let columns = trained.table.as_ref().map(|table| table.targets.iter().map(|column| column.name.clone()));
            let columns: Vec<String> = columns.into_iter().flatten().collect();
            let known = columns.len() == outputs;
            Answer::Numbers { names: if known { columns } else { numbered(outputs) } }
        }
    }
}

/// One line for each sample: names and values, in this order.
type Row = Vec<(String, Value)>;

fn rows(prediction: &Prediction, answer: &Answer, origins: &[String], top: usize) -> Vec<Row> {
    let samples = prediction.values.chunks((prediction.values.len() / origins.len()).max(1));
    let row = |(origin, values): (&String, &[f32])| {
        let mut row = Row::new();
        row.push(("sample".to_owned(), json!(origin)));
        match answer {
            Answer::Classes { names, from_logits } => {
                let shares =
                    if *from_logits { softmax(values) } else { values.iter().map(|&x| f64::from(x)).collect() };
                let mut order: Vec<usize> = (0..shares.len()).collect();
                order.sort_by(|&a, &b| shares[b].total_cmp(&shares[a]));
                for (rank, &class) in order.iter().take(top).enumerate() {
                    let suffix = if rank == 0 { String::new() } else { format!("_{}", rank + 1) };
                    row.push((format!("class{suffix}"), json!(names[class])));
                    row.push((format!("probability{suffix}"), json!((shares[class] * 1e6).round() / 1e6)));
                }
            }
            Answer::Numbers { names } => {
                row.extend(names.iter().zip(values).map(|(name, value)| (name.clone(), number(*value))));
            }
            Answer::Pixels { .. } => {}
        }
        row
    };
    origins.iter().zip(samples).map(row).collect()
}

/// A number with as many digits as tell it from others of its kind.
fn number(value: f32) -> Value {
    value.to_string().parse::<f64>().map_or(Value::Null, |value| json!(value))
}

fn softmax(logits: &[f32]) -> Vec<f64> {
    let most = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let powers: Vec<f64> = logits.iter().map(|&x| f64::from(x - most).exp()).collect();
    let sum: f64 = powers.iter().sum();
    powers.into_iter().map(|power| power / sum).collect()
}

fn as_csv(rows: &[Row]) -> String {
    let text = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    let mut writer = csv::Writer::from_writer(Vec::new());
    let header = rows.first().map(|row| row.iter().map(|(name, _)| name.clone()).collect());
    let lines = rows.iter().map(|row| row.iter().map(|(_, value)| text(value)).collect());
    for line in header.into_iter().chain(lines) {
        let line: Vec<String> = line;
        writer.write_record(line).expect("bug: rows of different lengths");
    }
    String::from_utf8(writer.into_inner().expect("bug: memory that cannot be written"))
        .expect("bug: texts that are none")
}

fn tell(rows: &[Row], path: Option<&Path>, output: &Output) -> Result<(), Failure> {
    let object = |row: &Row| row.iter().cloned().collect::<Map<_, _>>();
    let lines = |rows: &[Row]| rows.iter().map(|row| json!(object(row)).to_string()).collect::<Vec<_>>().join("\n");
    if let Some(path) = path {
        let extension = path.extension().map(|extension| extension.to_string_lossy().to_lowercase());
        let text = match extension.as_deref() {
            Some("csv") => as_csv(rows),
            Some("json" | "jsonl") => lines(rows) + "\n",
            _ => return Err(Failure::bad_input(format!("--output {}: name a .csv or a .json file", path.display()))),
        };
        keep(path, |path| Ok(files::write_whole(path, text.as_bytes())?))?;
        output.text(format_args!("{} written to {}", plural(rows.len(), "prediction"), path.display()));
        output.object(&json!({"event": "predictions", "samples": rows.len(), "output": shown(path)}));
        return Ok(());
    }
    if output.is_json() {
        for row in rows {
            let mut object = object(row);
            object.insert("event".to_owned(), json!("prediction"));
            output.object(&Value::Object(object));
        }
    } else {
        output.unwrapped(as_csv(rows).trim_end_matches('\n'));
    }
    Ok(())
}

/// Where the mask of an image is written.
fn mask_of(origin: &str, folder: &Path) -> PathBuf {
    let stem = Path::new(origin).file_stem().map_or_else(|| "mask".into(), |stem| stem.to_string_lossy());
    folder.join(format!("{stem}.png"))
}

/// Refuses masks that would replace an image, or one another.
fn check_masks(origins: &[String], paths: &[PathBuf]) -> Result<(), Failure> {
    let place = |path: &Path| path.canonicalize().ok();
    let mut seen = BTreeMap::new();
    for (origin, path) in origins.iter().zip(paths) {
        if let Some(other) = seen.insert(path, origin) {
            let path = path.display();
            return Err(Failure::bad_input(format!(
                "the masks of {other} and {origin} would both be {path}: predict them one by one"
            )));
        }
    }
    let images: BTreeSet<_> = origins.iter().filter_map(|origin| place(Path::new(origin))).collect();
    match paths.iter().find(|path| place(path).is_some_and(|path| images.contains(&path))) {
        Some(path) => {
            let path = path.display();
            Err(Failure::bad_input(format!(
                "--output: {path} is an image of the data: write masks into another folder"
            )))
        }
        None => Ok(()),
    }
}

/// Writes the class of each pixel as a grey image, and says the share of each class.
fn masks(
    prediction: &Prediction,
    names: &[String],
    origins: &[String],
    folder: &Path,
    output: &Output,
) -> Result<u8, Failure> {
    let &[_, classes, height, width] = &prediction.shape[..] else {
        return Err(Failure::failed("this is a defect of tightfit: a segmentation of another shape"));
    };
    std::fs::create_dir_all(folder).map_err(|error| Failure::bad_input(format!("{}: {error}", folder.display())))?;
    let paths: Vec<PathBuf> = origins.iter().map(|origin| mask_of(origin, folder)).collect();
    check_masks(origins, &paths)?;
    let pixels = height * width;
    let mut rows = Vec::new();
    for ((origin, path), values) in origins.iter().zip(&paths).zip(prediction.values.chunks(classes * pixels)) {
        let best = |pixel: usize| {
            let score = |class: usize| values[class * pixels + pixel];
            (1..classes).fold(0, |best, class| if score(class) > score(best) { class } else { best })
        };
        let labels: Vec<usize> = (0..pixels).map(best).collect();
        let bytes: Vec<u8> = labels.iter().map(|&label| label as u8).collect();
        let png = tightfit::data::sheet::grey_png(&bytes, [height, width])?;
        keep(path, |path| Ok(files::write_whole(path, &png)?))?;
        let mut row = Row::new();
        row.push(("sample".to_owned(), json!(origin)));
        row.push(("mask".to_owned(), shown(path)));
        for (class, name) in names.iter().enumerate() {
            let share = labels.iter().filter(|&&label| label == class).count() as f64 / pixels as f64;
            row.push((name.clone(), json!((share * 1e6).round() / 1e6)));
        }
        rows.push(row);
    }
    tell(&rows, None, output)?;
    Ok(0)
}
