//! Folders, lists and masks as datasets, and what is found in them.

use tightfit::data::image::{Extents, InspectOptions, Inspection, inspect, inspect_list};
use tightfit::data::{Batch, ImageFiles, ImageFolder, ImageList, ListOptions, ListTarget, TargetKind};

use super::*;

fn any_size() -> ImageOptions {
    ImageOptions { channels: 1, ..ImageOptions::default() }
}

#[test]
fn classes_are_folders_and_images_are_sorted() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    let files = ["dog/b.png", "dog/a.png", "cat/z/1.PNG", "cat/y.png", "Ant/1.png"];
    for (value, name) in files.iter().enumerate() {
        plain(at(name), 4, 5, value as u8);
    }
    for other in ["dog/notes.txt", "dog/.hidden.png", "list.csv", ".DS_Store"] {
        fs::write(at(other), "x").unwrap();
    }
    let data = ImageFolder::open(folder.path(), any_size()).unwrap();
    assert_eq!(data.class_names(), ["Ant", "cat", "dog"]);
    let expected = ["Ant/1.png", "cat/y.png", "cat/z/1.PNG", "dog/a.png", "dog/b.png"];
    let found: Vec<_> = (0..data.len()).map(|index| data.path(index).unwrap()).collect();
    assert_eq!(found, expected.map(at));
    assert_eq!((data.left_out(), data.path(5)), (4, None));
    let mut batch = Batch::default();
    data.read(&[4, 0, 2], &mut batch).unwrap();
    assert_eq!((batch.ints("target"), &batch.ints("input")[..20]), (vec![2, 0, 1], &[0; 20][..]));
    assert_eq!(batch.ints("input")[20..], [[4; 20], [2; 20]].concat());
    let labels: Vec<_> = (0..5).map(|index| data.label(index).unwrap().unwrap()).collect();
    assert_eq!(labels, [0, 1, 1, 2, 2]);
    let features = data.features().unwrap();
    assert_eq!(
        (features.class_names(), features.classes(), features.sample_bytes()),
        (data.class_names(), Some(3), 24)
    );
    assert_eq!(data.options().size, Some([4, 5]));

    // The numbers of another folder.
    let names = ["dog", "bird", "cat", "Ant"];
    let data = data.with_classes(&names).unwrap();
    assert_eq!((data.label(0).unwrap(), data.get(4).unwrap().get("target")), (Some(3), Some(&Array::from(0_u32))));
    assert!(message(data.with_classes(&["dog", "cats", "Ant"])).contains("`bird`"));
}

#[test]
fn folders_that_are_none_of_images_say_so() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    let open = |name: &str| message(ImageFolder::open(at(name), any_size()));
    fs::create_dir(at("empty")).unwrap();
    assert!(open("missing").contains("not found"));
    assert!(open("empty").contains("has no folders"));
    plain(at("flat/1.png"), 2, 2, 0);
    assert!(open("flat").contains("has images, but no folders: put the images of each class into a folder"));
    assert!(open("flat/1.png").contains("is not a folder"));
    plain(at("one/cat/1.png"), 2, 2, 0);
    fs::create_dir(at("one/dog")).unwrap();
    assert!(open("one").contains("dog: has no images"));
    plain(at("one/dog/1.png"), 2, 3, 0);
    let data = ImageFolder::open(at("one"), any_size()).unwrap();
    let text = message(data.get(1));
    assert!(text.contains("dog/1.png: is 2 x 3") && text.contains("first image is 2 x 2: give a size"), "{text}");
    fs::remove_file(at("one/dog/1.png")).unwrap();
    assert!(message(data.get(1)).contains("not found"));
    assert!(message(data.get(2)).contains("sample 2 of a dataset of 2"));
}

#[cfg(unix)]
#[test]
fn links_pipes_and_names_that_are_no_text_are_met() {
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt;
    use std::os::unix::fs::symlink;

    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    plain(at("a/x/1.png"), 2, 2, 0);
    symlink(at("a"), at("a/x/loop")).unwrap();
    symlink(at("nowhere"), at("a/x/2.png")).unwrap();
    assert!(std::process::Command::new("mkfifo").arg(at("a/x/3.png")).status().unwrap().success());
    let data = ImageFolder::open(folder.path(), any_size()).unwrap();
    assert_eq!(data.len(), 3);
    assert!(message(data.get(1)).contains("2.png: not found"));
    assert!(message(data.get(2)).contains("3.png: is a pipe"));
    plain(at("a").join(OsStr::from_bytes(b"\xff.png")), 2, 2, 0);
    assert!(message(ImageFolder::open(folder.path(), any_size())).contains("not UTF-8: rename it"));
}

