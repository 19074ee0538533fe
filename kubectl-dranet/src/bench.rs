//! `bench`: measures the bandwidth between two pods with aligned devices, with `ib_write_bw` or an
//! NCCL test, and compares it with the rates of their links, or with pods whose NICs are far.

mod against;
mod measured;
mod nccl;
mod perftest;
mod pods;
mod promise;

use crate::Output;
use crate::answer::{Bench, BenchEnd, BenchNic};
use crate::args::{BenchArgs, Form, UserArgs};
use crate::kinds::{CLAIMS, Kind, NODES, PODS};
use crate::live::{Cluster, Signals};
use crate::own_pods::{self, PERIOD, State};
use crate::reply::Verb;
use crate::source::{self, Source};
use crate::text::{self, documents, yaml};
use against::FarPair;
use anyhow::Context as _;
use cluster_model::names::label;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use measured::Measured;
use pods::{Place, Role};
use promise::{Uses, promised};
use serde::Deserialize as _;
use serde_json::Value;
use std::fmt::Write as _;
use std::time::{Duration, Instant};

/// The program of nccl-tests that runs by default.
const NCCL_PROGRAM: &str = "all_reduce_perf";

/// Maximum number of lines of a test's output that an error repeats.
const LINES_SHOWN: usize = 5;

/// The cluster, and where the pods are.
struct Session<'a> {
    source: &'a Source,
    cluster: &'a Cluster,
    signals: Signals,
    namespace: String,
}

/// One run: its pods, and the deadline for them.
struct Run<'r, 'a> {
    args: &'r BenchArgs,
    session: &'r mut Session<'a>,
    /// The devices of each pod, if they are not the nearest.
    far: Option<&'r FarPair>,
    id: String,
    until: Instant,
}

pub(crate) fn run(args: &BenchArgs) -> anyhow::Result<Output> {
    let at_most_two = args.nodes.len() <= 2;
    anyhow::ensure!(at_most_two, "invalid value of `--nodes`: name two nodes at most");
    if args.dry_run {
        return planned(args);
    }
    let cluster = Cluster::connect(&args.kube, &UserArgs::default())?;
    let namespace = args.namespace.clone().unwrap_or_else(|| cluster.default_namespace());
    let signals = cluster.catch_signals()?;
    let source = Source::Live(cluster);
    let Source::Live(cluster) = &source else { anyhow::bail!("bench needs a live cluster") };
    let mut session = Session { source: &source, cluster, signals, namespace };
    if args.against.is_some() {
        let program = args.nccl.clone().unwrap_or_else(|| NCCL_PROGRAM.to_owned());
        let args = BenchArgs { nccl: Some(program), ..args.clone() };
        return against::run(&args, &mut session);
    }
    answered(args, &measured(args, &mut session, None)?)
}

/// Measures once, and deletes the pods.
fn measured(
    args: &BenchArgs,
    session: &mut Session<'_>,
    far: Option<&FarPair>,
) -> anyhow::Result<Bench> {
    let mut run = Run {
        args,
        session,
        far,
        // Pods of another run have another name.
        id: format!("{:x}", Timestamp::now().as_microsecond()),
        until: Instant::now() + Duration::from_secs(args.timeout.into()),
    };
    let outcome = run.measure();
    match (outcome, run.clean_up()) {
        (outcome, Ok(())) => outcome.context("no measurement; the pods are deleted"),
        (Ok(_), Err(left)) => Err(left),
        (Err(error), Err(left)) => Err(error.context(left)),
    }
}

/// The end of what a test printed, on one line.
fn last_lines(message: &str) -> String {
    let lines: Vec<&str> = message
        .lines()
        .filter(|line| !line.chars().all(|it| it == '-' || it.is_whitespace()))
        .map(str::trim)
        .collect();
    lines[lines.len().saturating_sub(LINES_SHOWN)..].join(" | ")
}

/// The pods, as they would be created.
fn planned(args: &BenchArgs) -> anyhow::Result<Output> {
    let [of_server, of_client] = places(args);
    let server = pods::server(args, "dry-run", &of_server);
    let found = if args.nccl.is_some() { pods::NO_COMMAND } else { pods::NO_ADDRESS };
    let client = pods::client(args, "dry-run", &of_client, found);
    Ok(Output::from(match args.output {
        Form::Json => documents(&[server, client], false)?,
        Form::Text | Form::Yaml => format!("{}---\n{}", yaml(&server)?, yaml(&client)?),
    }))
}

/// The places of server and client according to the flags.
fn places(args: &BenchArgs) -> [Place; 2] {
    [0, 1].map(|index| Place { node: args.nodes.get(index).cloned(), ..Place::default() })
}

