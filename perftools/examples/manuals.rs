//! Writes the manual pages and the shells' completions of all three tools: `cargo run -p perftools
//! --example manuals -- DIR`.
//!
//! DIR gets `man1/`, for `/usr/share/man`, and `bash/`, `zsh/` and `fish/`, for where the shells
//! look for completions.

use std::path::Path;
use std::{env, fs, io};

use clap::Command;
use clap_complete::{Shell, generate_to};
use clap_mangen::Man;

#[allow(dead_code, reason = "a test calls what it calls")]
fn main() -> io::Result<()> {
    match env::args_os().nth(1) {
        Some(dir) => write(Path::new(&dir)),
        None => Err(io::Error::other("wanted: the directory to write to")),
    }
}

/// Writes them all.
pub(crate) fn write(dir: &Path) -> io::Result<()> {
    let make = |name: &str| fs::create_dir_all(dir.join(name)).map(|()| dir.join(name));
    let pages = make("man1")?;
    for mut command in perftools::commands::all() {
        let name = command.get_name().to_owned();
        for shell in [Shell::Bash, Shell::Zsh, Shell::Fish] {
            generate_to(
                shell,
                &mut command.clone(),
                &name,
                make(&shell.to_string())?,
            )?;
        }
        command.build();
        for part in command
            .get_subcommands()
            .filter(|part| part.get_name() != "help")
        {
            page(part.clone(), &format!("{name}-{}", part.get_name()), &pages)?;
        }
        page(command, &name, &pages)?;
    }
    Ok(())
}

/// Writes the page of a tool or of one of its commands. The text behind the help is examples, so
/// its lines stay as they are.
fn page(command: Command, name: &str, dir: &Path) -> io::Result<()> {
    let after = command
        .get_after_help()
        .map(ToString::to_string)
        .unwrap_or_default();
    let has_parts = command
        .get_subcommands()
        .any(|part| part.get_name() != "help");
    let usage_name: &'static str = Box::leak(name.to_owned().into_boxed_str());
    let man = Man::new(command.name(usage_name))
        .title(name)
        .manual("rdma-rs");
    let mut text = Vec::new();
    man.render_title(&mut text)?;
    man.render_name_section(&mut text)?;
    man.render_synopsis_section(&mut text)?;
    man.render_description_section(&mut text)?;
    man.render_options_section(&mut text)?;
    if has_parts {
        man.render_subcommands_section(&mut text)?;
    }
    let mut text = String::from_utf8(text).map_err(io::Error::other)?;
    let (examples, rest) = after.split_once("\n\n").unwrap_or((&after, ""));
    if let Some(examples) = examples.strip_prefix("Examples:\n") {
        text.extend([".SH EXAMPLES\n.nf\n", &verbatim(examples), "\n.fi\n"]);
    }
    if !rest.is_empty() {
        text.extend([".SH NOTES\n", &verbatim(rest), "\n"]);
    }
    fs::write(dir.join(format!("{name}.1")), text.replace('…', "..."))
}

/// Text that no macro is in.
fn verbatim(text: &str) -> String {
    let line = |line: &str| {
        let line = line.replace('\\', "\\e").replace('-', "\\-");
        if line.starts_with(['.', '\'']) {
            format!("\\&{line}")
        } else {
            line
        }
    };
    text.trim_end()
        .lines()
        .map(line)
        .collect::<Vec<_>>()
        .join("\n")
}
