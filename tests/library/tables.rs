//! Tables: values as pandas has them, what is wrong with cells and rows, and damaged files.

use std::path::{Path, PathBuf};

use tightfit::data::table::{Categories, ColumnKind, Missing, Task};
use tightfit::data::{Batch, Dataset as _, Table, TableOptions, TablePreprocessing, TargetKind};
use tightfit::error::DataError;

use crate::mutations::{message, refused};

fn golden(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/data").join(name)
}

fn names(names: &[&str]) -> Vec<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

fn target(name: &str) -> TableOptions {
    TableOptions { targets: names(&[name]), ..TableOptions::default() }
}

/// A table in a file that lives as long as the folder.
struct Files(tempfile::TempDir);

impl Files {
    fn new() -> Self {
        Files(tempfile::tempdir().expect("a temporary folder"))
    }

    fn path(&self, bytes: impl AsRef<[u8]>) -> PathBuf {
        let path = self.0.path().join("table.csv");
        std::fs::write(&path, bytes).expect("writes");
        path
    }

    fn open(&self, bytes: impl AsRef<[u8]>, options: &TableOptions) -> Result<Table, DataError> {
        Table::open(self.path(bytes), options)
    }
}

fn input(table: &Table, index: usize) -> Vec<f32> {
    let mut batch = Batch::default();
    table.read(&[index], &mut batch).expect("reads");
    batch.values("input")
}

#[derive(serde::Deserialize)]
struct Expected {
    inputs: Vec<Vec<f64>>,
    prices: Vec<f64>,
    cities: Vec<String>,
    means: Vec<f64>,
    stds: Vec<f64>,
}

fn is_as_pandas_has_it(path: &Path) {
    let expected = std::fs::read_to_string(golden("expected.json")).expect("there");
    let expected: Expected = serde_json::from_str(&expected).expect("valid");
    let options = TableOptions {
        inputs: Some(names(&["area", "rooms", "city", "garden"])),
        standardize_targets: true,
        ..target("price")
    };
    let table = Table::open(path, &options).expect("opens");
    assert_eq!(table.len(), expected.inputs.len());
    let preprocessing = table.preprocessing();
    let mut found = Vec::new();
    for column in preprocessing.inputs.iter().chain(&preprocessing.targets) {
        match &column.kind {
            ColumnKind::Number { mean, std, .. } => found.push((*mean, *std)),
            ColumnKind::Text { categories, .. } => assert_eq!(*categories, expected.cities),
            ColumnKind::Boolean { .. } => assert_eq!(column.name, "garden"),
        }
    }
    for ((mean, std), (expected_mean, expected_std)) in found.iter().zip(expected.means.iter().zip(&expected.stds)) {
        assert!((mean / expected_mean - 1.0).abs() < 1e-12 && (std / expected_std - 1.0).abs() < 1e-12);
    }
    assert_eq!(found.len(), 3);
    let mut batch = Batch::default();
    for (index, (row, price)) in expected.inputs.iter().zip(&expected.prices).enumerate() {
        table.read(&[index], &mut batch).expect("reads");
        let found = [batch.values("input"), batch.values("target")].concat();
        assert_eq!(found.len(), row.len() + 1);
        for (found, expected) in found.into_iter().zip(row.iter().chain([price])) {
            assert!((f64::from(found) - expected).abs() < 1e-6, "{found} {expected}");
        }
    }
    let mut prices = batch.values("target");
    preprocessing.invert_targets(&mut prices);
    let last = expected.prices[expected.prices.len() - 1] * expected.stds[2] + expected.means[2];
    assert!((f64::from(prices[0]) / last - 1.0).abs() < 1e-6);
}

#[test]
fn columns_become_numbers_as_with_pandas() {
    is_as_pandas_has_it(&golden("houses.csv"));
}

#[cfg(feature = "parquet")]
#[test]
fn parquet_holds_the_same_table() {
    is_as_pandas_has_it(&golden("houses.parquet"));
}

