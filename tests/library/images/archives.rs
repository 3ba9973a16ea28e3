//! Tar archives.

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::SeedableRng;
use tightfit::data::{TarOptions, TarShards, TarTarget};

use super::damaged::mutated;
use super::*;

/// An archive of these members.
fn tar(members: &[(&str, Vec<u8>)]) -> Vec<u8> {
    let mut tar = tar::Builder::new(Vec::new());
    for (name, bytes) in members {
        let mut header = tar::Header::new_gnu();
        header.set_size(bytes.len() as u64);
        tar.append_data(&mut header, name, &bytes[..]).unwrap();
    }
    tar.into_inner().unwrap()
}

fn png(value: u8) -> Vec<u8> {
    let mut file = std::io::Cursor::new(Vec::new());
    image::GrayImage::from_pixel(5, 4, image::Luma([value])).write_to(&mut file, image::ImageFormat::Png).unwrap();
    file.into_inner()
}

fn open(path: &Path, options: &TarOptions) -> Result<TarShards, DataError> {
    TarShards::open(&[path], options, ImageOptions::default())
}

/// One archive of these members, in a folder.
fn in_folder(members: &[(&str, Vec<u8>)]) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("a.tar"), tar(members)).unwrap();
    folder
}

#[test]
fn samples_of_all_shards_are_read_in_any_order() {
    let folder = tempfile::tempdir().unwrap();
    let long = format!("{}/0003", "folder".repeat(40));
    let (image, label) = (format!("{long}.png"), format!("{long}.cls"));
    let first: [(&str, Vec<u8>); 5] = [
        ("0001.png", png(1)),
        ("0001.cls", b"4\n".to_vec()),
        ("0001.caption.txt", b"left out".to_vec()),
        ("README", vec![1]),
        ("0002.PNG", png(2)),
    ];
    let second = [(&image[..], png(3)), (&label[..], b"0".to_vec())];
    fs::write(folder.path().join("b.tar"), tar(&second)).unwrap();
    fs::write(folder.path().join("a.tar"), tar(&[&first[..], &[("0002.cls", b"2".to_vec())]].concat())).unwrap();
    fs::write(folder.path().join("notes.md"), "x").unwrap();
    let data = open(folder.path(), &TarOptions::default()).unwrap();
    assert_eq!((data.len(), data.left_out(), data.shards().len()), (3, 2, 2));
    for (index, value, label) in [(2, 3, 0), (0, 1, 4), (1, 2, 2), (0, 1, 4)] {
        let sample = data.get(index).unwrap();
        assert_eq!(pixels(sample.get("input").unwrap()), [value; 60]);
        assert_eq!(sample.get("target").map(Array::values), Some(&Values::U32(vec![label])));
        assert_eq!(data.label(index).unwrap(), Some(label));
    }
    assert_eq!(data.features().unwrap().classes(), Some(5));
    assert!(data.origin(2).ends_with("0003") && data.origin(2).contains("b.tar"), "{}", data.origin(2));
    assert!(message(data.get(3)).contains("sample 3 of a dataset of 3"));
}

