//! Downloads from a small server of our own: resume, wrong contents, mirrors that fail.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::sync::{Arc, Mutex};

use sha2::{Digest, Sha256};
use tightfit::data::download::{self, RemoteFile};
use tightfit::error::DataError;

/// What a server does with a request.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Mode {
    /// Serves ranges, as a good mirror does.
    Ranges,
    /// Sends the whole file whatever is asked for.
    Whole,
    /// Announces everything but closes the connection after so many bytes.
    CutAfter(usize),
    /// Sends a range that was not asked for.
    WrongRange,
    /// Answers with this status.
    Status(u16),
    /// Sends chunks without a length, and without end as far as the client is concerned.
    Endless,
}

struct Server {
    mirror: String,
    /// The `Range` header of each request, empty if there was none.
    ranges: Arc<Mutex<Vec<String>>>,
}

/// Serves `contents` under every address until the test process ends.
fn serve(contents: &[u8], mode: Mode) -> Server {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let mirror = format!("http://{}/set/", listener.local_addr().expect("bound"));
    let ranges = Arc::new(Mutex::new(Vec::new()));
    let (contents, log) = (contents.to_vec(), ranges.clone());
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            // A client that hangs up early is part of the tests.
            let _ = answer(stream, &contents, mode, &log);
        }
    });
    Server { mirror, ranges }
}

fn answer(mut stream: TcpStream, contents: &[u8], mode: Mode, log: &Mutex<Vec<String>>) -> std::io::Result<()> {
    let mut range = String::new();
    for line in BufReader::new(stream.try_clone()?).lines() {
        let line = line?.to_ascii_lowercase();
        if line.is_empty() {
            break;
        }
        assert!(!line.starts_with("accept-encoding: gzip"), "a .gz must not be unpacked on arrival");
        if let Some(value) = line.strip_prefix("range: ") {
            range = value.to_owned();
        }
    }
    log.lock().expect("not poisoned").push(range.clone());
    let from = range.strip_prefix("bytes=").and_then(|range| range.trim_end_matches('-').parse::<usize>().ok());
    let total = contents.len();
    let head = |status: &str, length: usize, extra: &str| {
        format!("HTTP/1.1 {status}\r\nContent-Length: {length}\r\nConnection: close\r\n{extra}\r\n")
    };
    match (mode, from) {
        (Mode::Ranges, Some(from)) => {
            let extra = format!("Content-Range: bytes {from}-{}/{total}\r\n", total - 1);
            stream.write_all(head("206 Partial Content", total - from, &extra).as_bytes())?;
            stream.write_all(&contents[from..])
        }
        (Mode::WrongRange, Some(_)) => {
            let extra = format!("Content-Range: bytes 1-{}/{total}\r\n", total - 1);
            stream.write_all(head("206 Partial Content", total - 1, &extra).as_bytes())?;
            stream.write_all(&contents[1..])
        }
        (Mode::CutAfter(count), _) => {
            let from = from.unwrap_or(0);
            let extra = format!("Content-Range: bytes {from}-{}/{total}\r\n", total - 1);
            let status = if from > 0 { "206 Partial Content" } else { "200 OK" };
            stream.write_all(head(status, total - from, &extra).as_bytes())?;
            stream.write_all(&contents[from..][..count])
        }
        (Mode::Status(status), _) => stream.write_all(head(&format!("{status} Sorry"), 0, "").as_bytes()),
        (Mode::Endless, _) => {
            stream.write_all(b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n")?;
            loop {
                stream.write_all(&[b'x'; 4096])?;
            }
        }
        (Mode::Ranges | Mode::Whole | Mode::WrongRange, _) => {
            stream.write_all(head("200 OK", total, "").as_bytes())?;
            stream.write_all(contents)
        }
    }
}

fn contents() -> Vec<u8> {
    (0..200_000u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 24) as u8).collect()
}