#[test]
fn text_booleans_and_integers_are_classes() {
    let files = Files::new();
    let table = files.open("x,kind\n1,rose\n2,iris\n3, rose \n", &target("kind")).expect("opens");
    assert_eq!(table.features().expect("known").class_names(), ["iris", "rose"]);
    assert_eq!([0, 1, 2].map(|index| table.label(index).expect("there")), [Some(1), Some(0), Some(1)]);
    assert!(table.origin(2).ends_with("table.csv: row 3"));

    let table = files.open("x,ok\n1,True\n2,FALSE\n3,true\n", &target("ok")).expect("opens");
    assert_eq!(table.features().expect("known").class_names(), ["false", "true"]);
    assert_eq!([0, 1, 2].map(|index| table.label(index).expect("there")), [Some(1), Some(0), Some(1)]);

    let numbers = "x,n\n1,10\n2,2\n3,10.0\n";
    let classes = TableOptions { task: Some(Task::Classification), ..target("n") };
    let table = files.open(numbers, &classes).expect("opens");
    assert_eq!(table.features().expect("known").class_names(), ["2", "10"]);
    let mut batch = Batch::default();
    table.read(&[0, 1, 2], &mut batch).expect("reads");
    assert_eq!(batch.ints("target"), [1, 0, 1]);
    assert_eq!(table.label(2).expect("there"), Some(1));
    let table = files.open(numbers, &target("n")).expect("opens");
    assert_eq!(table.features().expect("known").target(), TargetKind::Values { shape: [1].into() });
    assert_eq!(
        (table.label(0).expect("there"), table.get(0).expect("there").get("target").cloned()),
        (None, Some(vec![10.0].into()))
    );
    assert!(message(files.open("x,n\n1,1.5\n", &classes)).contains("`n` has numbers that are no integers"));
    let text = TableOptions { task: Some(Task::Regression), ..target("kind") };
    assert!(message(files.open("x,kind\n1,a\n", &text)).contains("`kind` holds text"));
}

#[test]
fn delimiters_quotes_marks_and_line_ends_are_understood() {
    let files = Files::new();
    for text in [
        "a,b\n1,x\n3,\"y\nz\"\n",
        "a;b\r\n1;x\r\n3;\"y\nz\"\r\n",
        "\u{feff}a\tb\n\n1\tx\n\n\n3\t\"y\nz\"",
        "a | b\n 1 | x \n3|\"y\nz\"\n",
    ] {
        let table = files.open(text, &TableOptions::default()).expect(text);
        assert_eq!(table.columns(), ["a", "b"], "{text:?}");
        assert_eq!([input(&table, 0), input(&table, 1)], [[-1.0, 1.0, 0.0], [1.0, 0.0, 1.0]], "{text:?}");
    }
    let table = files.open("1,x\n3,y\n", &TableOptions { header: false, ..target("2") }).expect("opens");
    assert_eq!((table.len(), table.columns()), (2, &names(&["1", "2"])[..]));
    let colon = TableOptions { delimiter: Some(':'), ..TableOptions::default() };
    assert_eq!(input(&files.open("a:b\n1:5\n3:5\n", &colon).expect("opens"), 0), [-1.0, 0.0]);
    assert!(message(files.open("1,2\n3,4\n", &TableOptions::default())).contains("no names of columns"));
}

#[test]
fn missing_cells_are_named_dropped_or_filled() {
    let files = Files::new();
    let text = "x,c,y\n1,a,1\n,b,2\n3,?,3\n5,b,4\n";
    let with = |missing| TableOptions { missing, ..target("y") };
    assert!(message(files.open(text, &with(Missing::Error))).contains("line 3: `x` is missing"));
    let dropped = files.open(text, &with(Missing::DropRows)).expect("opens");
    assert_eq!((dropped.len(), input(&dropped, 1)), (2, vec![1.0, 0.0, 1.0]));
    let filled = files.open(text, &with(Missing::Fill)).expect("opens");
    assert_eq!((filled.len(), input(&filled, 1)), (4, vec![0.0, 0.0, 1.0]), "the mean");
    assert_eq!(input(&filled, 2)[1..], [0.0, 1.0], "b, the most frequent");
    let text = "x,y\n1,1\n2,NA\n";
    assert!(message(files.open(text, &with(Missing::Fill))).contains("line 3: `y` is missing"));
    assert!(message(files.open("x,y\nNA,NA\n", &with(Missing::DropRows))).contains("no row in which"));
    // What is not used may be missing.
    let used = TableOptions { inputs: Some(names(&["x"])), ..target("y") };
    assert_eq!(files.open("x,z,y\n1,,1\n", &used).expect("opens").len(), 1);
}

