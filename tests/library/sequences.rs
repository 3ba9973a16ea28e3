//! Series of several columns, texts, and files of tokens.

use std::path::PathBuf;

use tightfit::data::series::{SeriesOptions, SeriesPreprocessing, TimeSeries};
use tightfit::data::text::{self, Pieces, TextFile, TextOptions, TokenFile, Vocabulary};
use tightfit::data::{Batch, Dataset, Sample, TargetKind, Values};

use crate::mutations::{message, refused};

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

fn floats(sample: &Sample, name: &str) -> Vec<f32> {
    match sample.get(name).expect("there").values() {
        Values::F32(values) => values.clone(),
        other => panic!("{other:?}"),
    }
}

fn ints(sample: &Sample, name: &str) -> Vec<u32> {
    match sample.get(name).expect("there").values() {
        Values::U32(values) => values.clone(),
        other => panic!("{other:?}"),
    }
}

fn names(names: &[&str]) -> Option<Vec<String>> {
    Some(names.iter().map(|name| (*name).to_owned()).collect())
}

/// Row `i` is `i, 10 i, 100 i`.
fn steps(rows: usize) -> String {
    std::iter::once("t,a,b\n".to_owned()).chain((0..rows).map(|i| format!("{i},{},{}\n", 10 * i, 100 * i))).collect()
}

fn raw(lookback: usize, horizon: usize) -> SeriesOptions {
    SeriesOptions { time: Some("t".to_owned()), standardize: false, ..SeriesOptions::new(lookback, horizon) }
}

#[test]
fn windows_hold_rows_and_targets_what_follows() {
    let files = Files::new();
    let path = files.put("s.csv", steps(10));
    let series = TimeSeries::open(&path, &raw(3, 2)).expect("opens");
    assert_eq!(series.len(), 6);
    let sample = series.get(1).expect("reads");
    assert_eq!(sample.get("input").map(|input| input.shape().to_vec()), Some(vec![3, 2]));
    assert_eq!(floats(&sample, "input"), [10.0, 100.0, 20.0, 200.0, 30.0, 300.0]);
    assert_eq!(floats(&sample, "target"), [40.0, 400.0, 50.0, 500.0]);
    assert!(series.origin(1).ends_with("s.csv: rows 2 to 4"));
    assert_eq!(series.features().expect("known").target(), TargetKind::Values { shape: [4].into() });

    let one = SeriesOptions { columns: names(&["a"]), targets: names(&["b"]), stride: 4, ..raw(2, 1) };
    let series = TimeSeries::open(&path, &one).expect("opens");
    assert_eq!(series.len(), 2);
    assert_eq!(floats(&series.get(1).expect("reads"), "input"), [40.0, 50.0]);
    assert_eq!(floats(&series.get(1).expect("reads"), "target"), [600.0]);
    assert_eq!(series.host_bytes(), 10 * 2 * 4);
    let future = series.for_forecasts().expect("long enough");
    assert_eq!((future.len(), future.features().expect("known").target()), (3, TargetKind::None));
    assert_eq!(floats(&future.get(2).expect("reads"), "input"), [80.0, 90.0], "up to the last row");
}

