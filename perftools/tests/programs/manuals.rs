//! Manual pages and shell completions.

#[path = "../../examples/manuals.rs"]
mod example;

use std::fs;
use std::path::Path;
use std::process::Command;

use test_support::process;
use test_support::temp_dir::TempDir;
use test_support::text::assert_contains;

/// Writes the manual pages and completions to a new temporary directory.
fn write_manuals() -> TempDir {
    let dir = TempDir::new();
    example::write(dir.path()).expect("pages and completions");
    dir
}

fn read(dir: &TempDir, file: &str) -> String {
    fs::read_to_string(dir.path().join(file)).unwrap_or_else(|error| panic!("{file}: {error}"))
}

#[test]
fn every_option_is_in_its_manual_page() {
    let dir = write_manuals();
    let check_page = |page: &str, command: &clap::Command| {
        let text = read(&dir, &format!("man1/{page}.1")).replace('\\', "");
        for option in command.get_arguments().filter_map(clap::Arg::get_long) {
            assert!(text.contains(&format!("--{option}")), "{page}: --{option}");
        }
        // `.ie` begins the preamble that clap_mangen writes on each page.
        assert!(
            text.starts_with(".ie") && text.contains(".SH NAME") && text.contains(".SH SYNOPSIS"),
            "{page}"
        );
    };
    for command in perftools::commands::all() {
        check_page(command.get_name(), &command);
        for subcommand in command.get_subcommands() {
            let page = format!("{}-{}", command.get_name(), subcommand.get_name());
            check_page(&page, subcommand);
        }
    }
    let ribinfo = read(&dir, "man1/ribinfo.1");
    assert_contains(&ribinfo, &["\n.SH EXAMPLES\n.nf\n  ribinfo check "]);
    // Pages use `...` instead.
    for page in ["ribinfo", "ribping", "ribinfo-check"] {
        let text = read(&dir, &format!("man1/{page}.1"));
        assert!(text.contains("\n.SH SEE ALSO\n\\fB"), "{text}");
    }
    let ribping = read(&dir, "man1/ribping.1");
    for page in [&ribinfo, &ribping] {
        assert!(page.contains("\n.SH EXIT STATUS\n.nf\n  0  "), "{page}");
        assert!(page.contains("\n.SH EXAMPLES\n.nf\n"), "{page}");
    }
    assert!(!ribinfo.contains('…'));
}

/// Returns the completions that bash offers for the last word of a command line.
fn completions(script: &Path, words: &[&str]) -> String {
    let name = words[0];
    let line = format!(
        "source {}; COMP_WORDS=({}); COMP_CWORD={}; _{name} {name} '{}' '{}'; echo \"${{COMPREPLY[@]}}\"",
        script.display(),
        words.join(" "),
        words.len() - 1,
        words[words.len() - 1],
        words[words.len() - 2],
    );
    process::run(Command::new("bash").args(["-c", &line]))
        .trim()
        .to_owned()
}

#[test]
fn bash_completes_commands_and_options() {
    let dir = write_manuals();
    let bash =
        |words: &[&str]| completions(&dir.path().join(format!("bash/{}.bash", words[0])), words);
    assert_eq!(bash(&["ribinfo", "ch"]), "check");
    assert_eq!(bash(&["ribinfo", "check", "--peer-f"]), "--peer-facts");
    assert!(bash(&["ribinfo", "check", "part"]).contains("partitions"));
    assert_eq!(bash(&["ribping", "--int"]), "--interval");
    assert!(bash(&["rperf", "rc_"]).contains("rc_bi_bw"));
}

#[test]
fn zsh_and_fish_completions_are_written() {
    let dir = write_manuals();
    for tool in ["rperf", "ribping", "ribinfo"] {
        assert!(read(&dir, &format!("zsh/_{tool}")).starts_with(&format!("#compdef {tool}\n")));
        assert!(read(&dir, &format!("fish/{tool}.fish")).contains(&format!("complete -c {tool} ")));
    }
}