impl Run<'_, '_> {
    /// Creates both pods and waits for the result.
    fn measure(&mut self) -> anyhow::Result<Bench> {
        let [mut of_server, mut of_client] = places(self.args);
        for (role, place) in [(Role::Server, &mut of_server), (Role::Client, &mut of_client)] {
            place.claim = self.claim(role)?;
        }
        let server = pods::server(self.args, &self.id, &of_server);
        self.request(Role::Server, Verb::Create(&server))?;
        let (server, address) = self.wait(Role::Server, |state| match state {
            State::Running(address) => Some(address),
            _ => None,
        })?;
        let found = if self.args.nccl.is_some() { self.daemon_command()? } else { address };
        of_client.fabric = self.fabric(&server)?;
        let client = pods::client(self.args, &self.id, &of_client, &found);
        self.request(Role::Client, Verb::Create(&client))?;
        let (client, ()) = self
            .wait(Role::Client, |state| (!matches!(state, State::Unscheduled(_))).then_some(()))?;
        // Once the client has ended, its claim is released.
        let view = self.session.source.read(&source::of_view(), &[])?.view;
        let ends = [
            BenchEnd::new(&Pod::deserialize(&server)?, &view),
            BenchEnd::new(&Pod::deserialize(&client)?, &view),
        ];
        let Measured { bytes, gbps } = self.result()?;
        let uses = if self.args.nccl.is_some() { Uses::All } else { Uses::First };
        let promised_gbps = promised(&ends, uses);
        let [server, client] = ends;
        Ok(Bench {
            server,
            client,
            message_bytes: bytes,
            measured_gbps: gbps,
            promised_gbps,
            percent: promised_gbps.map(|promised| gbps * 100.0 / promised),
        })
    }

    /// Creates the claim of a pod with far devices, and returns its name.
    fn claim(&mut self, role: Role) -> anyhow::Result<Option<String>> {
        let name = pods::name(&self.id, role);
        let Some(far) = self.far else { return Ok(None) };
        let claim = far.claim(&name, &self.id);
        self.request_object(CLAIMS, &name, Verb::Create(&claim))?;
        Ok(Some(name))
    }

    /// Waits for the result of the pod that measures.
    fn result(&mut self) -> anyhow::Result<Measured> {
        let is_nccl = self.args.nccl.is_some();
        let (measures, other) =
            if is_nccl { (Role::Server, Role::Client) } else { (Role::Client, Role::Server) };
        let (is_success, message) = loop {
            let ended = self.poll(measures, |state| match state {
                State::Ended { is_success, message } => Some((is_success, message)),
                _ => None,
            })?;
            if let Some((_, ended)) = ended {
                break ended;
            }
            // If the other pod fails, there is never a result. The daemon may succeed slightly
            // earlier.
            self.poll(other, |state| {
                (!matches!(state, State::Ended { is_success: false, .. })).then_some(())
            })?;
            self.pause(measures, "running")?;
        };
        let printed = format!("the {} printed: {}", measures.name(), last_lines(&message));
        anyhow::ensure!(is_success, "the {} failed; {printed}", measures.name());
        let parse = if is_nccl { nccl::parse } else { perftest::parse };
        parse(&message).context(printed)
    }

    /// The command that the first pod has for the second.
    fn daemon_command(&mut self) -> anyhow::Result<String> {
        loop {
            let pod = self
                .poll(Role::Server, |state| (!matches!(state, State::Ended { .. })).then_some(()))?
                .map(|(pod, ())| pod);
            if let Some(command) = pod.as_ref().and_then(nccl::daemon_command) {
                return Ok(command.to_owned());
            }
            self.pause(Role::Server, "`mpirun` has not asked for the second pod")?;
        }
    }

    /// Waits until `take` accepts the state of a pod.
    fn wait<T>(
        &mut self,
        role: Role,
        take: impl Fn(State) -> Option<T>,
    ) -> anyhow::Result<(Value, T)> {
        loop {
            let mut last = String::new();
            let found = self.poll(role, |state| {
                last = state.to_string();
                take(state)
            })?;
            if let Some(found) = found {
                return Ok(found);
            }
            self.pause(role, &last)?;
        }
    }

    /// Reads a pod. Fails if it is gone or broken, or if it has ended and `take` does not accept
    /// that.
    fn poll<T>(
        &mut self,
        role: Role,
        take: impl FnOnce(State) -> Option<T>,
    ) -> anyhow::Result<Option<(Value, T)>> {
        let pod = self.request(role, Verb::Get)?;
        let name = pods::name(&self.id, role);
        let pod = pod.with_context(|| format!("pod `{name}` is gone; somebody deleted it"))?;
        let state = State::new(&pod);
        if let State::Broken(why) = &state {
            anyhow::bail!("pod `{name}` does not run: {why}");
        }
        let is_over = matches!(state, State::Ended { .. });
        let seen = state.to_string();
        let found = take(state);
        anyhow::ensure!(found.is_some() || !is_over, "pod `{name}` ended too early: {seen}");
        Ok(found.map(|found| (pod, found)))
    }

