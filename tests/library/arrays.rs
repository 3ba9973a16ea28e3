//! Arrays of NumPy: values that NumPy wrote, archives, and damaged files.

use std::path::{Path, PathBuf};

use tightfit::data::npy::Npy;
use tightfit::data::table::Task;
use tightfit::data::{ArrayDataset, ArrayOptions, Batch, Dataset as _, TargetKind, Values};
use tightfit::tensor::DType;

use crate::mutations::{message, refused};

fn golden(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/data").join(name)
}

/// What numpy.save writes.
fn npy(descr: &str, shape: &str, numbers: &[u8]) -> Vec<u8> {
    let mut text = format!("{{'descr': '{descr}', 'fortran_order': False, 'shape': {shape}, }}");
    text.push_str(&" ".repeat(117 - text.len()));
    text.push('\n');
    [b"\x93NUMPY\x01\x00\x76\x00", text.as_bytes(), numbers].concat()
}

struct Files(tempfile::TempDir);

impl Files {
    fn new() -> Self {
        Files(tempfile::tempdir().expect("a temporary folder"))
    }

    fn put(&self, name: &str, bytes: impl AsRef<[u8]>) -> PathBuf {
        let path = self.0.path().join(name);
        std::fs::write(&path, bytes).expect("writes");
        path
    }
}

fn part(name: &str) -> ArrayOptions {
    ArrayOptions { part: Some(name.to_owned()), ..ArrayOptions::default() }
}

#[derive(serde::Deserialize)]
struct Expected {
    images: Vec<Vec<Vec<u8>>>,
    labels: Vec<u32>,
}

#[test]
fn floats_are_those_that_numpy_wrote() {
    let array = Npy::open(golden("f8.npy")).expect("opens");
    assert_eq!((array.shape(), array.dtype(), array.is_integer()), (&[4, 3][..], DType::F32, false));
    let expected: Vec<f32> = (0..12).map(|at| (-1.0 + 2.0 * f64::from(at) / 11.0) as f32).collect();
    let Values::F32(found) = array.read(0..12, DType::F32).expect("reads") else { panic!("floats") };
    assert!(found.iter().zip(&expected).all(|(a, b)| (a - b).abs() < 1e-7), "{found:?}");
    let array = Npy::open(golden("f2_big_endian.npy")).expect("opens");
    let Values::F32(found) = array.read(0..4, DType::F32).expect("reads") else { panic!("floats") };
    assert_eq!(found, [0.5, -2.0, 65504.0, 2f32.powi(-24)], "the largest and the least of 16 bits too");
    assert!(message(Npy::open(golden("fortran.npy"))).contains("ascontiguousarray"));
}

#[test]
fn archives_have_parts_stored_or_compressed() {
    let expected = std::fs::read_to_string(golden("expected.json")).expect("there");
    let Expected { images, labels } = serde_json::from_str(&expected).expect("valid");
    for name in ["parts.npz", "parts_compressed.npz"] {
        let [train, test] = ["train", "test"].map(|name_| ArrayDataset::open(golden(name), &part(name_)).expect(name));
        assert_eq!((train.len(), test.len()), (4, 2), "{name}");
        let mut batch = Batch::default();
        for (data, start) in [(&train, 0), (&test, 4)] {
            for index in 0..data.len() {
                data.read(&[index], &mut batch).expect("reads");
                assert_eq!(batch.get("input"), Some(&Values::U8(images[start + index].concat())), "{name}");
                assert_eq!(batch.ints("target"), [labels[start + index]]);
                assert_eq!(data.label(index).expect("reads"), Some(labels[start + index]));
            }
        }
        let features = train.features().expect("known");
        assert_eq!(
            (features.classes(), features.get("input").map(|(_, shape)| shape.to_vec())),
            (Some(3), Some(vec![3, 4]))
        );
        assert!(test.origin(1).ends_with(&format!("{name}: x_test[1]")));
        assert_eq!(train.host_bytes() > 0, name.contains("compressed"));
    }
    let text = message(ArrayDataset::open(golden("parts.npz"), &ArrayOptions::default()));
    assert!(text.contains("several parts") && text.contains("x_train"), "{text}");
    assert!(message(ArrayDataset::open(golden("parts.npz"), &part("val"))).contains("no samples for the part `val`"));
    assert!(message(ArrayDataset::open(golden("parts.npz"), &part("nothing"))).contains("unknown part"));
    let named = ArrayOptions { input: Some("x_tran".to_owned()), ..ArrayOptions::default() };
    assert!(message(ArrayDataset::open(golden("parts.npz"), &named)).contains("`x_train`"));
    let small = ArrayOptions { host_budget_bytes: 100, ..part("train") };
    let text = message(ArrayDataset::open(golden("parts_compressed.npz"), &small));
    assert!(text.contains("`x_train` takes 176 B unpacked") && text.contains("numpy.savez,"), "{text}");
    let differ = ArrayOptions { target: Some("y_test".to_owned()), ..part("train") };
    assert!(message(ArrayDataset::open(golden("parts.npz"), &differ)).contains("4 samples but 2 entries of `target`"));
}