#[test]
fn parts_are_apart_in_time_and_scaled_by_the_first() {
    let files = Files::new();
    let path = files.put("s.csv", steps(20));
    let options = SeriesOptions { time: Some("t".to_owned()), ..SeriesOptions::new(2, 1) };
    let parts = TimeSeries::open(&path, &options).expect("opens").split(0.25, 0.25).expect("long enough");
    let (val, test) = (parts.val.expect("asked for"), parts.test.expect("asked for"));
    assert_eq!([parts.train.rows(), val.rows(), test.rows()], [0..10, 10..15, 15..20]);
    assert_eq!([parts.train.len(), val.len(), test.len()], [8, 3, 3]);
    // Of 0 to 9: mean 4.5, variance 8.25.
    let scaled = |value: f64| ((value - 4.5) / 8.25_f64.sqrt()) as f32;
    for (series, row) in [(&parts.train, 0), (&val, 10), (&test, 15)] {
        let sample = series.get(0).expect("reads");
        let found = [floats(&sample, "input"), floats(&sample, "target")].concat();
        for (found, expected) in found.iter().zip([0, 0, 1, 1, 2, 2].map(|i| scaled(f64::from(row + i)))) {
            assert!((found - expected).abs() < 1e-6, "{found} {expected}");
        }
    }
    let mut forecasts = floats(&test.get(2).expect("reads"), "target");
    test.preprocessing().invert_targets(&mut forecasts);
    assert!((forecasts[0] - 190.0).abs() < 1e-4 && (forecasts[1] - 1900.0).abs() < 1e-3, "{forecasts:?}");

    let text = serde_json::to_string(test.preprocessing()).expect("JSON");
    let learned: SeriesPreprocessing = serde_json::from_str(&text).expect("JSON");
    assert_eq!(learned, *test.preprocessing());
    let other = files.put("o.csv", "b,a,t\n0,0,1\n100,10,2\n200,20,3\n");
    let other = TimeSeries::open_with(&other, &learned).expect("opens");
    assert_eq!(other.get(0).expect("reads"), parts.train.get(0).expect("reads"));
    assert!(message(test.split(0.5, 0.5)).contains("nothing to train on"));
    assert!(message(test.split(0.3, 0.0)).contains("too few for a window of 2 with 1 more"));

    // Only the input's columns, for forecasts.
    let one = SeriesOptions { columns: names(&["a"]), targets: names(&["b"]), ..options };
    let learned = TimeSeries::open(&path, &one).expect("opens").preprocessing().clone();
    let future = TimeSeries::open_with(files.put("o.csv", "a,t\n1,1\n2,2\n"), &learned).expect("opens");
    assert_eq!((future.len(), future.features().expect("known").target()), (1, TargetKind::None));
}

#[test]
fn streams_go_on_from_batch_to_batch() {
    let files = Files::new();
    let path = files.put("s.csv", steps(14));
    let options = SeriesOptions { columns: names(&["t"]), time: None, stateful: Some(2), ..raw(3, 1) };
    let series = TimeSeries::open(&path, &options).expect("opens");
    let inputs: Vec<_> = (0..series.len()).map(|index| floats(&series.get(index).expect("reads"), "input")).collect();
    assert_eq!(inputs, [[0.0, 1.0, 2.0], [6.0, 7.0, 8.0], [3.0, 4.0, 5.0], [9.0, 10.0, 11.0]]);
    assert_eq!(floats(&series.get(1).expect("reads"), "target"), [9.0]);
}

#[test]
fn what_is_wrong_with_a_series_is_said() {
    let files = Files::new();
    let open = |text: &str, options: &SeriesOptions| TimeSeries::open(files.put("s.csv", text), options);
    let options = raw(1, 1);
    for (text, expected) in [
        ("t,a\n1,2\n0,3\n", "line 3: the time `0` is before `1`"),
        ("t,a\n2024-05-01,2\n2024-04-01,3\n", "line 3: the time `2024-04-01` is before"),
        ("t,a\n01/02/2024,2\n", "must be a number, or begin with the year"),
        ("t,a\n1,2\n2024-04-01,3\n", "in all rows"),
        ("t,a\n1,x\n", "line 2: `a` is `x`, expected a finite number"),
        ("t,a\n1,2\n2,\n", "line 3: `a` is ``"),
        ("t,a\n1,1e39\n", "`1e39`"),
        ("t,a\n1,2\n", "1 rows are too few"),
        ("t,a\n", "no rows"),
        ("t\n1\n", "at least one column"),
        ("a\n1\n", "unknown column `t`"),
    ] {
        let found = message(open(text, &options));
        assert!(found.contains(expected), "{found}\n{expected}");
    }
    let filled = SeriesOptions { fill_gaps: true, ..raw(2, 1) };
    let series = open("t,a\n1,5\n2,NA\n3,6\n", &filled).expect("opens");
    assert_eq!(floats(&series.get(0).expect("reads"), "input"), [5.0, 5.0]);
    assert!(message(open("t,a\n1,\n2,1\n3,6\n", &filled)).contains("line 2"));
    assert!(message(open(&steps(50), &SeriesOptions { host_budget_bytes: 100, ..raw(1, 1) })).contains("the 100 B that it may"));
    assert!(message(open(&steps(5), &raw(0, 1))).contains("at least 1"));
    assert!(message(open(&steps(5), &raw(1, 0))).contains("horizon"));
    assert!(message(open(&steps(5), &raw(usize::MAX, usize::MAX))).contains("too few"));
    let series = open(&steps(5), &raw(1, 1)).expect("opens");
    assert!(message(series.get(4)).contains("window 4 of 4"));
    let constant = SeriesOptions { time: None, ..SeriesOptions::new(1, 1) };
    let series = open("a\n7\n7\n", &constant).expect("opens");
    assert_eq!(floats(&series.get(0).expect("reads"), "input"), [0.0], "constant");
}