fn sha256(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Fetches into `dir` as `file.gz`, expecting [`contents`].
fn fetch(dir: &Path, servers: &[&Server]) -> Result<(), DataError> {
    let expected = contents();
    let sha256 = sha256(&expected);
    let file = RemoteFile { name: "file.gz", size_bytes: expected.len() as u64, sha256: &sha256 };
    let mirrors: Vec<&str> = servers.iter().map(|server| server.mirror.as_str()).collect();
    let mut last = 0;
    let result = download::fetch(dir, &file, &mirrors, &mut |progress| {
        assert_eq!((progress.name, progress.size_bytes), ("file.gz", 200_000));
        assert!(progress.received_bytes <= 200_000);
        last = progress.received_bytes;
    });
    if result.is_ok() {
        assert_eq!(fs::read(dir.join("file.gz")).expect("fetched"), expected);
        assert!(!dir.join("file.gz.part").exists());
    } else {
        assert!(!dir.join("file.gz").exists());
    }
    result
}

fn ranges(server: &Server) -> Vec<String> {
    server.ranges.lock().expect("not poisoned").clone()
}

fn reason(result: Result<(), DataError>) -> String {
    let error = result.expect_err("this must fail");
    assert!(matches!(error, DataError::Download { .. }), "{error}");
    error.to_string()
}

#[test]
fn fetches_once_into_a_new_folder() {
    let dir = tempfile::tempdir().expect("a temporary folder");
    let target = dir.path().join("a/b");
    let server = serve(&contents(), Mode::Ranges);
    fetch(&target, &[&server]).expect("a good mirror");
    fetch(&target, &[&server]).expect("nothing to do");
    assert_eq!(ranges(&server), [""]);
}

#[test]
fn replaces_a_file_with_other_contents() {
    let dir = tempfile::tempdir().expect("a temporary folder");
    fs::write(dir.path().join("file.gz"), vec![0; 200_000]).expect("written");
    fetch(dir.path(), &[&serve(&contents(), Mode::Ranges)]).expect("a good mirror");
}

#[test]
fn goes_on_where_it_was_cut() {
    let dir = tempfile::tempdir().expect("a temporary folder");
    let cut = serve(&contents(), Mode::CutAfter(50_000));
    let text = reason(fetch(dir.path(), &[&cut]));
    assert!(text.contains("file.gz") && text.contains("go on from byte 50000"), "{text}");

    let good = serve(&contents(), Mode::Ranges);
    fetch(dir.path(), &[&cut, &good]).expect("the second mirror is good");
    assert_eq!(ranges(&cut), ["", "bytes=50000-"]);
    assert_eq!(ranges(&good), ["bytes=100000-"]);
}

#[test]
fn starts_over_where_ranges_are_not_known() {
    let dir = tempfile::tempdir().expect("a temporary folder");
    fs::write(dir.path().join("file.gz.part"), &contents()[..1000]).expect("written");
    fetch(dir.path(), &[&serve(&contents(), Mode::Whole)]).expect("it sends everything");
}

#[test]
fn a_wrong_start_is_found_and_fetched_again() {
    for length in [1000, 200_000, 300_000] {
        let dir = tempfile::tempdir().expect("a temporary folder");
        fs::write(dir.path().join("file.gz.part"), vec![7; length]).expect("written");
        fetch(dir.path(), &[&serve(&contents(), Mode::Ranges)]).expect("a good mirror");
    }
}

#[test]
fn a_finished_part_needs_no_mirror() {
    let dir = tempfile::tempdir().expect("a temporary folder");
    fs::write(dir.path().join("file.gz.part"), contents()).expect("written");
    fetch(dir.path(), &[]).expect("it only has to be renamed");
}

#[test]
fn wrong_contents_are_never_kept() {
    let dir = tempfile::tempdir().expect("a temporary folder");
    let mut wrong = contents();
    wrong[123_456] ^= 1;
    let wrong = serve(&wrong, Mode::Ranges);
    let text = reason(fetch(dir.path(), &[&wrong]));
    assert!(text.contains("sent other contents") && text.contains(&sha256(&contents())), "{text}");
    assert_eq!(fs::metadata(dir.path().join("file.gz.part")).expect("kept open").len(), 0);
    fetch(dir.path(), &[&wrong, &serve(&contents(), Mode::Ranges)]).expect("the second mirror is good");
}

#[test]
fn each_mirror_that_fails_is_named() {
    let dir = tempfile::tempdir().expect("a temporary folder");
    let closed = Server { mirror: "http://127.0.0.1:9/".into(), ranges: Arc::default() };
    let absent = serve(&[], Mode::Status(404));
    let busy = serve(&[], Mode::Status(503));
    let short = serve(&contents()[..1000], Mode::Whole);
    let endless = serve(&[], Mode::Endless);
    let text = reason(fetch(dir.path(), &[&closed, &absent, &busy, &short, &endless]));
    for (server, said) in
        [(&closed, ""), (&absent, "status 404"), (&busy, "status 503"), (&short, "stopped after 1000")]
    {
        assert!(text.contains(&server.mirror) && text.contains(said), "{text}");
    }
    assert!(text.contains("sent more than the expected 200000 bytes"), "{text}");
    assert!(reason(fetch(dir.path(), &[])).contains("no mirror was given"));
}

#[test]
fn a_range_that_was_not_asked_for_is_refused() {
    let dir = tempfile::tempdir().expect("a temporary folder");
    fs::write(dir.path().join("file.gz.part"), &contents()[..1000]).expect("written");
    let text = reason(fetch(dir.path(), &[&serve(&contents(), Mode::WrongRange)]));
    assert!(text.contains("sent the range `bytes 1-199999/200000`"), "{text}");
}

#[test]
fn two_fetches_at_once_do_not_mix() {
    let dir = tempfile::tempdir().expect("a temporary folder");
    let part = fs::File::create(dir.path().join("file.gz.part")).expect("created");
    part.try_lock().expect("nobody else has it");
    let error = fetch(dir.path(), &[&serve(&contents(), Mode::Ranges)]).expect_err("locked");
    assert!(error.to_string().contains("another process is fetching"), "{error}");
}

/// Lengths and hashes are well formed; whether they are right only a real download shows.
#[test]
fn the_list_of_files_is_whole() {
    for file in download::MNIST_FILES {
        assert_eq!(file.sha256.len(), 64, "{}", file.name);
        assert!(file.sha256.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f')), "{}", file.name);
        assert!(file.name.ends_with("-ubyte.gz"));
    }
    assert!(download::MNIST_MIRRORS.iter().all(|mirror| mirror.starts_with("https://") && mirror.ends_with('/')));
}