#[test]
fn an_index_of_many_files_is_small() {
    let folder = tempfile::tempdir().unwrap();
    let file = plain(folder.path().join("class/00000.png"), 2, 2, 0);
    for index in 1..2000 {
        fs::hard_link(&file, folder.path().join(format!("class/{index:05}.png"))).unwrap();
    }
    let data = ImageFolder::open(folder.path(), any_size()).unwrap();
    assert!(data.len() == 2000 && data.host_bytes() < 2000 * 20, "{}", data.host_bytes());
    assert_eq!(data.path(1234).unwrap(), folder.path().join("class/01234.png"));
}

#[test]
fn lists_have_labels_names_numbers_or_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    plain(at("a.png"), 2, 2, 1);
    plain(at("b.png"), 2, 2, 2);
    let open = |text: &str, list: &ListOptions| {
        fs::write(at("list.csv"), text).unwrap();
        ImageList::open(at("list.csv"), list, any_size())
    };
    let labels =
        |data: &ImageList| (0..data.len()).map(|index| data.label(index).unwrap().unwrap()).collect::<Vec<_>>();
    let found = ListOptions::default();

    let names = open("\u{feff}File, Class\nb.png, dog\na.png, cat\n", &found).unwrap();
    assert_eq!((labels(&names), names.class_names()), (vec![1, 0], &["cat".to_owned(), "dog".to_owned()][..]));
    assert_eq!(pixels(names.get(0).unwrap().get("input").unwrap()), [2; 4]);
    assert!(names.origin(1).ends_with(&format!("list.csv, row 2 ({})", at("a.png").display())));
    let integers = open("path,label\na.png,10\nb.png,2\n", &found).unwrap();
    assert_eq!((labels(&integers), integers.features().unwrap().classes()), (vec![10, 2], Some(11)));
    let known = ListOptions { class_names: Some(vec!["dog".to_owned(), "cat".to_owned()]), ..Default::default() };
    assert_eq!(labels(&open("path,label\na.png,cat\nb.png,0\n", &known).unwrap()), [1, 0]);

    let target = ListTarget::Values(vec!["x".to_owned(), "y".to_owned()]);
    let numbers = ListOptions { target, weight: Some("w".to_owned()), ..Default::default() };
    let data = open("path,y,x,w\na.png,1,-2.5,1\nb.png,3,4e2,0.25\n", &numbers).unwrap();
    let sample = data.get(1).unwrap();
    assert_eq!(sample.get("target"), Some(&Array::from([400.0, 3.0])));
    assert_eq!(sample.get("sample_weight"), Some(&Array::from(0.25)));
    let features = data.features().unwrap();
    assert_eq!(features.target(), TargetKind::Values { shape: [2].into() });
    assert_eq!(features, tightfit::data::Features::of(&sample).unwrap());
    let none = ListOptions { target: ListTarget::None, root: Some(folder.path().to_owned()), ..Default::default() };
    assert_eq!(open("path\na.png\n", &none).unwrap().get(0).unwrap().entries().count(), 1);

    for (text, list, part) in [
        ("path,label\na.png,\n", &found, "row 1: `label` is empty"),
        ("path,label\na.png,cat\nc.png\n", &found, "line 3 has 1 columns where the header has 2"),
        ("photo,label\na.png,cat\n", &found, "has no column `path`"),
        ("path\na.png\n", &found, "has no column `label`"),
        ("path,label\n", &found, "no rows"),
        ("path,label\na.png,5000000\n", &found, "row 1: label 5000000 is too large"),
        ("path,label\na.png,cat\nb.png,bird\n", &known, "row 2: unknown class `bird`"),
        ("path,x,y,w\na.png,1,2,-1\n", &numbers, "row 1: the weight is -1"),
        ("path,x,y,w\na.png,1,two,1\n", &numbers, "row 1: `y` is `two`"),
        ("path,x,y,w\na.png,nan,2,1\n", &numbers, "row 1: `x` is `nan`"),
        ("path,x,w\na.png,1,1\n", &numbers, "unknown column `y`"),
        ("path,label\nmissing.png,cat\n", &found, "row 1: "),
    ] {
        let text = message(open(text, list));
        assert!(text.contains("list.csv") && text.contains(part), "{text}");
    }
    let data = open("path,label\na.png,cat\nmissing.png,cat\n", &found).unwrap();
    let text = message(data.get(1));
    assert!(text.contains("list.csv: row 2: ") && text.contains("missing.png: not found"), "{text}");
}