#[test]
fn texts_are_pieces_of_characters() {
    let files = Files::new();
    let pieces = Pieces { stride: 2, ..Pieces::new(3) };
    let options = TextOptions { pieces, ..TextOptions::new(3) };
    for text in ["abcdefgabc", "äbcdéfgäbc", "日本語日本人日本国日"] {
        let data = TextFile::open(files.put("t.txt", text), &options).expect("opens");
        let characters: Vec<char> = text.chars().collect();
        assert_eq!((data.len(), data.characters()), (4, 0..10));
        for index in 0..data.len() {
            let sample = data.get(index).expect("reads");
            let expected = |start: usize| characters[start..start + 3].iter().collect::<String>();
            assert_eq!(data.vocabulary().decode(&ints(&sample, "input")), expected(index * 2));
            assert_eq!(data.vocabulary().decode(&ints(&sample, "target")), expected(index * 2 + 1));
        }
        assert_eq!(data.host_bytes(), if text.is_ascii() { 0 } else { 10 });
        let parts = data.split(0.0, 0.4).expect("long enough");
        let test = parts.test.expect("asked for");
        assert_eq!((parts.train.characters(), test.characters()), (0..6, 6..10));
        assert_eq!(test.vocabulary().decode(&ints(&test.get(0).expect("reads"), "input")), characters[6..9].iter().collect::<String>());
    }
}

#[test]
fn texts_are_cut_as_those_in_memory() {
    let files = Files::new();
    let text: String = ('a'..='z').chain('A'..='Z').collect();
    let path = files.put("t.txt", &text);
    let check = |expected: &dyn Dataset, pieces: Pieces| {
        let options = TextOptions { pieces, ..TextOptions::new(1) };
        let data = TextFile::open_with(&path, &Vocabulary::ascii(), &options).expect("opens");
        let all: Vec<_> = (0..expected.len()).collect();
        let (mut found, mut wanted) = (Batch::default(), Batch::default());
        data.read(&all, &mut found).expect("reads");
        expected.read(&all, &mut wanted).expect("reads");
        assert_eq!((data.len(), &found), (expected.len(), &wanted));
        assert_eq!(data.features().expect("known"), expected.features().expect("known"));
    };
    for (length, stride) in [(5, 1), (5, 3), (7, 7), (51, 2)] {
        let pieces = Pieces { stride, ..Pieces::new(length) };
        check(&text::pieces(&text, length, stride).expect("long enough"), pieces);
    }
    for (batch, length) in [(2, 3), (3, 5), (4, 12)] {
        let pieces = Pieces { stateful: Some(batch), ..Pieces::new(length) };
        check(&text::streams(&text, batch, length).expect("long enough"), pieces);
    }
}

