//! Lists the files of `shaders/`, so that a new one needs no line anywhere.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rerun-if-changed=shaders");
    let root = PathBuf::from(std::env::var_os("CARGO_MANIFEST_DIR").expect("cargo sets it")).join("shaders");
    let mut files = Vec::new();
    collect(&root, &mut files);
    files.sort();
    // Kernels are named after the file alone, whatever its folder.
    let stems = files.iter().filter(|file| !file.starts_with(root.join("shared"))).filter_map(|file| file.file_stem());
    let mut seen = BTreeSet::new();
    for stem in stems {
        assert!(seen.insert(stem), "two files of shaders/ are named {}.wgsl", stem.display());
    }
    let mut table = String::from("&[\n");
    for file in &files {
        let name = file.strip_prefix(&root).expect("listed below it").to_str().expect("shader file names are ASCII");
        let name = name.replace('\\', "/");
        println!("cargo:rerun-if-changed={}", file.display());
        table.push_str(&format!("    ({name:?}, include_str!({:?})),\n", file.to_str().expect("a path in UTF-8")));
    }
    table.push_str("]\n");
    let out = PathBuf::from(std::env::var_os("OUT_DIR").expect("cargo sets it")).join("shader_files.rs");
    fs::write(out, table).expect("the build folder is writable");
}

fn collect(dir: &Path, files: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(dir).expect("shaders/ is part of the crate") {
        let path = entry.expect("shaders/ is readable").path();
        if path.is_dir() {
            println!("cargo:rerun-if-changed={}", path.display());
            collect(&path, files);
        } else if path.extension().is_some_and(|extension| extension == "wgsl") {
            files.push(path);
        }
    }
}