#[test]
fn integers_are_labels_tokens_or_quantities() {
    let files = Files::new();
    let x = files.put("x.npy", npy("<i2", "(2, 2)", &[1, 0, 2, 0, 3, 0, 4, 0]));
    let with = |descr: &str, shape: &str, numbers: &[u8], options: ArrayOptions| {
        let y = files.put("y.npy", npy(descr, shape, numbers));
        ArrayDataset::open(&x, &ArrayOptions { target: Some(y.to_str().expect("text").to_owned()), ..options })
    };
    let plain = ArrayOptions::default;
    let data = with(">i4", "(2, 1)", &[0, 0, 0, 5, 0, 0, 0, 1], plain()).expect("opens");
    let kind = TargetKind::Labels { shape: [].into(), classes: Some(6), ignored: None };
    assert_eq!(data.features().expect("known").target(), kind);
    assert_eq!(data.get(1).expect("reads").get("input").cloned(), Some(vec![3_u32, 4].into()));
    let negative = [0xff, 0xff, 0xff, 0xff, 1, 0, 0, 0];
    let text = message(with("<i4", "(2,)", &negative, plain()));
    assert!(text.contains("y.npy: holds -1 at [0]"), "{text}");
    let data = with("<i4", "(2,)", &negative, ArrayOptions { ignored: Some(-1), ..plain() }).expect("opens");
    let kind = TargetKind::Labels { shape: [].into(), classes: Some(2), ignored: Some(u32::MAX) };
    assert_eq!((data.features().expect("known").target(), data.label(0).expect("reads")), (kind, Some(u32::MAX)));
    assert!(message(with("<i8", "(2,)", &[0x80; 16], plain())).contains("is not between 0 and 4294967295"));
    let values = ArrayOptions { task: Some(Task::Regression), floats: true, ..plain() };
    let data = with("<i4", "(2,)", &negative, values).expect("opens");
    assert_eq!(data.features().expect("known").target(), TargetKind::Values { shape: [1].into() });
    assert_eq!(data.get(0).expect("reads").get("target").cloned(), Some(vec![-1.0].into()));
    assert_eq!(data.get(0).expect("reads").get("input").cloned(), Some(vec![1.0, 2.0].into()));
    let classes = ArrayOptions { task: Some(Task::Classification), ..plain() };
    assert!(message(with("<f4", "(2,)", &[0; 8], classes)).contains("astype(int)"));
    let data = with("|b1", "(2,)", &[1, 0], plain()).expect("opens");
    assert_eq!((data.features().expect("known").classes(), data.label(0).expect("reads")), (Some(2), Some(1)));
    assert!(message(with("|b1", "(3,)", &[1, 0, 1], plain())).contains("2 samples but 3"));
    assert!(message(with("|b1", "(0,)", &[], plain())).contains("at least one sample"));
    assert!(message(data.get(2)).contains("sample 2 of 2"));
}

