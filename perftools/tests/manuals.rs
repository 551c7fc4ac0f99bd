//! Manual pages and shell completions.

#[path = "../examples/manuals.rs"]
mod manuals;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

/// A directory with the manual pages and completions.
struct Written(PathBuf);

impl Written {
    fn new(test: &str) -> Self {
        let dir = env::temp_dir().join(format!("manuals-{test}-{}", std::process::id()));
        manuals::write(&dir).expect("pages and completions");
        Self(dir)
    }

    fn text(&self, file: &str) -> String {
        fs::read_to_string(self.0.join(file)).unwrap_or_else(|error| panic!("{file}: {error}"))
    }
}

impl Drop for Written {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

#[test]
fn every_option_is_in_its_manual_page() {
    let written = Written::new("options");
    let holds = |page: &str, command: &clap::Command| {
        let text = written.text(&format!("man1/{page}.1")).replace('\\', "");
        for option in command.get_arguments().filter_map(clap::Arg::get_long) {
            assert!(text.contains(&format!("--{option}")), "{page}: --{option}");
        }
        assert!(
            text.starts_with(".ie") && text.contains(".SH NAME") && text.contains(".SH SYNOPSIS"),
            "{page}"
        );
    };
    for command in perftools::commands::all() {
        holds(command.get_name(), &command);
        for part in command.get_subcommands() {
            holds(&format!("{}-{}", command.get_name(), part.get_name()), part);
        }
    }
    let examples = written.text("man1/ribinfo.1");
    assert!(
        examples.contains("\n.SH EXAMPLES\n.nf\n  ribinfo check "),
        "{examples}"
    );
    assert!(!examples.contains('…'));
}

/// Returns the completions that bash offers for the last word.
fn offered(script: &Path, words: &[&str]) -> String {
    let name = words[0];
    let line = format!(
        "source {}; COMP_WORDS=({}); COMP_CWORD={}; _{name} {name} '{}' '{}'; echo \"${{COMPREPLY[@]}}\"",
        script.display(),
        words.join(" "),
        words.len() - 1,
        words[words.len() - 1],
        words[words.len() - 2],
    );
    let output = Command::new("bash")
        .args(["-c", &line])
        .output()
        .expect("bash");
    assert!(output.status.success(), "{output:?}");
    String::from_utf8_lossy(&output.stdout).trim().to_owned()
}

#[test]
fn bash_completes_commands_and_options() {
    let written = Written::new("bash");
    let bash = |words: &[&str]| offered(&written.0.join(format!("bash/{}.bash", words[0])), words);
    assert_eq!(bash(&["ribinfo", "ch"]), "check");
    assert_eq!(bash(&["ribinfo", "check", "--peer-f"]), "--peer-facts");
    assert!(bash(&["ribinfo", "check", "part"]).contains("partitions"));
    assert_eq!(bash(&["ribping", "--int"]), "--interval");
    assert!(bash(&["rperf", "rc_"]).contains("rc_bi_bw"));
}

#[test]
fn zsh_and_fish_completions_are_written() {
    let written = Written::new("others");
    for tool in ["rperf", "ribping", "ribinfo"] {
        assert!(
            written
                .text(&format!("zsh/_{tool}"))
                .starts_with(&format!("#compdef {tool}\n"))
        );
        assert!(
            written
                .text(&format!("fish/{tool}.fish"))
                .contains(&format!("complete -c {tool} "))
        );
    }
}
