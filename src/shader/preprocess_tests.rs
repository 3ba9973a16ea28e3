use super::*;

fn file(path: &str) -> Option<&'static str> {
    Some(match path {
        "shared/a.wgsl" => "fn a() {}\n",
        "shared/b.wgsl" => "#import \"shared/a.wgsl\"\nfn b() {}\n",
        "shared/loop1.wgsl" => "#import \"shared/loop2.wgsl\"\n",
        "shared/loop2.wgsl" => "\n#import \"shared/loop1.wgsl\"\n",
        "import_twice.wgsl" => "#import \"shared/b.wgsl\"\n#import \"shared/a.wgsl\"\nfn main() {}\n",
        "import_cycle.wgsl" => "#import \"shared/loop1.wgsl\"\n",
        "import_missing.wgsl" => "\n#import \"shared/none.wgsl\"\n",
        "import_outside.wgsl" => "#import \"relu.wgsl\"\n",
        "import_in_for.wgsl" => "#for i in 0..2\n#import \"shared/a.wgsl\"\n#end\n",
        "nested_if.wgsl" => {
            "#ifdef A\na\n#ifdef B\nab\n#else\na-\n#endif\n#else\n-\n#ifdef B\n-b\n#endif\n#endif\nend\n"
        }
        "ifndef.wgsl" => "#ifndef A\n-\n#ifdef B\n-b\n#endif\n#endif\n#ifndef B\nno b\n#else\nb\n#endif\n",
        "for.wgsl" => "#for row in 0..2\n  #for c in 1..N\n  acc#row_#c = x#c; // #1\n  #end\nr#row\n#end\n",
        "for_ifdef.wgsl" => "#for i in 0..2\n#ifdef A\n#i + 1\n#endif\n#end\n",
        "values.wgsl" => "#for i in 1..3\na#(i * N + 1)_#(7 % (i + 1))u #(9 / 2 - i)\n#end\n",
        "value_below_zero.wgsl" => "\nx#(1 - 2)\n",
        "value_no_name.wgsl" => "x#(M)\n",
        "value_by_zero.wgsl" => "x#(1 / 0)\n",
        "value_open.wgsl" => "x#((1)\n",
        "for_longest.wgsl" => "#for i in 0..1\n#for ii in 5..6u\n#i #ii\n#end\n#end\n",
        "for_bad_bound.wgsl" => "x\n#for i in 0..M\n#end\n",
        "for_bad_form.wgsl" => "#for i = 0..4\n#end\n",
        "for_same_name.wgsl" => "#for i in 0..2\n#for i in 0..2\n#end\n#end\n",
        "for_huge.wgsl" => "#for i in 0..1000000\n#end\n",
        "unclosed_if.wgsl" => "a\n#ifdef A\nb\n",
        "unclosed_for.wgsl" => "#for i in 0..2\n#ifdef A\n#endif\n",
        "crossed.wgsl" => "#for i in 0..2\n#ifdef A\n#end\n#endif\n",
        "stray_else.wgsl" => "\n#else\n",
        "stray_endif.wgsl" => "#endif\n",
        "stray_end.wgsl" => "#end\n",
        "two_else.wgsl" => "#ifdef A\n#else\n#else\n#endif\n",
        "unknown.wgsl" => "a\nb\n#define X\n",
        "if_no_name.wgsl" => "#ifdef\n#endif\n",
        "ifndef_two_names.wgsl" => "a\n#ifndef A B\n#endif\n",
        "ifndef_two_else.wgsl" => "#ifndef A\n#else\n#else\n#endif\n",
        "ifndef_open.wgsl" => "a\n#ifndef A\nb\n",
        _ => return None,
    })
}

fn expand(path: &str, defines: &[&str]) -> Result<String, ShaderError> {
    let names = Names {
        defines: defines.iter().map(|&name| name.to_owned()).collect(),
        consts: BTreeMap::from([("N".to_owned(), 3)]),
    };
    preprocess(&[path], &names, &file)
}

fn error_of(path: &str, defines: &[&str]) -> (String, usize, String) {
    match expand(path, defines) {
        Err(ShaderError::Directive { path, line, reason }) => (path, line, reason),
        other => panic!("{path}: expected a directive error, got {other:?}"),
    }
}

#[test]
fn imports_come_once_and_in_order() {
    assert_eq!(expand("import_twice.wgsl", &[]).as_deref(), Ok("fn a() {}\nfn b() {}\nfn main() {}\n"));
}