#[test]
fn channels_move_to_the_front() {
    let files = Files::new();
    let numbers: Vec<u8> = (0..12).collect();
    let x = files.put("x.npy", npy("|u1", "(1, 2, 2, 3)", &numbers));
    let options = ArrayOptions { channels_last: true, ..ArrayOptions::default() };
    let data = ArrayDataset::open(&x, &options).expect("opens");
    let image = data.get(0).expect("reads").take("input").expect("there");
    assert_eq!(
        (&image.shape()[..], image.values()),
        (&[3, 2, 2][..], &Values::U8(vec![0, 3, 6, 9, 1, 4, 7, 10, 2, 5, 8, 11]))
    );
    let x = files.put("x.npy", npy("|u1", "(3, 2, 2)", &numbers));
    let options = ArrayOptions { channels_last: true, add_channel: true, ..ArrayOptions::default() };
    let data = ArrayDataset::open(&x, &options).expect("opens");
    assert_eq!(data.features().expect("known").get("input").map(|(_, shape)| shape.to_vec()), Some(vec![1, 2, 2]));
    let options = ArrayOptions { channels_last: true, ..ArrayOptions::default() };
    assert!(message(ArrayDataset::open(&x, &options)).contains("[2, 2], which have no channels"));
}

#[test]
fn weights_and_further_inputs_have_files_of_their_own() {
    let files = Files::new();
    let x = files.put("x.npy", npy("|u1", "(2, 1)", &[1, 2]));
    let weights = |values: [f32; 2]| files.put("w.npy", npy("<f4", "(2,)", &values.map(f32::to_le_bytes).concat()));
    let path = |path: &Path| path.to_str().expect("text").to_owned();
    let lengths = path(&files.put("n.npy", npy("<u2", "(2,)", &[3, 0, 4, 0])));
    let open = |w: PathBuf| {
        let inputs = vec![("lengths".to_owned(), lengths.clone())];
        ArrayDataset::open(&x, &ArrayOptions { weight: Some(path(&w)), inputs, ..ArrayOptions::default() })
    };
    let mut batch = Batch::default();
    open(weights([0.5, 2.0])).expect("opens").read(&[1, 0], &mut batch).expect("reads");
    assert_eq!((batch.values("sample_weight"), batch.ints("lengths")), (vec![2.0, 0.5], vec![4, 3]));
    assert!(message(open(weights([1.0, -1.0]))).contains("weight -1 at 1"));
    assert!(message(open(weights([1.0, f32::NAN]))).contains("weight NaN at 1"));
}

#[test]
fn bombs_and_lies_are_refused_before_memory_is_taken() {
    let files = Files::new();
    let huge = files.put("x.npy", npy("<f8", "(4611686018427387904, 4)", &[0; 8]));
    assert!(message(Npy::open(&huge)).contains("not as many as its shape"));
    let wide = files.put("x.npy", npy("<f8", "(1000000000000,)", &[0; 8]));
    assert!(message(Npy::open(&wide)).contains("8 bytes of numbers"));
    let longer = files.put("x.npy", npy("|u1", "(1,)", &[0; 8]));
    assert!(message(Npy::open(&longer)).contains("not as many as its shape"));
    assert!(message(Npy::open(files.put("x.npy", "text"))).contains("not an array of NumPy"));
    let nested = npy("<f4", &"(".repeat(60), &[]);
    assert!(message(Npy::open(files.put("x.npy", nested))).contains("damaged header"));

    // An archive that says that a member is larger than it can be.
    let bytes = std::fs::read(golden("parts_compressed.npz")).expect("there");
    let mut lie = bytes.clone();
    let directory = bytes.windows(4).position(|window| window == b"PK\x01\x02").expect("there");
    lie[directory + 24..directory + 28].copy_from_slice(&(1u32 << 29).to_le_bytes());
    let text = message(ArrayDataset::open(files.put("x.npz", lie), &part("train")));
    assert!(text.contains("cannot be as large"), "{text}");
    assert!(message(ArrayDataset::open(files.put("x.npz", "text"), &part("train"))).contains("not a whole zip file"));
}

#[test]
fn damaged_arrays_are_refused_or_read() {
    let files = Files::new();
    let bytes = std::fs::read(golden("f8.npy")).expect("there");
    let options = ArrayOptions::default();
    let count = refused(&files.put("x.npy", ""), &bytes, 300, |path| ArrayDataset::open(path, &options));
    assert!((150..300).contains(&count), "{count}");
    for name in ["parts.npz", "parts_compressed.npz"] {
        let bytes = std::fs::read(golden(name)).expect("there");
        let options = ArrayOptions { host_budget_bytes: 1 << 16, ..part("train") };
        let count = refused(&files.put("x.npz", ""), &bytes, 300, |path| ArrayDataset::open(path, &options));
        assert!((100..300).contains(&count), "{name}: {count}");
    }
}
