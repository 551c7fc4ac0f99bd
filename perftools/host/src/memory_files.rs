//! Files of a captured host in memory. The fuzzing targets change and read them without system
//! calls.

use std::collections::{BTreeSet, HashMap};
use std::path::{Path, PathBuf};
use std::{fs, io};

#[derive(Debug)]
enum Node {
    File(Vec<u8>),
    Directory(BTreeSet<String>),
    /// A symbolic link. Those of captured hosts lead nowhere.
    Link(PathBuf),
}

/// The files of a host, by their path without slashes at the ends.
#[derive(Debug, Default)]
pub struct MemoryFiles {
    nodes: HashMap<String, Node>,
    /// Nodes that changes have replaced, the oldest first.
    replaced: Vec<(String, Option<Node>)>,
}

impl MemoryFiles {
    /// Reads a directory with everything below it.
    pub(crate) fn read(directory: &Path) -> io::Result<Self> {
        let mut files = Self::default();
        files.read_directory(directory, "")?;
        Ok(files)
    }

    fn read_directory(&mut self, from: &Path, path: &str) -> io::Result<()> {
        let mut names = BTreeSet::new();
        for entry in fs::read_dir(from)? {
            let entry = entry?;
            let name = entry.file_name().to_string_lossy().into_owned();
            let path = normalized(&format!("{path}/{name}"));
            let kind = entry.file_type()?;
            if kind.is_dir() {
                self.read_directory(&entry.path(), &path)?;
            } else if kind.is_symlink() {
                let target = fs::read_link(entry.path())?;
                self.nodes.insert(path, Node::Link(target));
            } else {
                let content = fs::read(entry.path())?;
                self.nodes.insert(path, Node::File(content));
            }
            names.insert(name);
        }
        self.nodes.insert(path.to_owned(), Node::Directory(names));
        Ok(())
    }

    /// Returns the content of a file.
    pub(crate) fn file(&self, path: &str) -> Option<&[u8]> {
        match self.nodes.get(&normalized(path))? {
            Node::File(content) => Some(content),
            _ => None,
        }
    }

    /// Returns `true` if a path is a directory, `false` if it is a file, and `None` if it does not
    /// exist.
    pub(crate) fn is_directory(&self, path: &str) -> Option<bool> {
        match self.nodes.get(&normalized(path))? {
            Node::Link(_) => None,
            node => Some(matches!(node, Node::Directory(_))),
        }
    }

    /// Returns the names in a directory.
    pub(crate) fn names(&self, path: &str) -> Option<&BTreeSet<String>> {
        match self.nodes.get(&normalized(path))? {
            Node::Directory(names) => Some(names),
            _ => None,
        }
    }

    /// Returns the target of a link.
    pub(crate) fn link(&self, path: &str) -> Option<&Path> {
        match self.nodes.get(&normalized(path))? {
            Node::Link(target) => Some(target),
            _ => None,
        }
    }

    /// Creates or replaces a file, and creates its directories. Does nothing if a part of the path
    /// is not a directory, or if the path is one.
    pub fn write(&mut self, path: &str, content: Vec<u8>) {
        let path = normalized(path);
        let ends = path.match_indices('/').map(|(at, _)| at);
        let directories: Vec<&str> = ends.map(|at| &path[..at]).collect();
        let is_blocked =
            |path: &str| matches!(self.nodes.get(path), Some(Node::File(_) | Node::Link(_)));
        let is_file = matches!(self.nodes.get(&path), None | Some(Node::File(_)));
        if !is_file || directories.iter().any(|path| is_blocked(path)) {
            return;
        }
        for directory in directories {
            if !self.nodes.contains_key(directory) {
                self.replace(directory, Node::Directory(BTreeSet::new()));
            }
        }
        self.replace(&path, Node::File(content));
    }

    /// Adds a node, and its name to its directory, which exists.
    fn replace(&mut self, path: &str, node: Node) {
        let before = self.nodes.insert(path.to_owned(), node);
        if before.is_none() {
            let (parent, name) = path.rsplit_once('/').unwrap_or(("", path));
            if let Some(Node::Directory(names)) = self.nodes.get_mut(parent) {
                names.insert(name.to_owned());
            }
        }
        self.replaced.push((path.to_owned(), before));
    }

    /// Undoes all changes.
    pub fn restore(&mut self) {
        while let Some((path, before)) = self.replaced.pop() {
            if let Some(node) = before {
                self.nodes.insert(path, node);
                continue;
            }
            self.nodes.remove(&path);
            let (parent, name) = path.rsplit_once('/').unwrap_or(("", &path));
            if let Some(Node::Directory(names)) = self.nodes.get_mut(parent) {
                names.remove(name);
            }
        }
    }
}

/// Returns a path without slashes at the ends, `.`, `..` and repeated slashes.
fn normalized(path: &str) -> String {
    let mut parts: Vec<&str> = Vec::new();
    for part in path.split('/') {
        match part {
            "" | "." => {}
            ".." => {
                parts.pop();
            }
            _ => parts.push(part),
        }
    }
    parts.join("/")
}