    /// Waits before the next look at a pod, if there is time left.
    fn pause(&mut self, role: Role, last: &str) -> anyhow::Result<()> {
        let Self { id, args, .. } = self;
        anyhow::ensure!(
            Instant::now() < self.until,
            "pod `{}` was not ready after {} seconds (--timeout); last state: {last}; \
             `kubectl dranet capacity --shape {}gpu:{}nic` shows whether two such pods fit",
            pods::name(id, role),
            args.timeout,
            args.gpus,
            args.nics
        );
        self.session.cluster.pause_or_end(&mut self.session.signals, PERIOD)
    }

    /// The fabric of the node of a pod, which the other pod must be on too.
    fn fabric(&self, pod: &Value) -> anyhow::Result<Option<String>> {
        let node = pod["spec"]["nodeName"].as_str().unwrap_or_default();
        let query = NODES.one("", node, "the client may be on another fabric");
        let mut fabric = None;
        let _missing = self.session.cluster.read(&query, &mut |object| {
            let object: Option<Value> = serde_json::from_str(object.get()).ok();
            let labels =
                object.map(|object| object["metadata"]["labels"][label::NODE_FABRIC].clone());
            fabric = labels.and_then(|it| it.as_str().map(str::to_owned));
        })?;
        Ok(fabric)
    }

    fn request(&mut self, role: Role, verb: Verb<'_>) -> anyhow::Result<Option<Value>> {
        let name = pods::name(&self.id, role);
        self.request_object(PODS, &name, verb)
    }

    fn request_object(
        &mut self,
        kind: Kind,
        name: &str,
        verb: Verb<'_>,
    ) -> anyhow::Result<Option<Value>> {
        let Session { cluster, signals, namespace, .. } = &mut *self.session;
        cluster.request_object(signals, kind, (namespace, name), verb)
    }

    /// Deletes both pods and their claims, and waits until they are gone.
    fn clean_up(&mut self) -> anyhow::Result<()> {
        let names = [Role::Client, Role::Server].map(|role| pods::name(&self.id, role));
        let kinds = if self.far.is_some() { &[PODS, CLAIMS][..] } else { &[PODS] };
        let Session { cluster, signals, namespace, .. } = &mut *self.session;
        let left = format!(
            "the pods of the measurement may still exist; delete them: `kubectl -n {namespace} delete \
             {} -l {}={}`",
            kinds.iter().map(|kind| kind.plural).collect::<Vec<_>>().join(","),
            pods::LABEL,
            self.id
        );
        for kind in kinds {
            own_pods::delete(cluster, signals, namespace, *kind, (&names, &left))?;
        }
        Ok(())
    }
}

impl Bench {
    /// Both ends with their roles.
    fn ends(&self) -> [(Role, &BenchEnd); 2] {
        [(Role::Server, &self.server), (Role::Client, &self.client)]
    }
}

fn answered(args: &BenchArgs, answer: &Bench) -> anyhow::Result<Output> {
    let denied = answer.percent.is_some_and(|percent| percent < f64::from(args.at_least));
    let text = args.output.write(answer, || person(args, answer))?;
    Ok(Output { denied, ..Output::from(text) })
}

fn person(args: &BenchArgs, answer: &Bench) -> anyhow::Result<String> {
    let mut rows = Vec::new();
    for (role, end) in answer.ends() {
        let pod = [role.name(), &end.node].map(str::to_owned);
        for BenchNic { name, port_gbps, pcie_gbps, .. } in &end.nics {
            rows.push([&pod[..], &[name.clone(), rate(*port_gbps), rate(*pcie_gbps)]].concat());
        }
        if end.nics.is_empty() {
            rows.push([&pod[..], &["unknown"; 3].map(str::to_owned)].concat());
        }
    }
    let mut out = text::table(&["POD", "NODE", "NIC", "PORT", "PCIE"], &rows);
    let Bench { message_bytes, measured_gbps, promised_gbps, percent, .. } = answer;
    write!(out, "\nmeasured {measured_gbps:.1} Gb/s with messages of {message_bytes} bytes")?;
    match promised_gbps.zip(*percent) {
        None => writeln!(
            out,
            "; the rates of the links are unknown, so there is nothing to compare with"
        )?,
        Some((promised, percent)) => {
            let of = if args.nccl.is_some() { "NICs" } else { "slowest link" };
            writeln!(out, ", {percent:.0}% of the {promised:.0} Gb/s of the {of}")?;
            if percent < f64::from(args.at_least) {
                writeln!(
                    out,
                    "This is below {}% (--at-least). Check `kubectl dranet verify`, `kubectl dranet \
                     doctor`, the MTU, and the counters of the switch.",
                    args.at_least
                )?;
            }
        }
    }
    Ok(out)
}

/// A rate for a person.
fn rate(rate: Option<f64>) -> String {
    rate.map_or_else(|| "unknown".to_owned(), |it| format!("{it:.0} Gb/s"))
}
