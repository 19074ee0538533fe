//! What `kubectl dranet` says of a case, and whether it happened.

use std::{collections::BTreeSet, fmt, fs, path::Path, process::Command};

use serde_json::Value;
use tests::{binaries, random_case::Case};

use super::{
    outcome::{Bound, Outcome},
    reasons,
};

/// The answers of all commands about one snapshot of the cluster.
#[derive(Debug)]
pub(super) struct Answers {
    explain: Value,
    simulate: Value,
    plan: Value,
    /// Of the shape of an annotated pod to which nothing else happens than to every pod of its shape.
    capacity: Option<Value>,
    is_gated: bool,
}

impl fmt::Display for Answers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { explain, simulate, plan, capacity, .. } = self;
        let plan = if plan["nodes"].is_array() { &plan["nodes"] } else { plan };
        write!(f, "\nexplain {explain}\nsimulate {simulate}\nplan {plan}\ncapacity {capacity:?}")
    }
}

/// The files that the commands read.
pub(super) struct Files<'f> {
    /// The pod or the Job.
    pub(super) asked: &'f Path,
    /// Where the snapshot of the cluster is written.
    pub(super) cluster: &'f Path,
    /// The metrics of the extender.
    pub(super) metrics: &'f Path,
}

impl Answers {
    /// Takes a snapshot of the cluster, and asks about the pod or the Job in a file.
    pub(super) fn ask(
        kubeconfig: &Path,
        namespace: &str,
        files: &Files<'_>,
        case: &Case,
    ) -> anyhow::Result<Self> {
        let [kubeconfig, file, cluster, metrics] =
            [kubeconfig, files.asked, files.cluster, files.metrics]
                .map(|path| path.display().to_string());
        // The file exists already, after the first case.
        let _ = fs::remove_file(&cluster);
        said(&["snapshot", "-o", &cluster, "--kubeconfig", &kubeconfig])?;
        let ask = |command: &[&str]| -> anyhow::Result<Value> {
            let whole = ["--snapshot", &cluster, "-n", namespace];
            Ok(serde_json::from_str(&said(&[command, &whole, &["-o", "json"]].concat())?)?)
        };
        let of_shape = case.shape().map(|shape| ask(&["capacity", "--shape", &shape]));
        Ok(Self {
            explain: ask(&["explain", "-f", &file])?,
            simulate: ask(&["simulate", "-f", &file, "--extender-metrics", &metrics])?,
            plan: ask(&["plan", "-f", &file])?,
            capacity: of_shape.transpose()?,
            is_gated: !case.pod["spec"]["schedulingGates"].is_null(),
        })
    }

    /// How many pods are predicted to get a node.
    pub(super) fn placed(&self) -> usize {
        self.simulate["placed"].as_array().map_or(0, Vec::len)
    }

    /// What differs from what happened.
    pub(super) fn differences(&self, outcome: &Outcome) -> Vec<String> {
        let mut all = Vec::new();
        let placed = self.placed();
        if self.does_not_know("other-scheduler") && outcome.bound.is_empty() {
            return all;
        }
        if self.does_not_know("tried-again") && outcome.has_made_room() {
            return all;
        }
        if self.does_not_know("ending-pods") && outcome.waits_for_ending_pods() {
            return all;
        }
        if placed != outcome.bound.len() {
            all.push(format!("simulate: {placed} placed; bound: {}", outcome.bound.len()));
        }
        if self.plan["denied"].is_object() && outcome.denied.is_none() {
            all.push("plan: denied; it was created".to_owned());
        }
        let placements = self.simulate["placed"].as_array().into_iter().flatten();
        let evicts = placements.into_iter().any(|placed| placed["evicts"].is_array());
        let is_held = outcome.bound.iter().any(|bound| bound.is_held);
        if is_held && !self.explains_binding() {
            all.push("explain: does not say that it waits for binding conditions".to_owned());
        }
        if self.explains_a_fit() == outcome.bound.is_empty() && !evicts && !is_held {
            all.push(format!("explain: fits is {}", !outcome.bound.is_empty()));
        }
        let fits = names(&self.explain["fits"]);
        let mut nodes = outcome.bound.iter().map(|bound| bound.node.as_str());
        let is_elsewhere = !outcome.bound.is_empty() && !nodes.any(|node| fits.contains(node));
        if self.is_a_group() && is_elsewhere && !evicts && !fits.is_empty() {
            all.push(format!("explain: the first fits on {fits:?}; bound: {:?}", outcome.bound));
        }
        for (number, bound) in outcome.bound.iter().enumerate() {
            all.extend(self.misplaced(number, bound, evicts));
        }
        if let [said, ..] = &outcome.waiting[..] {
            all.extend(self.wrong_waits(said));
        }
        all.extend(self.ranked_otherwise(outcome));
        all
    }

    /// Whether `simulate` says that it does not know this.
    fn does_not_know(&self, what: &str) -> bool {
        let unknown = self.simulate["unknown"].as_array();
        unknown.is_some_and(|unknown| unknown.iter().any(|it| it == what))
    }

