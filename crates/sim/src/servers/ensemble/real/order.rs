//! Steps with earliest times, deadlines and an order between some of them.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::history::Micros;

/// A number of a step.
pub(super) type Number = usize;

/// Steps that are put into an order.
#[derive(Debug)]
pub(super) struct Order<S> {
    nodes: Vec<Node<S>>,
}

#[derive(Debug)]
struct Node<S> {
    step: S,
    /// Not before this moment, and not before every step that it waits for.
    at: Micros,
    deadline: Micros,
    /// The step that it waited for.
    waited_for: Option<Number>,
    waits_for: usize,
    then: Vec<Number>,
}

/// Why there is no order.
#[derive(Debug)]
pub(super) enum Impossible<S> {
    /// It cannot happen before its deadline, because it has to wait for other steps. The last one comes first.
    Late {
        step: S,
        by: Micros,
        waited_for: Vec<S>,
    },
    /// Each waits for the one before it, and the first for the last.
    Cycle(Vec<S>),
}

impl<S> Default for Order<S> {
    fn default() -> Self {
        Self { nodes: Vec::new() }
    }
}

impl<S: Copy> Order<S> {
    pub(super) fn add(&mut self, step: S, at: Micros, deadline: Micros) -> Number {
        self.nodes.push(Node {
            step,
            at,
            deadline,
            waited_for: None,
            waits_for: 0,
            then: Vec::new(),
        });
        self.nodes.len() - 1
    }

    /// `one` happens before `other`.
    pub(super) fn before(&mut self, one: Number, other: Number) {
        self.nodes[one].then.push(other);
        self.nodes[other].waits_for += 1;
    }

    pub(super) fn not_before(&mut self, number: Number, at: Micros) {
        let node = &mut self.nodes[number];
        node.at = node.at.max(at);
    }

    pub(super) fn not_after(&mut self, number: Number, deadline: Micros) {
        let node = &mut self.nodes[number];
        node.deadline = node.deadline.min(deadline);
    }

    /// All steps with their times, each as early as possible. If any order meets the deadlines, this one does.
    pub(super) fn earliest(mut self) -> Result<Vec<(Micros, S)>, Impossible<S>> {
        let ready = self.nodes.iter().enumerate();
        let ready = ready.filter(|(_, node)| node.waits_for == 0);
        let mut heap: BinaryHeap<_> = ready
            .map(|(number, node)| Reverse((node.at, number)))
            .collect();
        let mut done = Vec::new();
        while let Some(Reverse((at, number))) = heap.pop() {
            let Node { step, deadline, .. } = self.nodes[number];
            if at > deadline {
                return Err(Impossible::Late {
                    step,
                    by: at - deadline,
                    waited_for: self.waited_for(number),
                });
            }
            done.push((at, step));
            for next in std::mem::take(&mut self.nodes[number].then) {
                let node = &mut self.nodes[next];
                if node.at < at {
                    node.at = at;
                    node.waited_for = Some(number);
                }
                node.waits_for -= 1;
                if node.waits_for == 0 {
                    heap.push(Reverse((node.at, next)));
                }
            }
        }
        if done.len() == self.nodes.len() {
            return Ok(done);
        }
        Err(Impossible::Cycle(self.cycle()))
    }

    /// Steps of which each waits for the one before it, and the first for the last.
    fn cycle(&self) -> Vec<S> {
        let mut comes_before = vec![None; self.nodes.len()];
        let left = |number: &Number| self.nodes[*number].waits_for > 0;
        for number in (0..self.nodes.len()).filter(left) {
            for next in &self.nodes[number].then {
                comes_before[*next] = Some(number);
            }
        }
        let mut path: Vec<Number> = Vec::new();
        let mut next = (0..self.nodes.len()).find(left);
        while let Some(number) = next {
            if let Some(place) = path.iter().position(|known| *known == number) {
                let cycle = path[place..].iter().rev();
                return cycle.map(|number| self.nodes[*number].step).collect();
            }
            path.push(number);
            next = comes_before[number];
        }
        Vec::new()
    }

    fn waited_for(&self, number: Number) -> Vec<S> {
        let mut steps = Vec::new();
        let mut next = self.nodes[number].waited_for;
        while let Some(number) = next {
            steps.push(self.nodes[number].step);
            next = self.nodes[number].waited_for;
        }
        steps
    }
}
