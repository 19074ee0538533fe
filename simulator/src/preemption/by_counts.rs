//! kube-scheduler's preemption for device plugins: it counts free GPUs of nodes, and decides for one pod
//! after another (`SelectVictimsOnNode` in `plugins/defaultpreemption`, `pickOneNodeForPreemption` in
//! `framework/preemption`). It knows no gangs: those of whose pods one leaves are evicted as a whole here,
//! since their work is lost.

use std::cmp::Reverse;
use std::collections::BTreeSet;

use crate::decider::{Decider, Situation};
use crate::workload::Millis;

/// kube-scheduler.
#[derive(Clone, Copy, Debug, Default)]
pub struct ByCounts;

/// A pod of lower priority.
#[derive(Clone, Copy, Debug)]
struct Low {
    job: usize,
    gpus: u32,
    priority: i32,
    started: Millis,
}

#[derive(Clone, Debug, Default)]
struct Node {
    free: u32,
    /// The most important first.
    low: Vec<Low>,
}

impl Decider for ByCounts {
    /// A job of several pods gets a fabric that has room for all of them, which kube-scheduler does not
    /// know.
    fn victims(&mut self, job: usize, situation: Situation<'_>) -> Vec<usize> {
        let Situation { tasks, cluster, closed, .. } = situation;
        let task = &tasks[job];
        let nodes = nodes(task.priority, situation);
        let open: Vec<usize> = (0..nodes.len()).filter(|node| !closed.contains(node)).collect();
        let groups: Vec<Vec<usize>> = if task.pods.len() == 1 {
            vec![open]
        } else {
            let fabrics = (0..cluster.fabrics()).map(|fabric| {
                let open = open.iter().copied();
                open.filter(|node| cluster.nodes[*node].fabric == fabric).collect()
            });
            fabrics.collect()
        };
        groups.iter().find_map(|open| place(&task.pods, nodes.clone(), open)).unwrap_or_default()
    }
}

fn nodes(priority: i32, Situation { tasks, cluster, running, .. }: Situation<'_>) -> Vec<Node> {
    let nodes = (0..cluster.nodes.len()).map(|node| Node {
        free: cluster.gpus_of(node) - cluster.gpus_in_use(node),
        low: Vec::new(),
    });
    let mut nodes: Vec<Node> = nodes.collect();
    for (job, state) in running.iter().filter(|(job, _)| tasks[**job].priority < priority) {
        let (priority, started) = (tasks[*job].priority, state.started);
        for bound in &state.bound {
            let low = Low { job: *job, gpus: bound.pod.gpus, priority, started };
            nodes[bound.node].low.push(low);
        }
    }
    for node in &mut nodes {
        node.low.sort_by_key(|pod| (Reverse(pod.priority), pod.started, pod.job));
    }
    nodes
}

/// The jobs that leave so that these pods fit on open nodes, one after another.
fn place(pods: &[u32], mut nodes: Vec<Node>, open: &[usize]) -> Option<Vec<usize>> {
    let mut victims = BTreeSet::new();
    for gpus in pods {
        let with_room = open.iter().copied().filter(|node| nodes[*node].free >= *gpus);
        let node = with_room.min_by_key(|node| nodes[*node].free).or_else(|| {
            let candidates = open.iter().filter_map(|node| {
                let leaving = nodes[*node].leaving(*gpus)?;
                Some((harm(&leaving), *node, leaving))
            });
            let (_, node, leaving) = candidates.min_by_key(|(harm, node, _)| (*harm, *node))?;
            for low in leaving {
                victims.insert(low.job);
                for node in &mut nodes {
                    node.end(low.job);
                }
            }
            Some(node)
        })?;
        nodes[node].free -= gpus;
    }
    Some(victims.into_iter().collect())
}

/// What kube-scheduler compares nodes by.
fn harm(leaving: &[Low]) -> (Option<i32>, i64, usize, Reverse<Option<Millis>>) {
    let highest = leaving.iter().map(|pod| pod.priority).max();
    let first = leaving.iter().filter(|pod| Some(pod.priority) == highest);
    let sum = leaving.iter().map(|pod| i64::from(pod.priority)).sum();
    (highest, sum, leaving.len(), Reverse(first.map(|pod| pod.started).min()))
}

impl Node {
    /// The pods that leave so that another one fits: each stays that can, the most important first.
    fn leaving(&self, gpus: u32) -> Option<Vec<Low>> {
        let all = self.free + self.low.iter().map(|pod| pod.gpus).sum::<u32>();
        let mut spare = all.checked_sub(gpus)?;
        let mut leaving = Vec::new();
        for pod in &self.low {
            match spare.checked_sub(pod.gpus) {
                Some(left) => spare = left,
                None => leaving.push(*pod),
            }
        }
        Some(leaving)
    }

    /// The pods of a job have left.
    fn end(&mut self, job: usize) {
        let gone = self.low.iter().filter(|pod| pod.job == job);
        self.free += gone.map(|pod| pod.gpus).sum::<u32>();
        self.low.retain(|pod| pod.job != job);
    }
}