#[test]
fn labels_are_integers_names_keys_of_json_or_masks() {
    let of = |kind: &str, text: &str| (format!("x.{kind}"), text.as_bytes().to_vec());
    let with = |(name, bytes): (String, Vec<u8>), options: &TarOptions| {
        let json = br#"{"class": "dog"}"#.to_vec();
        let first = [("w.png", png(0)), ("w.txt", b"dog".to_vec()), ("w.json", json)];
        open(in_folder(&[&first[..], &[("x.png", png(0)), (&name, bytes)]].concat()).path(), options)
    };
    let names = |data: TarShards| (data.class_names().to_vec(), data.label(0).unwrap(), data.label(1).unwrap());
    let both = vec!["cat".to_owned(), "dog".to_owned()];
    let json = TarOptions { target: TarTarget::Json("class".to_owned()), ..Default::default() };
    assert_eq!(names(with(of("txt", "cat"), &TarOptions::default()).unwrap()), (both.clone(), Some(1), Some(0)));
    assert_eq!(names(with(of("json", r#"{"class": "cat"}"#), &json).unwrap()), (both, Some(1), Some(0)));
    assert!(message(with(of("json", r#"{"label": "cat"}"#), &json)).contains("a.tar/x: has no `class`"));
    assert!(message(with(of("json", "{"), &json)).contains("is not JSON"));
    assert!(message(with(of("txt", &"long".repeat(100)), &TarOptions::default())).contains("too many for a label"));
    assert!(message(with(of("cls", "1"), &TarOptions::default())).contains("a.tar/x: has no txt"));
    let known = TarOptions { class_names: Some(vec!["dog".to_owned()]), ..Default::default() };
    assert!(message(with(of("txt", "cat"), &known)).contains("a.tar/x: unknown class `cat`"));
    let none = TarOptions { target: TarTarget::None, ..Default::default() };
    assert_eq!(with(of("cls", "1"), &none).unwrap().label(0).unwrap(), None);

    let folder = in_folder(&[("1.png", png(9)), ("1.seg.png", png(3))]);
    let masked = open(folder.path(), &TarOptions::default()).unwrap();
    let sample = masked.get(0).unwrap();
    assert_eq!(sample.get("target").map(Array::values), Some(&Values::U32(vec![3; 20])));
    assert_eq!(masked.features().unwrap().classes(), Some(4));
}

#[test]
fn archives_that_are_none_say_so() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    let none = TarOptions { target: TarTarget::None, ..Default::default() };
    let refused = |name: &str, bytes: &[u8]| {
        fs::write(at(name), bytes).unwrap();
        message(open(&at(name), &none))
    };
    let whole = tar(&[("1.png", png(1)), ("2.png", png(2))]);
    assert!(refused("a.tar", b"\x1f\x8b\x08\0\0\0\0\0\0\0").contains("compressed with gzip"));
    assert!(refused("a.tar", &whole[..520]).contains("ends in the middle of its member `1.png`"));
    assert!(refused("a.tar", &whole[..512 + 40]).contains("ends in the middle"));
    assert!(refused("a.tar", b"").contains("is empty"));
    assert!(refused("a.tar", &[0; 1024]).contains("no images"));
    assert!(refused("a.tar", &[7; 1024]).contains("no whole tar archive"));
    let twice = tar(&[("1.png", png(1)), ("1.jpg", png(2))]);
    assert!(refused("a.tar", &twice).contains("two members for one thing"));
    assert!(refused("a.tar", &tar(&[("1.cls", b"1".to_vec())])).contains("has no image"));
    let member = |kind: tar::EntryType, size: u64| {
        let mut header = tar::Header::new_gnu();
        header.set_entry_type(kind);
        header.set_path("1.png").unwrap();
        header.set_size(size);
        header.set_cksum();
        header.as_bytes().to_vec()
    };
    assert!(refused("a.tar", &member(tar::EntryType::Symlink, 0)).contains("a link or a device"));
    assert!(refused("a.tar", &member(tar::EntryType::Regular, 1 << 40)).contains("ends in the middle"));
    assert!(refused("a.tar", &member(tar::EntryType::Regular, u64::MAX - 5)).contains("a.tar: "));
    // A name of 2 GiB: it stands in a file that has as many bytes, all of them holes.
    fs::write(at("a.tar"), member(tar::EntryType::GNULongName, 2 << 30)).unwrap();
    fs::OpenOptions::new().append(true).open(at("a.tar")).unwrap().set_len(3 << 30).unwrap();
    assert!(message(open(&at("a.tar"), &none)).contains("a header is too long"));
    // So is an image of that size.
    fs::write(at("a.tar"), member(tar::EntryType::Regular, 2 << 30)).unwrap();
    fs::OpenOptions::new().append(true).open(at("a.tar")).unwrap().set_len(3 << 30).unwrap();
    assert!(message(open(&at("a.tar"), &none)).contains("members of samples have at most 256"));
    fs::remove_file(at("a.tar")).unwrap();
    fs::write(at("b.tar.gz"), "x").unwrap();
    assert!(message(open(folder.path(), &none)).contains("unpack it to .tar"));
    fs::remove_file(at("b.tar.gz")).unwrap();
    assert!(message(open(folder.path(), &none)).contains("has no archives"));
}

#[test]
fn mutated_archives_are_an_error_of_one_line_or_samples() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.tar");
    let long = format!("{}.png", "n".repeat(150));
    let whole = tar(&[
        ("1.png", png(1)),
        ("1.cls", b"1".to_vec()),
        (&long, png(2)),
        (&long.replace("png", "cls"), b"0".to_vec()),
    ]);
    let mut random = ChaCha8Rng::seed_from_u64(3);
    let mut failed = 0;
    for _ in 0..400 {
        fs::write(&path, mutated(&whole, &mut random)).unwrap();
        let read = open(&path, &TarOptions::default())
            .and_then(|data| (0..data.len()).try_for_each(|index| data.get(index).map(drop)));
        if let Err(error) = read {
            failed += 1;
            message(Err::<(), _>(error));
        }
    }
    assert!(failed > 50, "{failed}");
}