#[test]
fn statistics_are_learned_from_the_rows_that_are_trained_on() {
    let files = Files::new();
    let mut table = files.open("x,c\n0,a\n2,b\n100,b\n", &TableOptions::default()).expect("opens");
    table.fit(&[0, 1]).expect("there");
    assert_eq!([0, 1, 2].map(|index| input(&table, index)[0]), [-1.0, 1.0, 99.0]);
    let text = serde_json::to_string(table.preprocessing()).expect("JSON");
    let read: TablePreprocessing = serde_json::from_str(&text).expect("JSON");
    assert_eq!(read, *table.preprocessing());
    assert!(message(table.fit(&[3])).contains("row 3 of a table of 3"));
    assert!(message(table.fit(&[])).contains("`x`, in the rows to learn from, has no value"));
}

#[test]
fn other_files_are_read_in_the_same_way() {
    let files = Files::new();
    let options = TableOptions { weight: Some("w".to_owned()), ..target("y") };
    let learned = files.open("x,c,y,w\n1,a,no,1\n3,b,yes,2\n", &options).expect("opens").preprocessing().clone();
    let open = |text: &str| Table::open_with(files.path(text), &learned);
    let table = open("c,more,x\nb,?,5\n").expect("opens");
    assert_eq!(input(&table, 0), [3.0, 0.0, 1.0]);
    assert_eq!((table.features().expect("known").target(), table.label(0).expect("there")), (TargetKind::None, None));
    let table = open("y,w,c,x\nyes,0.5,b,5\n").expect("opens");
    let mut batch = Batch::default();
    table.read(&[0], &mut batch).expect("reads");
    assert_eq!((batch.ints("target"), batch.values("sample_weight")), (vec![1], vec![0.5]));
    assert_eq!(table.label(0).expect("there"), Some(1));
    assert!(message(open("c,z\nb,5\n")).contains("unknown column `x`"));
    assert!(message(open("c,x\nb,5\nd,6\n")).contains("line 3: `c` is `d`, which is none of its categories: a, b"));
    assert!(message(open("c,x\nb,five\n")).contains("line 2: `x` is `five`, expected a finite number"));
    assert!(message(open("c,x,y\nb,5,maybe\n")).contains("`y` is `maybe`"));
}

#[test]
fn categories_may_be_indices() {
    let files = Files::new();
    let options = TableOptions { categories: Categories::Index, ..target("y") };
    let table = files.open("x,c,y\n1,b,1\n3,a,2\n", &options).expect("opens");
    let mut batch = Batch::default();
    table.read(&[0, 1], &mut batch).expect("reads");
    assert_eq!((batch.values("input"), batch.ints("c")), (vec![-1.0, 1.0], vec![1, 0]));
    let table = files.open("c,d,y\nb,u,1\na,u,2\n", &options).expect("opens");
    table.read(&[0, 1], &mut batch).expect("reads");
    assert_eq!(batch.ints("input"), [1, 0, 0, 0]);
    assert_eq!(table.features().expect("known").get("input").map(|(_, shape)| shape.to_vec()), Some(vec![2]));
    assert!(message(files.open("x,target,y\n1,b,1\n", &options)).contains("cannot be named `target`"));
}