#[test]
fn files_without_labels_are_read_in_their_order() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    plain(at("some/2.png"), 3, 3, 2);
    plain(at("some/1.png"), 3, 3, 1);
    fs::copy(plain(at("other.png"), 3, 3, 7), at("image")).unwrap();
    let data = ImageFiles::open(&[at("image"), at("some")], any_size()).unwrap();
    let found: Vec<_> =
        (0..data.len()).map(|index| pixels(data.get(index).unwrap().get("input").unwrap())[0]).collect();
    assert_eq!((found, data.label(0).unwrap()), (vec![7, 1, 2], None));
    assert_eq!((data.path(1), data.features().unwrap().target()), (Some(at("some/1.png")), TargetKind::None));
    assert!(message(ImageFiles::open(&[at("nothing")], any_size())).contains("not found"));
    assert!(message(ImageFiles::open(&[] as &[PathBuf], any_size())).contains("give files or folders"));
    fs::create_dir(at("empty")).unwrap();
    assert!(message(ImageFiles::open(&[at("empty")], any_size())).contains("has no images"));
}

#[test]
fn a_value_far_from_the_classes_is_none() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    for (name, class) in [("a", 1), ("b", 255)] {
        plain(at(&format!("images/{name}.png")), 2, 3, 9);
        plain(at(&format!("masks/{name}.png")), 2, 3, class);
    }
    let open = || MaskedImages::open(at("images"), at("masks"), any_size(), MaskOptions::default()).unwrap();
    assert_eq!((open().mask_options().classes, open().mask_options().ignored), (Some(2), Some(255)));
    // Classes may be many.
    plain(at("masks/a.png"), 2, 3, 200);
    assert_eq!((open().mask_options().classes, open().mask_options().ignored), (Some(256), None));
}

#[test]
fn masks_have_their_images_and_their_values() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    plain(at("images/more/a.png"), 2, 3, 9);
    plain(at("images/b.png"), 2, 3, 9);
    plain(at("masks/more/a-mask.png"), 2, 3, 255);
    plain(at("masks/b.png"), 2, 3, 0);
    let with =
        |options: ImageOptions, masks: MaskOptions| MaskedImages::open(at("images"), at("masks"), options, masks);
    let open = |masks: MaskOptions| with(any_size(), masks);
    let target = |data: &MaskedImages, index: usize| data.get(index).unwrap().take("target").unwrap().into_values();

    // Black and white are two classes.
    let data = open(MaskOptions::default()).unwrap();
    assert_eq!((target(&data, 0), target(&data, 1)), (Values::U32(vec![0; 6]), Values::U32(vec![1; 6])));
    assert_eq!(data.mask_options().values, Some(vec![0, 255]));
    assert_eq!(data.features().unwrap(), data.features().unwrap().with_labels(2, [2, 3]));
    assert_eq!(data.paths(1), Some((at("images/more/a.png"), at("masks/more/a-mask.png"))));
    // Where 255 is ignored, there is one class; as many as are given; padded pixels are ignored.
    let void = MaskOptions { ignored: Some(255), ..Default::default() };
    let data = open(void.clone()).unwrap();
    assert_eq!((target(&data, 1), data.mask_options().classes), (Values::U32(vec![255; 6]), Some(1)));
    let padded = ImageOptions { size: Some([3, 3]), resize: Resize::Pad { fill: 0 }, ..any_size() };
    let data = with(padded, MaskOptions { classes: Some(3), ..void }).unwrap();
    assert_eq!(target(&data, 0), Values::U32(vec![0, 0, 0, 0, 0, 0, 255, 255, 255]));
    let TargetKind::Labels { classes, ignored, .. } = data.features().unwrap().target() else { panic!("labels") };
    assert_eq!((classes, ignored), (Some(3), Some(255)));
    // Values of classes: an ignored one that would be a label becomes 255.
    let values = MaskOptions { values: Some(vec![255, 7]), ignored: Some(0), ..Default::default() };
    let data = open(values).unwrap();
    assert_eq!((target(&data, 0), target(&data, 1)), (Values::U32(vec![255; 6]), Values::U32(vec![0; 6])));

    let few = MaskOptions { classes: Some(20), ..Default::default() };
    assert!(message(open(few).unwrap().get(1)).contains("has the value 255 in row 0, column 0, but with 20 classes"));
    let wrong = MaskOptions { classes: Some(3), values: Some(vec![0, 1]), ..Default::default() };
    assert!(message(open(wrong)).contains("3 and 2 classes"));

    plain(at("masks/b.png"), 3, 3, 0);
    assert!(
        message(open(MaskOptions::default()).unwrap().get(0)).contains("is a mask of 3 x 3, but its image is 2 x 3")
    );
    fs::copy(golden_file("color.png"), at("masks/b.png")).unwrap();
    assert!(message(open(MaskOptions::default())).contains("b.png: has colors"));
    fs::copy(golden_file("grey.jpg"), at("masks/b.png")).unwrap();
    assert!(message(open(MaskOptions::default())).contains("masks must be PNG"));
    plain(at("masks/b_mask.png"), 2, 3, 0);
    assert!(message(open(MaskOptions::default())).contains("two masks of one image"));
    fs::remove_file(at("masks/b.png")).unwrap();
    plain(at("masks/c.png"), 2, 3, 0);
    assert!(message(open(MaskOptions::default())).contains("has no image for the mask c.png"));
    plain(at("images/d.png"), 2, 3, 0);
    assert!(message(open(MaskOptions::default())).contains("has no mask for d.png"));
}

