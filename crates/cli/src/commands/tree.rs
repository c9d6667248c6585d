//! `bellwether tree`: a node and all below it.

use std::collections::HashMap;
use std::io::{self, Write};

use serde_json::{Value, json};

use crate::args::TreeShowArgs;
use crate::exit::Exit;
use crate::node_path;
use crate::output::{self, Output};
use crate::progress::Progress;
use crate::session::on_tree;
use crate::walk::{Visited, walk};

pub(crate) fn run(args: TreeShowArgs, output: Output) -> anyhow::Result<Exit> {
    on_tree(&args.tree, output, async |zk| {
        let progress = Progress::counter("reading", output);
        let visited = walk(zk, &args.path, args.depth, &progress).await?;
        drop(progress);
        let tree = Tree::new(&args.path, &visited);
        Ok(output::answer(|out| {
            if args.tree.json {
                writeln!(out, "{}", tree.json(&args.path))?;
            } else {
                tree.write(out)?;
            }
            Ok(Exit::Done)
        })?)
    })
}

/// What was visited, by path.
struct Tree<'a> {
    top: &'a str,
    nodes: HashMap<&'a str, &'a Visited>,
}

impl<'a> Tree<'a> {
    fn new(top: &'a str, visited: &'a [Visited]) -> Self {
        let nodes = visited.iter().map(|node| (&*node.path, node)).collect();
        Self { top, nodes }
    }

    fn write(&self, out: &mut dyn Write) -> io::Result<()> {
        writeln!(out, "{}{}", self.top, self.mark(self.top))?;
        // What is still to be written, the next on top: a path, and the lines that stand before it. Trees may be deeper
        // than the stack.
        let mut to_write = self.children(self.top, "");
        while let Some((path, before, is_last)) = to_write.pop() {
            let (branch, below) = if is_last {
                ("└── ", "    ")
            } else {
                ("├── ", "│   ")
            };
            let name = node_path::name(&path);
            writeln!(out, "{before}{branch}{name}{}", self.mark(&path))?;
            to_write.extend(self.children(&path, &format!("{before}{below}")));
        }
        Ok(())
    }

    /// The children that were visited, last one first: path, lines before, and whether it is the last one.
    fn children(&self, path: &str, before: &str) -> Vec<(String, String, bool)> {
        let names = self.nodes.get(path).and_then(|node| node.read.as_ref());
        let paths = names.into_iter().flat_map(|(_, names)| names.iter().rev());
        paths
            .map(|name| node_path::child(path, name))
            .filter(|path| self.nodes.contains_key(&**path))
            .enumerate()
            .map(|(place, path)| (path, before.to_owned(), place == 0))
            .collect()
    }

    /// What is to be said of a node.
    fn mark(&self, path: &str) -> String {
        let Some(node) = self.nodes.get(path) else {
            return String::new();
        };
        match &node.read {
            None => " (may not be read)".to_owned(),
            Some((stat, _)) if stat.ephemeral_owner != 0 => " (ephemeral)".to_owned(),
            Some((_, names)) => {
                let shown = |name: &String| self.nodes.contains_key(&*node_path::child(path, name));
                // Where the depth ends.
                if !names.is_empty() && !names.iter().any(shown) {
                    format!(" ({} below)", names.len())
                } else {
                    String::new()
                }
            }
        }
    }

    /// `children` is null where the depth ends, or where a node may not be read.
    fn json(&self, path: &str) -> Value {
        let read = self.nodes.get(path).and_then(|node| node.read.as_ref());
        let children: Vec<_> = read
            .into_iter()
            .flat_map(|(_, names)| names)
            .map(|name| node_path::child(path, name))
            .filter(|path| self.nodes.contains_key(&**path))
            .collect();
        let known = read.is_some_and(|(_, names)| names.is_empty() || !children.is_empty());
        let children: Vec<_> = children.iter().map(|path| self.json(path)).collect();
        json!({
            "path": path,
            "kind": read.map(|(stat, _)| crate::node_stat::kind(stat)),
            "children_count": read.map(|(_, names)| names.len()),
            "children": if known { Value::Array(children) } else { Value::Null },
        })
    }
}
