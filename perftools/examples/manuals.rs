//! Writes the manual pages and shell completions of all tools to a directory.
//!
//! `cargo run -p perftools --example manuals -- DIR` creates `DIR/man1`, to be installed in
//! `/usr/share/man`, and `DIR/bash`, `DIR/zsh` and `DIR/fish`, to be installed in the completion
//! directories of the shells.

use std::path::Path;
use std::{env, fs, io};

use clap::Command;
use clap_complete::{Shell, generate_to};
use clap_mangen::Man;

#[allow(dead_code, reason = "a test includes this file and calls `write`")]
fn main() -> io::Result<()> {
    match env::args_os().nth(1) {
        Some(dir) => write(Path::new(&dir)),
        None => Err(io::Error::other(
            "write the manual pages: expected the target directory as argument",
        )),
    }
}

/// Writes all manual pages and completions below `dir`.
pub(crate) fn write(dir: &Path) -> io::Result<()> {
    let subdirectory = |name: &str| fs::create_dir_all(dir.join(name)).map(|()| dir.join(name));
    let pages = subdirectory("man1")?;
    for mut command in perftools::commands::all() {
        let name = command.get_name().to_owned();
        for shell in [Shell::Bash, Shell::Zsh, Shell::Fish] {
            generate_to(
                shell,
                &mut command.clone(),
                &name,
                subdirectory(&shell.to_string())?,
            )?;
        }
        command.build();
        for subcommand in command
            .get_subcommands()
            .filter(|subcommand| subcommand.get_name() != "help")
        {
            let page_name = format!("{name}-{}", subcommand.get_name());
            write_page(subcommand.clone(), &page_name, &pages)?;
        }
        write_page(command, &name, &pages)?;
    }
    Ok(())
}

/// Writes the manual page of a tool or of one of its subcommands.
///
/// The text after the help consists of examples and notes. Its line breaks are preserved.
fn write_page(command: Command, name: &str, dir: &Path) -> io::Result<()> {
    let after_help = command
        .get_after_long_help()
        .or(command.get_after_help())
        .map(ToString::to_string)
        .unwrap_or_default();
    let has_subcommands = command
        .get_subcommands()
        .any(|subcommand| subcommand.get_name() != "help");
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
    if has_subcommands {
        man.render_subcommands_section(&mut text)?;
    }
    let mut text = String::from_utf8(text).map_err(io::Error::other)?;
    let mut notes = Vec::new();
    for part in after_help.split("\n\n") {
        match part.split_once(":\n") {
            Some((title @ ("Examples" | "Exit status"), lines)) => {
                let title = title.to_uppercase();
                text.extend([".SH ", &title, "\n.nf\n", &verbatim(lines), "\n.fi\n"]);
            }
            _ => notes.push(part),
        }
    }
    let notes = notes.join("\n\n");
    if !notes.is_empty() {
        text.extend([".SH NOTES\n", &verbatim(&notes), "\n"]);
    }
    text.extend([".SH SEE ALSO\n", &see_also(name), "\n"]);
    fs::write(dir.join(format!("{name}.1")), text.replace('…', "..."))
}

/// Returns the pages that belong to a page: the other tools, and the programs that it resembles.
fn see_also(name: &str) -> String {
    let tool = name.split('-').next().unwrap_or(name);
    let others: &[(&str, u8)] = match tool {
        "rperf" => &[
            ("ribping", 1),
            ("ribinfo", 1),
            ("qperf", 1),
            ("ib_send_bw", 1),
        ],
        "ribping" => &[("rperf", 1), ("ribinfo", 1), ("ibping", 8), ("rping", 1)],
        _ => &[
            ("rperf", 1),
            ("ribping", 1),
            ("ibstat", 8),
            ("ibv_devinfo", 1),
            ("sminfo", 8),
            ("rdma", 8),
        ],
    };
    let own = (tool != name).then_some((tool, 1));
    let pages = own.iter().chain(others);
    pages
        .map(|(page, section)| format!("\\fB{}\\fR({section})", verbatim(page)))
        .collect::<Vec<_>>()
        .join(", ")
}

/// Escapes text so that roff prints it unchanged.
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