#[test]
fn inspection_counts_and_names_what_is_broken() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    for (name, height) in [("cat/1.png", 4), ("cat/2.png", 4), ("dog/1.png", 9)] {
        plain(at(name), height, 5, 0);
    }
    fs::copy(golden_file("turned-6.jpg"), at("dog/turned.jpg")).unwrap();
    fs::write(at("dog/broken.png"), "no image").unwrap();
    fs::write(at("dog/notes.txt"), "x").unwrap();
    let mut half = fs::read(golden_file("photo.png")).unwrap();
    half.truncate(half.len() / 2);
    fs::write(at("dog/half.png"), half).unwrap();
    let mut calls = Vec::new();
    let mut look = |decode, threads| {
        let options = InspectOptions { decode, threads, images: any_size() };
        calls.clear();
        let found = inspect(folder.path(), &options, &mut |done, all| calls.push((done, all))).unwrap();
        assert_eq!(calls, (1..=6).map(|done| (done, 6)).collect::<Vec<_>>());
        found
    };
    let found = look(false, 3);
    assert_eq!((found.images, found.broken_count, found.left_out, found.turned), (6, 1, 1, 1));
    assert_eq!(found.classes, [("cat".to_owned(), 2), ("dog".to_owned(), 4)]);
    assert_eq!(found.heights, Some(Extents { min: 4, median: 9, max: 30 }));
    assert_eq!(found.widths, Some(Extents { min: 5, median: 5, max: 41 }));
    assert_eq!((found.most_frequent, found.different_sizes), (Some(([4, 5], 2)), 4));
    assert_eq!(found.memory_bytes, 20 + 20 + 45 + 16 * 24 + 30 * 41);
    assert_eq!(
        (found.formats["PNG"], found.formats["JPEG"], found.colors["grey"], found.colors["color"]),
        (4, 1, 3, 2)
    );
    assert_eq!(look(false, 1), found, "any number of threads finds the same");
    let found = look(true, 2);
    assert_eq!((found.broken_count, found.broken[1].path.clone()), (2, at("dog/half.png")));
    let text = found.to_string();
    assert!(
        text.contains("cat  2\n") && text.contains("half.png: ends too early") && text.lines().count() > 8,
        "{text}"
    );
    let json = serde_json::to_string(&found).unwrap();
    assert!(json.contains(r#""most_frequent":[[4,5],2]"#), "{json}");
    assert_eq!(serde_json::from_str::<Inspection>(&json).unwrap(), found);

    fs::write(at("list.csv"), "path,label\ncat/1.png,b\ndog/none.png,a\n").unwrap();
    let list =
        inspect_list(at("list.csv"), &ListOptions::default(), &InspectOptions::default(), &mut |_, _| {}).unwrap();
    assert_eq!(list.classes, [("a".to_owned(), 1), ("b".to_owned(), 1)]);
    assert!(list.broken_count == 1 && list.broken[0].reason.contains("not found"));
    let flat = inspect(at("cat"), &InspectOptions::default(), &mut |_, _| {}).unwrap();
    assert_eq!((flat.images, flat.classes.len(), flat.different_sizes), (2, 0, 1));
    assert!(flat.to_string().contains("4 x 5 (height x width)"));
    fs::create_dir(at("empty")).unwrap();
    assert!(message(inspect(at("empty"), &InspectOptions::default(), &mut |_, _| {})).contains("has no images"));
}
