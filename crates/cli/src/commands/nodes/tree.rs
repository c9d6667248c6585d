//! `bellwether tree`: shows a node and all nodes below it.

use std::collections::HashMap;
use std::io;

use serde_json::{Value, json};

use crate::args::TreeShowArgs;
use crate::connect::session::on_tree;
use crate::exit::Exit;
use crate::output::progress::Progress;
use crate::output::{self, Output};
use crate::tree::node_stat;
use crate::tree::walk::{Visited, walk};
use crate::value::node_path;

pub(crate) fn run(args: TreeShowArgs, output: Output) -> anyhow::Result<Exit> {
    on_tree(&args.tree, output, async |zk| {
        let progress = Progress::counter("reading", output);
        let visited = walk(zk, &args.path, args.depth, &progress).await?;
        drop(progress);
        let tree = Tree::new(&args.path, &visited);
        Ok(output::answer(|out| {
            tree.each(|node, branch| {
                if args.tree.json {
                    writeln!(out, "{}", json_of(node))
                } else if node.path == args.path {
                    writeln!(out, "{}{}", node.path, tree.mark(node))
                } else {
                    let name = node_path::name(&node.path);
                    writeln!(out, "{branch}{name}{}", tree.mark(node))
                }
            })?;
            Ok(Exit::Done)
        })?)
    })
}

/// The visited nodes, by path.
struct Tree<'a> {
    top: &'a str,
    nodes: HashMap<&'a str, &'a Visited>,
}

impl<'a> Tree<'a> {
    fn new(top: &'a str, visited: &'a [Visited]) -> Self {
        let nodes = visited.iter().map(|node| (&*node.path, node)).collect();
        Self { top, nodes }
    }

    /// Goes through all nodes, parents before their children, with the branches to draw. Without recursion, because a tree may be deeper
    /// than the stack.
    fn each(&self, mut visit: impl FnMut(&Visited, &str) -> io::Result<()>) -> io::Result<()> {
        // A stack; each entry with the text before its node and before its children.
        let mut to_visit: Vec<_> = self
            .nodes
            .get(self.top)
            .map(|node| (*node, String::new(), String::new()))
            .into_iter()
            .collect();
        while let Some((node, branch, before)) = to_visit.pop() {
            visit(node, &branch)?;
            for (place, child) in self.children(node).into_iter().rev().enumerate() {
                let (corner, bar) = if place == 0 {
                    ("└── ", "    ")
                } else {
                    ("├── ", "│   ")
                };
                to_visit.push((child, format!("{before}{corner}"), format!("{before}{bar}")));
            }
        }
        Ok(())
    }

    /// The visited children, sorted.
    fn children(&self, node: &Visited) -> Vec<&'a Visited> {
        let names = node.read.iter().flat_map(|(_, names)| names);
        names
            .filter_map(|name| {
                self.nodes
                    .get(&*node_path::child(&node.path, name))
                    .copied()
            })
            .collect()
    }

    /// A remark about a node.
    fn mark(&self, node: &Visited) -> String {
        match &node.read {
            None => " (may not be read)".to_owned(),
            Some((stat, _)) if stat.ephemeral_owner != 0 => " (ephemeral)".to_owned(),
            // At the depth limit.
            Some((_, names)) if !names.is_empty() && self.children(node).is_empty() => {
                format!(" ({} below)", names.len())
            }
            Some(_) => String::new(),
        }
    }
}

/// The path and the stat; only the path of a node that may not be read.
fn json_of(node: &Visited) -> Value {
    let path = json!({"path": node.path});
    match &node.read {
        Some((stat, _)) => node_stat::object(path, stat),
        None => path,
    }
}