#[test]
fn what_is_wrong_is_said_with_its_line_and_column() {
    let files = Files::new();
    let many: String = (0..5000).map(|n| format!("id{n},1\n")).collect();
    let long = format!("a,y\n\"{}", "x,\n".repeat(3 << 20));
    let cases: [(&[u8], &str); 13] = [
        (b"", "is empty"),
        (b"\n\n", "no line with text"),
        (b"a,y\n", "no rows"),
        (b"a,b\n1,2\n", "unknown column `y`"),
        (b"a,y\n1,2\n\n1\n", "line 4 has 1 field, 2 are expected"),
        (b"a,y\n1,2\n1,2,3\n", "line 3 has 3 fields"),
        (b"a,y\n1,\xff\n", "line 2 is not text in UTF-8 (field 2)"),
        (b"a,y\n1,2\n\0,2\n", "line 3 holds a NUL byte"),
        (b"\xff\xfea\0,\0", "UTF-16"),
        (b"a,a,y\n1,2,3\n", "two columns named `a`"),
        (b"a;y\n1,5;2\n2,25;3\n", "decimal commas, such as `1,5` in line 2"),
        (format!("id,y\n{many}").leak().as_bytes(), "`id` has more than 4096 different values"),
        (long.leak().as_bytes(), "line 2 has no end: is a quote not closed?"),
    ];
    for (bytes, expected) in cases {
        let text = message(files.open(bytes, &target("y")));
        assert!(text.contains(expected), "{text}\n{expected}");
    }
    let weights = TableOptions { weight: Some("w".to_owned()), ..TableOptions::default() };
    assert!(message(files.open("x,w\n1,1\n2,-1\n", &weights)).contains("line 3: the weight `w` is `-1`"));
    assert!(message(files.open("y\n1\n", &target("y"))).contains("no column is left"));
    let twice = TableOptions { inputs: Some(names(&["y"])), ..target("y") };
    assert!(message(files.open("x,y\n1,1\n", &twice)).contains("used twice"));
    assert!(message(files.open("x,y\n1e308,1\n-1e308,1\n", &target("y"))).contains("too far apart"));
    let raw = TableOptions { standardize: false, ..target("y") };
    let table = files.open("x,y\n1e39,1\n1,1\n", &raw).expect("opens");
    assert!(message(table.get(0)).contains("line 2: `x` is 1e39, too large"));
    assert!(message(table.get(2)).contains("row 2 of a table of 2"));
    #[cfg(not(feature = "parquet"))]
    assert!(message(Table::open("x.parquet", &target("y"))).contains("feature `parquet`"));
    let quote = TableOptions { delimiter: Some('"'), ..TableOptions::default() };
    assert!(message(files.open("x,y\n", &quote)).contains("the delimiter"));
}

#[test]
fn damaged_tables_are_refused_or_read() {
    let files = Files::new();
    let bytes = std::fs::read(golden("houses.csv")).expect("there");
    let path = files.path(&bytes);
    let options = TableOptions { missing: Missing::Fill, ..target("city") };
    let count = refused(&path, &bytes, 400, |path| Table::open(path, &options));
    assert!((100..400).contains(&count), "{count}");
    let learned = Table::open(golden("houses.csv"), &options).expect("opens").preprocessing().clone();
    let count = refused(&path, &bytes, 400, |path| Table::open_with(path, &learned));
    assert!((100..400).contains(&count), "{count}");
}

#[test]
fn rows_are_read_by_many_threads() {
    let files = Files::new();
    let text: String = (0..1000).map(|n| format!("{n},{}\n", n * 2)).collect();
    let raw = TableOptions { standardize: false, ..target("y") };
    let table = files.open(format!("x,y\n{text}"), &raw).expect("opens");
    assert!(table.host_bytes() < 1024 * 16 && table.scratch_bytes() < 1024);
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let table = &table;
            scope.spawn(move || {
                for index in (thread..1000).step_by(4) {
                    assert_eq!(input(table, index), [index as f32]);
                }
            });
        }
    });
}

#[cfg(feature = "parquet")]
#[test]
fn damaged_parquet_files_are_refused_or_read() {
    let files = Files::new();
    let bytes = std::fs::read(golden("houses.parquet")).expect("there");
    let path = files.0.path().join("table.parquet");
    let count = refused(&path, &bytes, 300, |path| Table::open(path, &target("price")));
    assert!((100..=300).contains(&count), "{count}");
}