#[test]
fn import_errors_name_the_file_and_line() {
    let (path, line, reason) = error_of("import_cycle.wgsl", &[]);
    assert_eq!((path.as_str(), line), ("shared/loop2.wgsl", 2));
    assert!(reason.contains("imports itself"), "{reason}");
    assert_eq!(error_of("import_missing.wgsl", &[]).1, 2);
    assert!(error_of("import_outside.wgsl", &[]).2.contains("shared/"));
    assert!(error_of("import_in_for.wgsl", &[]).2.contains("inside `#for`"));
    assert_eq!(expand("nothing.wgsl", &[]), Err(ShaderError::Missing { path: "nothing.wgsl".to_owned() }));
}

#[test]
fn conditions_nest() {
    assert_eq!(expand("nested_if.wgsl", &[]).as_deref(), Ok("-\nend\n"));
    assert_eq!(expand("nested_if.wgsl", &["A"]).as_deref(), Ok("a\na-\nend\n"));
    assert_eq!(expand("nested_if.wgsl", &["B"]).as_deref(), Ok("-\n-b\nend\n"));
    assert_eq!(expand("nested_if.wgsl", &["A", "B"]).as_deref(), Ok("a\nab\nend\n"));
}

#[test]
fn ifndef_keeps_what_ifdef_drops() {
    assert_eq!(expand("ifndef.wgsl", &[]).as_deref(), Ok("-\nno b\n"));
    assert_eq!(expand("ifndef.wgsl", &["A"]).as_deref(), Ok("no b\n"));
    assert_eq!(expand("ifndef.wgsl", &["B"]).as_deref(), Ok("-\n-b\nb\n"));
    assert_eq!(expand("ifndef.wgsl", &["A", "B"]).as_deref(), Ok("b\n"));
}

#[test]
fn loops_unroll_with_constants_and_nest() {
    let text = "  acc0_1 = x1; // #1\n  acc0_2 = x2; // #1\nr0\n  acc1_1 = x1; // #1\n  acc1_2 = x2; // #1\nr1\n";
    assert_eq!(expand("for.wgsl", &[]).as_deref(), Ok(text));
    assert_eq!(expand("for_ifdef.wgsl", &[]).as_deref(), Ok(""));
    assert_eq!(expand("for_ifdef.wgsl", &["A"]).as_deref(), Ok("0 + 1\n1 + 1\n"));
    assert_eq!(expand("for_longest.wgsl", &[]).as_deref(), Ok("0 5\n"));
}

#[test]
fn expressions_are_replaced_by_their_values() {
    assert_eq!(expand("values.wgsl", &[]).as_deref(), Ok("a4_1u 3\na7_1u 2\n"));
}

#[test]
fn malformed_directives_name_their_line() {
    let cases = [
        ("for_bad_bound.wgsl", 2, "`M` is neither"),
        ("for_bad_form.wgsl", 1, "name in first..end"),
        ("for_same_name.wgsl", 2, "outer loop"),
        ("for_huge.wgsl", 1, "more than"),
        ("unclosed_if.wgsl", 2, "not closed"),
        ("unclosed_for.wgsl", 1, "not closed"),
        ("crossed.wgsl", 3, "`#end` closes a condition"),
        ("stray_else.wgsl", 2, "without a condition"),
        ("stray_endif.wgsl", 1, "without a condition"),
        ("stray_end.wgsl", 1, "without `#for`"),
        ("two_else.wgsl", 3, "second `#else`"),
        ("unknown.wgsl", 3, "`#define`"),
        ("value_below_zero.wgsl", 2, "1 - 2 is not"),
        ("value_no_name.wgsl", 1, "`M` is neither"),
        ("value_by_zero.wgsl", 1, "1 / 0 is not"),
        ("value_open.wgsl", 1, "not closed"),
        ("if_no_name.wgsl", 1, "`#ifdef` needs one name"),
        ("ifndef_two_names.wgsl", 2, "`#ifndef` needs one name, found `A B`"),
        ("ifndef_two_else.wgsl", 3, "second `#else`"),
        ("ifndef_open.wgsl", 2, "not closed"),
    ];
    for (path, line, reason) in cases {
        let (found_path, found_line, found_reason) = error_of(path, &["A"]);
        assert_eq!((found_path.as_str(), found_line), (path, line), "{found_reason}");
        assert!(found_reason.contains(reason), "{path}: {found_reason}");
    }
}