#[test]
fn vocabularies_are_found_kept_and_limited() {
    let files = Files::new();
    let open = |text: &[u8], options: &TextOptions| TextFile::open(files.put("t.txt", text), options);
    let few = TextOptions { most_characters: 3, ..TextOptions::new(2) };
    let data = open(b"aabbbcdaab", &few).expect("opens");
    let vocabulary = data.vocabulary().clone();
    assert_eq!((vocabulary.len(), vocabulary.decode(&[0, 1, 2])), (3, "ab\u{fffd}".to_owned()));
    assert_eq!(data.features().expect("known").classes(), Some(3));
    let json = serde_json::to_string(&vocabulary).expect("JSON");
    assert_eq!(serde_json::from_str::<Vocabulary>(&json).expect("JSON"), vocabulary);
    assert_eq!(json, r#"{"characters":"ab","unknown":2}"#);
    for wrong in [r#"{"characters":"aa","unknown":null}"#, r#"{"characters":"","unknown":0}"#, r#"{"characters":"a","unknown":9}"#] {
        assert!(serde_json::from_str::<Vocabulary>(wrong).is_err(), "{wrong}");
    }
    let other = files.put("o.txt", "abé");
    let data = TextFile::open_with(&other, &vocabulary, &few).expect("opens");
    assert_eq!(ints(&data.get(0).expect("reads"), "target"), [1, 2]);
    let strict = Vocabulary::new("ab".chars(), false).expect("some");
    assert!(message(TextFile::open_with(&other, &strict, &few)).contains("character `é` at byte 2"));
    assert!(strict.encode("abc").is_err());
    let ascii = Vocabulary::ascii();
    assert_eq!((ascii.len(), ascii.encode("Aé\n").expect("all")), (96, vec![33, 31, 95]));

    assert!(message(open(b"ab\xc3", &few)).contains("UTF-8 at byte 2"));
    assert!(message(open(b"ab\xffcd", &few)).contains("UTF-8 at byte 2"));
    assert!(message(open(b"ab", &few)).contains("2 tokens are too few"));
    assert!(message(open(b"", &few)).contains("is empty"));
    // A character that is cut by the end of a piece of the file, and one that is wrong there.
    let mut long = "é".repeat(70_000).into_bytes();
    long.insert(0, b'a');
    let data = open(&long, &few).expect("opens");
    assert_eq!((data.characters(), data.vocabulary().len()), (0..70_001, 2));
    assert!(message(open(&long, &TextOptions { host_budget_bytes: 1000, ..few.clone() })).contains("take 68.4 KiB"));
    long[65_536] = b'x';
    assert!(message(open(&long, &few)).contains("UTF-8 at byte 65535"));
    assert!(message(open(b"abc", &TextOptions { most_characters: 1, ..few })).contains("at least 2"));
}

#[test]
fn tokens_are_read_from_their_places() {
    let files = Files::new();
    let raw = |count: u32, bytes: usize| (0..count).flat_map(|n| n.to_le_bytes()[..bytes].to_vec()).collect::<Vec<_>>();
    let npy = b"\x93NUMPY\x01\x00\x38\x00{'descr': '<u2', 'fortran_order': False, 'shape': (20,)}";
    let array = [npy.as_slice(), &raw(20, 2)].concat();
    let two = TokenFile::open(files.put("a.bin", raw(20, 2)), 20, Pieces::new(6)).expect("opens");
    let four = TokenFile::open(files.put("b.bin", raw(20, 4)), 70_000, Pieces::new(6)).expect("opens");
    let array = TokenFile::open(files.put("c.npy", array), 20, Pieces::new(6)).expect("opens");
    for data in [&two, &four, &array] {
        assert_eq!((data.len(), data.host_bytes(), data.tokens()), (3, 0, 0..20));
        let sample = data.get(2).expect("reads");
        assert_eq!((ints(&sample, "input")[0], ints(&sample, "target")), (12, vec![13, 14, 15, 16, 17, 18]));
    }
    let parts = two.split(0.5, 0.0).expect("long enough");
    assert_eq!(ints(&parts.val.expect("asked for").get(0).expect("reads"), "input")[0], 10);
    let narrow = TokenFile::open(files.put("a.bin", raw(20, 2)), 15, Pieces::new(6)).expect("opens");
    assert!(message(narrow.get(2)).contains("token 15 at 15 is not below 15"));
    let open = |bytes: &[u8], size| TokenFile::open_wide(files.put("a.bin", bytes), size, 20, Pieces::new(6));
    assert!(message(open(&raw(20, 2)[1..], 2)).contains("39 bytes are no whole number of tokens"));
    assert!(message(open(&raw(3, 2), 2)).contains("3 tokens are too few"));
    assert!(message(open(b"", 2)).contains("is empty"));
    assert!(message(open(&raw(20, 2), 3)).contains("2 or 4 bytes"));
}

#[test]
fn damaged_sequences_are_refused_or_read() {
    let files = Files::new();
    let options = SeriesOptions { time: Some("t".to_owned()), ..SeriesOptions::new(2, 1) };
    let count = refused(&files.put("s.csv", ""), steps(20).as_bytes(), 300, |path| TimeSeries::open(path, &options));
    assert!((100..300).contains(&count), "series: {count}");
    let text = "Änderung; “quoted” text, and more of it.\n".repeat(4);
    let options = TextOptions::new(8);
    let count = refused(&files.put("t.txt", ""), text.as_bytes(), 300, |path| TextFile::open(path, &options));
    assert!((50..300).contains(&count), "text: {count}");
    let tokens: Vec<u8> = (0..100_u16).flat_map(u16::to_le_bytes).collect();
    let open = |path: &std::path::Path| TokenFile::open(path, 100, Pieces::new(8));
    let count = refused(&files.put("t.bin", ""), &tokens, 300, open);
    assert!((50..300).contains(&count), "tokens: {count}");
}
