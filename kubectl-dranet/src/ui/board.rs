//! What pages show, with the revision of each part, so that a page gets only what changed since it last
//! heard.

use super::ask::Known;
use super::model::{Layouts, PageNode, PageRoom, Update};
use crate::waiting::Waiting;
use k8s_openapi::api::core::v1::Pod;
use std::collections::BTreeMap;

/// A part, and the revision in which it changed last.
#[derive(Debug, Default)]
struct Part<T> {
    since: u64,
    value: T,
}

/// The parts of a page.
#[derive(Debug, Default)]
pub(crate) struct Board {
    revision: u64,
    is_changed: bool,
    pub(crate) layouts: Layouts,
    /// The revision in which each layout was added.
    layouts_since: Vec<u64>,
    /// `None` for nodes that are gone.
    nodes: BTreeMap<String, Part<Option<PageNode>>>,
    waiting: Part<Vec<Waiting>>,
    room: Part<Vec<PageRoom>>,
}

impl Board {
    /// All of a cluster, in revision 1.
    pub(crate) fn of_cluster(known: &Known) -> anyhow::Result<Self> {
        let mut board = Self::default();
        let mut on_node: BTreeMap<&str, Vec<&Pod>> = BTreeMap::new();
        for pod in &known.pods {
            if let Some(node) = pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref()) {
                on_node.entry(node).or_default().push(pod);
            }
        }
        let facts = &known.in_use.nodes;
        for node in known.view.present_nodes() {
            let pods = on_node.remove(node).unwrap_or_default().into_iter();
            let shown = PageNode::new(&known.view, (node, facts), pods, &mut board.layouts);
            board.set_node(node, shown);
        }
        board.set_waiting(known.waiting());
        board.set_room(known.room()?);
        board.commit();
        Ok(board)
    }

    /// Replaces a node, or removes it.
    pub(crate) fn set_node(&mut self, name: &str, node: Option<PageNode>) {
        self.is_changed |= match self.nodes.get_mut(name) {
            Some(part) => part.set(node, self.revision + 1),
            None if node.is_none() => false,
            None => {
                let part = Part { since: self.revision + 1, value: node };
                self.nodes.insert(name.to_owned(), part);
                true
            }
        };
    }

    /// Removes the nodes for which this does not hold.
    #[cfg(feature = "live")]
    pub(crate) fn retain(&mut self, is_there: impl Fn(&str) -> bool) {
        for (name, part) in &mut self.nodes {
            if !is_there(name) {
                self.is_changed |= part.set(None, self.revision + 1);
            }
        }
    }

    pub(crate) fn set_waiting(&mut self, waiting: Vec<Waiting>) {
        self.is_changed |= self.waiting.set(waiting, self.revision + 1);
    }

    pub(crate) fn set_room(&mut self, room: Vec<PageRoom>) {
        self.is_changed |= self.room.set(room, self.revision + 1);
    }

    /// Ends a change; returns the new revision, if anything differs.
    pub(crate) fn commit(&mut self) -> Option<u64> {
        self.layouts_since.resize(self.layouts.count(), self.revision + 1);
        let is_changed = std::mem::take(&mut self.is_changed);
        self.revision += u64::from(is_changed);
        is_changed.then_some(self.revision)
    }

    /// What changed after a revision, and the revision now. Everything changed after revision 0.
    pub(crate) fn since(&self, revision: u64) -> (Update, u64) {
        let first = self.layouts_since.partition_point(|since| *since <= revision);
        let mut update = Update { layouts: self.layouts.from(first), ..Update::default() };
        for (name, part) in self.nodes.iter().filter(|(_, part)| part.since > revision) {
            match &part.value {
                Some(node) => update.nodes.push(node.clone()),
                None if revision > 0 => update.gone.push(name.clone()),
                None => {}
            }
        }
        update.waiting = self.waiting.after(revision);
        update.room = self.room.after(revision);
        (update, self.revision)
    }
}

impl<T: PartialEq + Clone> Part<T> {
    /// Returns true if the value differs.
    fn set(&mut self, value: T, revision: u64) -> bool {
        let differs = self.value != value;
        if differs {
            *self = Self { since: revision, value };
        }
        differs
    }

    fn after(&self, revision: u64) -> Option<T> {
        (self.since > revision || revision == 0).then(|| self.value.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn room(now: usize) -> Vec<PageRoom> {
        vec![PageRoom { shape: "1gpu:1nic".to_owned(), now, empty: 8 }]
    }

    fn waiting(pod: &str) -> Vec<Waiting> {
        let (owner, namespace) = ("Job a".to_owned(), "n".to_owned());
        vec![Waiting { owner, namespace, pods: vec![pod.to_owned()] }]
    }

    #[test]
    fn a_page_gets_what_changed_since_it_last_heard() {
        let mut board = Board::default();
        assert_eq!(board.commit(), None, "nothing yet");
        board.set_room(room(4));
        board.set_waiting(waiting("a-0"));
        assert_eq!(board.commit(), Some(1));
        board.set_room(room(4));
        assert_eq!(board.commit(), None, "the same room");
        board.set_room(room(3));
        assert_eq!(board.commit(), Some(2));
        let (all, revision) = board.since(0);
        assert_eq!((all.room, all.waiting, revision), (Some(room(3)), Some(waiting("a-0")), 2));
        let (some, _) = board.since(1);
        assert_eq!((some.room, some.waiting), (Some(room(3)), None));
        let (none, _) = board.since(2);
        assert_eq!((none.room, none.waiting), (None, None));
    }
}
