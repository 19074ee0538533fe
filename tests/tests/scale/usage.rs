//! The memory and CPU time of every program that this process has started, each second.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use tests::figures::{Child, children, memory};
use tokio::{task::JoinSet, time::interval};

use super::observer::{Observer, PodCounts};

const PERIOD: Duration = Duration::from_secs(1);

/// A program at one moment.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ProgramUse {
    /// Resident bytes of its largest process.
    pub(crate) memory: u64,
    /// CPU time of all of its processes since the first sample, those that have ended included.
    pub(crate) cpu: Duration,
}

/// All programs at one moment.
#[derive(Clone, Debug)]
pub(crate) struct Sample {
    /// The time since the first sample.
    pub(crate) at: Duration,
    /// By name.
    pub(crate) programs: BTreeMap<String, ProgramUse>,
    /// The pods of that moment.
    pub(crate) pods: PodCounts,
}

/// Takes samples until it is dropped.
#[derive(Debug)]
pub(crate) struct Sampler {
    samples: Arc<Mutex<Vec<Sample>>>,
    _task: JoinSet<()>,
}

impl Sampler {
    /// Starts.
    pub(crate) fn start(observer: Arc<Observer>) -> Self {
        let samples: Arc<Mutex<Vec<Sample>>> = Arc::default();
        let taken = Arc::clone(&samples);
        let mut task = JoinSet::new();
        task.spawn(async move {
            let (begin, mut tick) = (Instant::now(), interval(PERIOD));
            let mut counted = CpuTimes::default();
            loop {
                tick.tick().await;
                observer.check_waiting();
                let programs = counted.look();
                let sample = Sample { at: begin.elapsed(), programs, pods: observer.counts() };
                taken.lock().unwrap_or_else(PoisonError::into_inner).push(sample);
            }
        });
        Self { samples, _task: task }
    }

    /// The samples so far.
    pub(crate) fn samples(&self) -> Vec<Sample> {
        self.samples.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// CPU times of processes: what was seen last of each, and the sum of each program.
#[derive(Debug, Default)]
struct CpuTimes {
    last: BTreeMap<u32, Duration>,
    sums: BTreeMap<String, Duration>,
}

impl CpuTimes {
    fn look(&mut self) -> BTreeMap<String, ProgramUse> {
        let mut programs: BTreeMap<String, ProgramUse> = BTreeMap::new();
        for Child { pid, name, cpu } in children() {
            // It may have ended meanwhile.
            let Ok(memory) = memory(pid, "VmRSS") else { continue };
            let last = self.last.insert(pid, cpu).unwrap_or(cpu);
            let sum = self.sums.entry(name.clone()).or_default();
            *sum += cpu.saturating_sub(last);
            let program = programs.entry(name).or_default();
            program.memory = program.memory.max(memory);
            program.cpu = *sum;
        }
        programs
    }
}

/// The mean memory of a program in a part of the samples; `None` if it did not run.
#[expect(clippy::cast_precision_loss, reason = "bytes for a person")]
pub(crate) fn mean_memory(samples: &[Sample], program: &str) -> Option<f64> {
    let sizes: Vec<u64> =
        samples.iter().filter_map(|sample| Some(sample.programs.get(program)?.memory)).collect();
    (!sizes.is_empty()).then(|| sizes.iter().sum::<u64>() as f64 / sizes.len() as f64)
}
