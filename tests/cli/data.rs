//! Data of one's own: images, tables, series and text, from the files to predictions.

use std::fs;
use std::path::{Path, PathBuf};

use image::{GrayImage, Luma};
use serde_json::Value;
use tempfile::TempDir;

use crate::command::{assert_documented, last, objects, run, stdout};

/// Three classes of small pictures: bright above, bright below, bright on the left.
const CLASSES: [&str; 3] = ["above", "below", "left"];
const SIDE: u32 = 8;

const MODEL: &str = r#"
name = "small"
input = [1, 8, 8]

[optimizer]
kind = "sgd"
lr = 0.05

[[layers]]
kind = "flatten"

[[layers]]
kind = "linear"
out_features = 3
"#;

struct Folder(TempDir);

impl Folder {
    fn new() -> Self {
        Folder(tempfile::tempdir().expect("a temporary folder"))
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn text(&self, name: &str) -> String {
        self.path(name).to_str().expect("UTF-8").to_owned()
    }

    fn write(&self, name: &str, text: &str) -> String {
        fs::write(self.path(name), text).expect("writes");
        self.text(name)
    }

    /// Ten pictures of each class.
    fn photos(&self) -> String {
        for (class, name) in CLASSES.iter().enumerate() {
            fs::create_dir_all(self.path("photos").join(name)).expect("writes");
            for number in 0..10u32 {
                let picture = GrayImage::from_fn(SIDE, SIDE, |x, y| {
                    let is_bright = [y < 4, y >= 4, x < 4][class];
                    // Not all alike.
                    let noise = (x * 7 + y * 13 + number * 29) % 40;
                    Luma([if is_bright { 200 } else { 20 } + noise as u8])
                });
                picture.save(self.path("photos").join(name).join(format!("{number}.png"))).expect("writes");
            }
        }
        self.text("photos")
    }
}

/// What a training on the CPU comes to.
fn train(args: &[&str]) -> Value {
    let all: Vec<_> = ["--json", "train"].iter().chain(args).chain(&["--device", "cpu"]).copied().collect();
    let output = run(&all);
    assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
    last(&output)
}

fn error(args: &[&str]) -> String {
    let output = run(args);
    let text = String::from_utf8(output.stderr).expect("UTF-8");
    assert_eq!(output.status.code(), Some(2), "{args:?}: {text}");
    let sentence = text.lines().filter(|line| line.starts_with("error: ")).collect::<Vec<_>>();
    assert_eq!(sentence.len(), 1, "{args:?}: {text}");
    sentence[0].to_owned()
}

#[test]
fn photos_train_and_new_ones_are_told_by_the_names_of_their_classes() {
    let folder = Folder::new();
    let (photos, model, weights) = (folder.photos(), folder.write("m.toml", MODEL), folder.text("w.safetensors"));
    let common = ["--images", &photos, "--val", "0.2", "--batch", "8"];
    let settings = ["--epochs", "15", "--workers", "2", "--normalize", "fit", "--save", &weights];
    let summary = train(&[&[&*model], &common[..], &settings[..]].concat());
    assert_eq!((&summary["test_samples"], &summary["test_accuracy"]), (&6.into(), &1.0.into()));

    let picture = folder.path("photos/left/3.png");
    let output = run(&[
        "predict",
        &model,
        picture.to_str().expect("UTF-8"),
        "--weights",
        &weights,
        "--device",
        "cpu",
        "--top",
        "2",
    ]);
    let text = stdout(&output);
    let lines: Vec<_> = text.lines().collect();
    assert_eq!(lines[0], "sample,class,probability,class_2,probability_2");
    assert!(lines.len() == 2 && lines[1].contains("3.png,left,0."), "{text}");

    // A folder, as JSON in a file.
    let predictions = folder.text("p.json");
    run(&["predict", &model, &photos, "--weights", &weights, "--device", "cpu", "--output", &predictions]);
    let rows = fs::read_to_string(&predictions).expect("was written");
    let right = rows.lines().map(|line| serde_json::from_str::<Value>(line).expect("JSON")).filter(|row| {
        let (sample, class) = (row["sample"].as_str().expect("a path"), row["class"].as_str().expect("a name"));
        Path::new(sample).parent().is_some_and(|parent| parent.ends_with(class))
    });
    assert_eq!((rows.lines().count(), right.count()), (30, 30));

    let output = run(&[&["--json", "eval", &model, "--weights", &weights, "--device", "cpu"], &common[..4]].concat());
    assert_eq!((&last(&output)["test_samples"], &last(&output)["test_accuracy"]), (&6.into(), &1.0.into()));
}

#[test]
fn parts_of_a_folder_are_validated_and_tested() {
    let folder = Folder::new();
    let (photos, model) = (folder.photos(), folder.write("m.toml", MODEL));
    for (part, numbers) in [("train", 0..6), ("val", 6..8), ("test", 8..10)] {
        for class in CLASSES {
            let place = folder.path("parts").join(part).join(class);
            fs::create_dir_all(&place).expect("writes");
            for number in numbers.clone() {
                let name = format!("{number}.png");
                fs::copy(Path::new(&photos).join(class).join(&name), place.join(&name)).expect("writes");
            }
        }
    }
    let parts = folder.text("parts");
    let args = ["--json", "train", &model, "--images", &parts, "--batch", "6", "--epochs", "2", "--device", "cpu"];
    let output = run(&args);
    let epochs: Vec<_> = objects(&output).into_iter().filter(|object| object["event"] == "epoch").collect();
    assert!(epochs.len() == 2 && epochs.iter().all(|epoch| epoch["val_loss"].is_number()), "{epochs:?}");
    assert_eq!((&last(&output)["steps"], &last(&output)["test_samples"]), (&6.into(), &6.into()));
}

#[test]
fn nothing_is_lost_and_no_answer_is_of_another_file() {
    let folder = Folder::new();
    let (photos, model, weights) = (folder.photos(), folder.write("m.toml", MODEL), folder.text("w.safetensors"));
    train(&[&model, "--images", &photos, "--epochs", "15", "--batch", "8", "--normalize", "fit", "--save", &weights]);
    let mixed = folder.path("mixed");
    fs::create_dir(&mixed).expect("writes");
    for (name, of) in [("a.png", "above/1.png"), ("c.png", "left/1.png")] {
        fs::copy(Path::new(&photos).join(of), mixed.join(name)).expect("writes");
    }
    fs::write(mixed.join("b.png"), b"").expect("writes");
    let mixed = mixed.to_str().expect("UTF-8");
    let predict = ["predict", &model, mixed, "--weights", &weights, "--device", "cpu"];
    assert!(error(&predict).contains("b.png"));
    for workers in ["0", "2"] {
        let text = stdout(&run(&[&predict[..], &["--on-error", "skip", "--workers", workers]].concat()));
        let found: Vec<_> = text.lines().skip(1).map(|line| line.split(',').nth(1).expect("a class")).collect();
        assert!(found == ["above", "left"] && !text.contains("b.png"), "{text}");
    }
    let empty = folder.path("empty");
    fs::create_dir(&empty).expect("writes");
    fs::write(empty.join("x.png"), b"").expect("writes");
    let empty = empty.to_str().expect("UTF-8");
    let message = error(&["predict", &model, empty, "--weights", &weights, "--device", "cpu", "--on-error", "skip"]);
    assert!(message.contains("x.png") || message.contains("could be read"), "{message}");
    // A picture of the data is not replaced by one of it.
    let picture = Path::new(&photos).join("above/0.png");
    let message = error(&["data", "preview", &photos, "--size", "8", "--output", picture.to_str().expect("UTF-8")]);
    assert!(message.contains("a file of the data"), "{message}");
    // Other classes are other data.
    let run_folder = folder.text("run");
    train(&[&model, "--images", &photos, "--steps", "2", "--batch", "8", "--run", &run_folder]);
    fs::rename(Path::new(&photos).join("above"), Path::new(&photos).join("zenith")).expect("renames");
    assert!(error(&["resume", &run_folder, "--steps", "4"]).contains("its classes"));
    // Numbers of any size are numbers of batches.
    let args = [&*model, "--images", &photos, "--steps", "2", "--batch", "8", "--prefetch", "9000000000000000000"];
    train(&args);
}

#[test]
fn threads_and_interruptions_change_no_bit() {
    let folder = Folder::new();
    let (photos, model) = (folder.photos(), folder.write("m.toml", MODEL));
    let common = [&*model, "--images", &photos, "--batch", "7", "--augment", "flip,rotation=20,shift=0.1,erasing=0.5"];
    let with = |more: &[&str]| train(&[&common[..], more].concat())["parameters_sha256"].clone();
    let whole = with(&["--steps", "11", "--workers", "0"]);
    for workers in ["1", "2", "4"] {
        assert_eq!(with(&["--steps", "11", "--workers", workers, "--prefetch", "3"]), whole, "{workers} workers");
    }
    assert_ne!(with(&["--steps", "11", "--seed", "1"]), whole);
    // In the middle of an epoch of four batches.
    let run_folder = folder.text("run");
    with(&["--steps", "6", "--workers", "2", "--run", &run_folder]);
    let output = run(&["--json", "resume", &run_folder, "--steps", "11"]);
    assert_eq!(last(&output)["parameters_sha256"], whole);
}

#[test]
fn a_table_is_told_by_its_columns() {
    let folder = Folder::new();
    let mut text = "area,quarter,garden,price\n".to_owned();
    for i in 0..120 {
        let (area, quarter, garden) = (30 + i * 37 % 100, ["north", "south", "west"][i % 3], i % 2 == 0);
        let price = 2000 * area + 10_000 * (i % 3) + 5000 * usize::from(garden);
        text += &format!("{area},{quarter},{garden},{price}\n");
    }
    let (csv, weights) = (folder.write("houses.csv", &text), folder.text("w.safetensors"));
    let common = ["mlp", "--data", &csv, "--target", "price", "--val", "0.25", "--batch", "10"];
    let summary =
        train(&[&common[..], &["--epochs", "60", "--metrics", "r2", "--lr", "0.01", "--save", &weights]].concat());
    assert!(summary["test_metrics"][0]["value"].as_f64().expect("a number") > 0.95, "{summary}");

    // Columns in another order, and no price: numbers are in its units.
    let new = folder.write("new.csv", "garden,area,quarter\nfalse,80,north\ntrue,100,west\n");
    let output = run(&["predict", "mlp", &new, "--weights", &weights, "--device", "cpu"]);
    let text = stdout(&output);
    let prices: Vec<f64> =
        text.lines().skip(1).map(|line| line.rsplit(',').next().expect("a cell").parse().expect(line)).collect();
    assert!(text.starts_with("sample,price\n") && prices.len() == 2, "{text}");
    for (found, expected) in prices.into_iter().zip([160_000.0, 225_000.0]) {
        assert!((found - expected).abs() < 20_000.0, "{text}");
    }
    // Text is a class.
    let summary = train(&[
        "mlp",
        "--data",
        &csv,
        "--target",
        "quarter",
        "--val",
        "0.25",
        "--epochs",
        "2",
        "--class-weights",
        "balanced",
    ]);
    assert!(summary["test_accuracy"].is_number(), "{summary}");
    let message = error(&[
        "predict",
        "mlp",
        &folder.write("bad.csv", "garden,area,quarter\ntrue,80,east\n"),
        "--weights",
        &weights,
        "--device",
        "cpu",
    ]);
    assert!(message.contains("east") && message.contains("bad.csv"), "{message}");
}

#[test]
fn a_series_is_forecast_in_its_units() {
    let folder = Folder::new();
    let rows: String = (0..400).map(|t| format!("{t},{:.3}\n", 50.0 + 20.0 * f64::from(t).sin())).collect();
    let csv = folder.write("power.csv", &format!("hour,load\n{rows}"));
    let stateful = r#"
name = "forecast"
input = [12, 1]
loss = { kind = "mse" }

[[layers]]
kind = "lstm"
hidden = 16
stateful = true

[[layers]]
kind = "linear"
out_features = 3
"#;
    let (model, weights) = (folder.write("m.toml", stateful), folder.text("w.safetensors"));
    let data = ["--data", &csv, "--inputs", "load", "--lookback", "12", "--horizon", "3"];
    let settings = ["--val", "0.2", "--batch", "4", "--epochs", "60", "--lr", "0.02", "--save", &weights];
    let summary = train(&[&[&*model], &data[..], &settings[..]].concat());
    assert!(summary["test_loss"].as_f64().expect("a number") < 0.2, "{summary}");
    let output = run(&["predict", &model, &csv, "--weights", &weights, "--device", "cpu", "--batch", "4"]);
    let text = stdout(&output);
    // The newest window alone is enough.
    let rows: Vec<_> = rows.lines().collect();
    let newest = folder.write("newest.csv", &format!("hour,load\n{}\n", rows[rows.len() - 12..].join("\n")));
    let output = run(&["predict", &model, &newest, "--weights", &weights, "--device", "cpu"]);
    assert_eq!(stdout(&output).lines().count(), 2, "{}", String::from_utf8_lossy(&output.stderr));
    let newest: Vec<f64> =
        text.lines().last().expect("a line").split(',').skip(1).map(|cell| cell.parse().expect("a number")).collect();
    assert!(text.starts_with("sample,load+1,load+2,load+3\n"), "{text}");
    for (step, found) in newest.into_iter().enumerate() {
        let expected = 50.0 + 20.0 * (400.0 + step as f64).sin();
        assert!((found - expected).abs() < 12.0, "{step}: {found} for {expected}");
    }
}

#[test]
fn a_text_goes_on() {
    let folder = Folder::new();
    let model = r#"
name = "letters"
input = [6]
tokens = true
loss = { kind = "cross-entropy", classes_last = true }

[[layers]]
kind = "embedding"
num_embeddings = 4
embedding_dim = 8

[[layers]]
kind = "lstm"
hidden = 16
return_sequences = true

[[layers]]
kind = "linear"
out_features = 4
"#;
    let (model, text, weights) =
        (folder.write("m.toml", model), folder.write("t.txt", &"abc ".repeat(200)), folder.text("w.safetensors"));
    train(&[&model, "--data", &text, "--epochs", "12", "--batch", "8", "--lr", "0.03", "--save", &weights]);
    let output =
        run(&["predict", &model, "--weights", &weights, "--device", "cpu", "--prompt", "abc a", "--length", "7"]);
    assert_eq!(stdout(&output), "abc abc abc \n");
}

#[test]
fn folders_are_inspected_and_shown() {
    let folder = Folder::new();
    let photos = folder.photos();
    fs::write(folder.path("photos/left/broken.png"), b"no picture").expect("writes");
    let output = run(&["--json", "data", "inspect", &photos]);
    let found = last(&output);
    assert_eq!((&found["images"], &found["broken_count"]), (&31.into(), &1.into()), "{found}");
    let picture = folder.text("sheet.png");
    let output =
        run(&["data", "preview", &photos, "--size", "8", "--samples", "6", "--output", &picture, "--on-error", "skip"]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let sheet = image::open(&picture).expect("a picture").to_rgb8();
    assert!(sheet.width() > 6 * 96 && sheet.pixels().any(|pixel| pixel.0[0] > 190), "{:?}", sheet.dimensions());

    // A broken file ends a training, or another takes its place.
    let model = folder.write("m.toml", MODEL);
    let args = [&*model, "--images", &photos, "--keep-last", "--batch", "8", "--device", "cpu"];
    let message = error(&[&["train"], &args[..]].concat());
    assert!(message.contains("broken.png"), "{message}");
    let output = run(&[&["--json", "train"], &args[..], &["--on-error", "skip"]].concat());
    let skipped = objects(&output).into_iter().find(|object| object["event"] == "skipped").expect("it is told");
    assert!(skipped["samples"] == 1 && skipped["first"].as_str().expect("text").contains("broken.png"), "{skipped}");
}

#[test]
fn what_is_wrong_with_data_is_said_in_one_sentence() {
    let folder = Folder::new();
    let (photos, model, csv) =
        (folder.photos(), folder.write("m.toml", MODEL), folder.write("t.csv", "a,b\n1,2\n3,4\n5,6\n"));
    let nowhere = folder.text("nowhere");
    for (args, words) in [
        (vec!["--images", &nowhere], vec!["nowhere", "not found"]),
        (vec!["--images", &photos, "--val", &nowhere], vec!["nowhere"]),
        (vec!["--images", &photos, "--host-budget", "1KiB"], vec!["host budget"]),
        (vec!["--images", &photos, "--masks", &photos], vec!["no images"]),
        (vec!["--images", &photos, "--normalize", "0.5,0.5,0.5/1,1,1"], vec!["3 channels"]),
        (vec!["--data", &csv], vec!["--target"]),
        (vec!["--data", &csv, "--target", "c"], vec!["`c`"]),
        (vec!["--data", &csv, "--target", "b"], vec!["t.csv"]),
    ] {
        let message = error(&[&["train", &model, "--device", "cpu"], &args[..]].concat());
        assert!(words.iter().all(|word| message.contains(word)), "{args:?}: {message}");
    }
    let slip: String = (0..40).map(|i| if i == 7 { "x7,1\n".to_owned() } else { format!("{i},{}\n", i * 2) }).collect();
    let slip = folder.write("slip.csv", &format!("a,b\n{slip}"));
    let message = error(&["train", "mlp", "--data", &slip, "--target", "b", "--device", "cpu"]);
    assert!(message.contains("`x7` in line 9") && message.contains("mend it"), "{message}");
    for args in [
        ["--val", "1.5"],
        ["--val", "0"],
        ["--fold", "6/5"],
        ["--size", "0"],
        ["--size", "3x3x3"],
        ["--workers", "-1"],
        ["--augment", "rotate=3"],
        ["--augment", "zoom=-2"],
        ["--resize", "shrink"],
        ["--normalize", "0.5/0"],
        ["--host-budget", "many"],
        ["--kind", "photos"],
    ] {
        let output = run(&["train", &model, "--images", &photos, args[0], args[1]]);
        assert_eq!(output.status.code(), Some(2), "{args:?}");
    }
}

#[test]
fn run_files_say_the_same_as_flags() {
    let folder = Folder::new();
    let photos = folder.photos();
    let model = folder.write("m.toml", MODEL);
    let file = folder.write(
        "run.toml",
        r#"
[model]
name = "m.toml"

[data]
path = "photos"
kind = "images"
val = 0.2
batch = 8
workers = 1
normalize = "0.5/0.25"
resize = "crop"
on_error = "skip"

[augment]
horizontal_flip = 0.5
rotation = 10

[training]
epochs = 2
"#,
    );
    let flags = [
        "--images",
        &photos,
        "--val",
        "0.2",
        "--batch",
        "8",
        "--normalize",
        "0.5/0.25",
        "--resize",
        "crop",
        "--augment",
        "flip,rotation=10",
        "--epochs",
        "2",
    ];
    assert_eq!(train(&[&file])["parameters_sha256"], train(&[&[&*model], &flags[..]].concat())["parameters_sha256"]);
    let config = stdout(&run(&["train", &file, "--print-config"]));
    for line in
        ["kind = \"images\"", "val = 0.2", "normalize = \"0.5/0.25\"", "resize = \"crop\"", "horizontal_flip = 0.5"]
    {
        assert!(config.contains(line), "{line} in {config}");
    }
    let message = error(&["train", &folder.write("wrong.toml", "[model]\nname = \"mlp\"\n[data]\nval = 2\n")]);
    assert!(message.contains("line 4") && message.contains("share"), "{message}");
}

#[test]
fn every_key_is_documented() {
    let folder = Folder::new();
    let (photos, model, weights) = (folder.photos(), folder.write("m.toml", MODEL), folder.text("w.safetensors"));
    let csv = folder.write("t.csv", "a,wet,kind\n1,true,x\n3,false,y\n");
    let (sheet, table) = (folder.text("sheet.png"), folder.text("p.csv"));
    train(&[&model, "--images", &photos, "--batch", "8", "--steps", "1", "--save", &weights]);
    let predict = ["predict", &model, &photos, "--weights", &weights, "--device", "cpu"];
    for (args, section) in [
        (vec!["plan", &model, "--images", &photos, "--batch", "8"], "A plan"),
        (vec!["data", "inspect", &photos], "`data inspect`"),
        (vec!["data", "inspect", &csv], "`data inspect`"),
        (vec!["data", "inspect", &csv, "--target", "kind"], "`data inspect`"),
        (vec!["data", "preview", &photos, "--size", "8", "--samples", "2", "--output", &sheet], "`data preview`"),
        ([&predict[..], &["--top", "2"]].concat(), "`predict`"),
        ([&predict[..], &["--output", &table]].concat(), "`predict`"),
    ] {
        let output = run(&[&args[..], &["--json"]].concat());
        assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
        objects(&output).iter().for_each(|object| assert_documented(object, &[section]));
    }
}