    fn explains_a_fit(&self) -> bool {
        let Self { explain, .. } = self;
        let is_empty = |list: &Value| list.as_array().is_none_or(Vec::is_empty);
        explain["message"].is_string()
            || (!is_empty(&explain["fits"]) && is_empty(&explain["waits"]))
    }

    /// Whether `explain` names a node, and what the devices there wait for.
    fn explains_binding(&self) -> bool {
        let [fits, waits] = ["fits", "waits"].map(|field| self.explain[field].as_array());
        let mut waits = waits.into_iter().flatten().filter_map(Value::as_str);
        fits.is_some_and(|fits| !fits.is_empty())
            && waits.any(|why| why.contains("when its devices are ready"))
    }

    /// How a pod that is bound differs from what was said of the pod with this number.
    fn misplaced(&self, number: usize, bound: &Bound, evicts: bool) -> Vec<String> {
        let mut all = Vec::new();
        let Bound { node, devices, .. } = bound;
        let fits = &self.explain["fits"];
        // Of a group, it is said of the first pod; the others may have to be elsewhere.
        let is_said = fits.is_array() && !evicts && !self.is_a_group();
        if is_said && !names(fits).contains(node.as_str()) {
            all.push(format!("explain: fits on {fits}; bound to {node}"));
        }
        let mut planned = self.plan["nodes"].as_array().into_iter().flatten();
        let planned = planned.find(|it| it["name"] == node.as_str());
        // The plan is of one pod in the cluster as it was.
        if let Some(planned) = planned.filter(|_| number == 0 && !evicts && !self.is_a_group()) {
            if planned["fits"] == false {
                all.push(format!("plan: does not fit on {node}: {}", planned["reason"]));
            } else if planned["exact"] == true {
                let own = self::devices(&planned["devices"]);
                if !own.is_subset(devices) {
                    all.push(format!("plan: {own:?}; has {devices:?}"));
                }
            }
        }
        if let Some(chosen) = self.plan["fabric"].as_object()
            && chosen.get("chosen").is_none_or(Value::is_null)
        {
            all.push(format!("plan: waits for a fabric: {:?}", chosen.get("waits")));
        }
        let simulated = &self.simulate["placed"][number];
        // Pods of a group are placed in any order.
        if simulated.is_object() && !self.is_a_group() {
            let own = self::devices(&simulated["devices"]);
            if simulated["node"] == node.as_str() && own != *devices {
                all.push(format!("simulate: {own:?}; has {devices:?}"));
            }
        }
        if self.capacity.as_ref().is_some_and(|it| it["shapes"][0]["fitNow"] == 0) {
            all.push("capacity: none fits".to_owned());
        }
        all
    }

    /// The best nodes that `simulate` names for a pod, if it got another one, and nothing is unknown.
    fn ranked_otherwise(&self, outcome: &Outcome) -> Option<String> {
        let [Bound { node, .. }] = &outcome.bound[..] else { return None };
        let best = &self.simulate["placed"][0]["equalNodes"];
        let is_sure = best.is_array() && self.simulate["unknown"].is_null() && !self.is_a_group();
        (is_sure && !names(best).contains(node.as_str()))
            .then(|| format!("simulate: the best nodes are {best}; bound to {node}"))
    }

    /// How the reasons for waiting differ from what the scheduler says.
    fn wrong_waits(&self, said: &str) -> Vec<String> {
        let mut all = reasons::different(&self.explain, said);
        let plans = self.plan["nodes"].as_array().into_iter().flatten();
        let fits: Vec<_> = plans.filter(|it| it["fits"] == true).map(|it| &it["name"]).collect();
        if !fits.is_empty() && !self.is_a_group() && !self.is_gated {
            all.push(format!("plan: fits on {fits:?}; {said}"));
        }
        if self.plan["fabric"]["chosen"].is_string() {
            all.push(format!("plan: on fabric {}; {said}", self.plan["fabric"]["chosen"]));
        }
        let fits_now = self.capacity.as_ref().map(|it| &it["shapes"][0]["fitNow"]);
        if let Some(now) = fits_now.filter(|now| **now != 0) {
            all.push(format!("capacity: {now} fit; {said}"));
        }
        all
    }

    fn is_a_group(&self) -> bool {
        self.plan["fabric"].is_object()
    }
}

fn names(list: &Value) -> BTreeSet<&str> {
    list.as_array().into_iter().flatten().filter_map(Value::as_str).collect()
}

/// `driver/pool/device` of each.
fn devices(list: &Value) -> BTreeSet<String> {
    let text = |it: &Value, field: &str| it[field].as_str().unwrap_or_default().to_owned();
    let devices = list.as_array().into_iter().flatten();
    devices.map(|it| ["driver", "pool", "device"].map(|field| text(it, field)).join("/")).collect()
}

/// What the program says. Where something keeps a pod from running, it ends with 3.
fn said(args: &[&str]) -> anyhow::Result<String> {
    let output = Command::new(binaries::ours("kubectl-dranet")?).args(args).output()?;
    let errors = String::from_utf8_lossy(&output.stderr);
    anyhow::ensure!(matches!(output.status.code(), Some(0 | 3)), "{args:?}: {errors}");
    Ok(String::from_utf8(output.stdout)?)
}
