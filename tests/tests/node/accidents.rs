//! Pods come and go under the real kubelet, and in each round something fails meanwhile: the
//! driver, the kubelet, containerd, a sandbox, the connection to the API server, a link, the disk.
//! Each time the node settles: every wanted pod runs with its devices, the others are gone, and
//! nothing of them is left.
//!
//! `$DRANET_ACCIDENTS` sets the number of rounds (10), half of them by NRI; `$DRANET_SEED` sets the
//! seed.

mod pods;

use std::{sync::Arc, time::Duration};

use anyhow::Context;
use pods::{NICS, Pods};
use rustix::process::{Pid, Signal, kill_process};
use tests::{
    Check, ControlPlane, SeededRng, eventually,
    node::{Machine, pods::POD, with_machine},
    setting,
    suite::Test,
};
use tokio::time::sleep;

use super::{
    api_partition::ApiPartition,
    campaign::{INTO_A_SANDBOX, ON_THE_WAY_IN, ON_THE_WAY_OUT, OUT_OF_A_SANDBOX},
    nri::nri_with_rdma,
    trouble::Disk,
};

pub(crate) fn tests() -> Vec<Test> {
    let all = tests::tests![the_node_settles_after_any_failure];
    all.into_iter().map(Test::alone).collect()
}

/// The time after the pods' coming and going within which something fails.
const ANY_MOMENT: Duration = Duration::from_millis(2500);

/// The time after the failure within which it is repaired.
const AWAY: Duration = Duration::from_millis(1500);

/// The kubelet restarts a container that keeps failing after 10, 20 and 40 seconds.
const PATIENCE: Duration = Duration::from_mins(2);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Accident {
    /// The driver dies before or after one of its effects.
    DriverAtPoint,
    /// The driver dies wherever it is.
    Driver,
    Kubelet,
    Containerd,
    /// A sandbox or a container dies.
    Task,
    ApiServer,
    Link,
    Disk,
}

impl Accident {
    const ALL: [Self; 8] = [
        Self::DriverAtPoint,
        Self::Driver,
        Self::Kubelet,
        Self::Containerd,
        Self::Task,
        Self::ApiServer,
        Self::Link,
        Self::Disk,
    ];
}

async fn the_node_settles_after_any_failure(plane: Arc<ControlPlane>) -> anyhow::Result<()> {
    let wanted = setting("DRANET_ACCIDENTS", 10)?;
    with_machine(&plane, "accidents", &NICS, async |machine, scope| {
        let partition = ApiPartition::proxy(&plane).await?;
        machine.use_kubeconfig(partition.kubeconfig(&plane)?);
        machine.restart_kubelet().await?;
        let disk = Disk::mount(machine.plugin_dir())?;
        let rng = SeededRng::from_environment()?;
        let pods = Pods::new(scope);
        let mut node = Node { machine, pods, partition, disk, rng, flags: &[] };
        let mut due = Vec::new();
        for round in 0..wanted {
            if round == wanted / 2 {
                node.flags = nri_with_rdma()?;
            }
            if due.is_empty() {
                due.extend(Accident::ALL);
            }
            let accident = due.swap_remove(node.rng.index(due.len()));
            let context = format!("{}, round {round}, {accident:?}", node.rng);
            node.round(accident).await.context(context)?;
        }
        node.pods.delete_all().await
    })
    .await
}

struct Node<'a> {
    machine: &'a mut Machine,
    pods: Pods<'a>,
    partition: ApiPartition,
    disk: Disk,
    rng: SeededRng,
    /// The additional flags of each driver.
    flags: &'static [&'static str],
}

impl Node<'_> {
    /// Pods come and go, something fails and is repaired, and the node settles.
    async fn round(&mut self, accident: Accident) -> anyhow::Result<()> {
        let (coming, leaving) = self.pods.draw(&mut self.rng);
        let point = (accident == Accident::DriverAtPoint)
            .then(|| self.point(!coming.is_empty(), !leaving.is_empty()));
        self.restart_driver(point).await?;
        self.pods.change(&self.machine.name, &coming, &leaving).await?;
        match point {
            Some(point) => self.dies_at(point).await?,
            None => sleep(self.rng.below(ANY_MOMENT)).await,
        }
        self.happens(accident)?;
        sleep(self.rng.below(AWAY)).await;
        self.mend(accident).await?;
        let context = || format!("point {point:?}, coming {coming:?}, leaving {leaving:?}");
        self.settles(accident).await.with_context(context)
    }

    async fn settles(&self, accident: Accident) -> anyhow::Result<()> {
        let is_drivers = [Accident::DriverAtPoint, Accident::Driver].contains(&accident);
        eventually(PATIENCE, async || {
            if is_drivers {
                self.pods.replace_ended().await?;
            }
            let status = self.pods.look(self.machine).await?;
            Ok(Check::that(status.is_empty(), || status))
        })
        .await
    }

    /// A random fault point that is reached if pods come, or go.
    fn point(&mut self, is_coming: bool, is_leaving: bool) -> &'static str {
        let mut points = Vec::new();
        let by_nri = !self.flags.is_empty();
        for (is_reached, set) in [
            (is_coming, &ON_THE_WAY_IN[..]),
            (is_coming && by_nri, &INTO_A_SANDBOX),
            (is_leaving, &ON_THE_WAY_OUT),
            (is_leaving && by_nri, &OUT_OF_A_SANDBOX),
        ] {
            points.extend(set.iter().copied().filter(|_| is_reached));
        }
        points[self.rng.index(points.len())]
    }

    async fn restart_driver(&mut self, point: Option<&str>) -> anyhow::Result<()> {
        let death = point.map(|point| ["--kill-at", point]);
        let flags = self.flags.iter().copied().chain(death.into_iter().flatten());
        let flags: Vec<_> = flags.collect();
        self.machine.kill_driver();
        match point {
            // It may die before it serves any request.
            Some(_) => self.machine.spawn_driver(&flags),
            None => self.machine.start_driver(&flags).await,
        }
    }

    /// Waits for the driver's death; not every pod has an effect at each point.
    async fn dies_at(&self, point: &str) -> anyhow::Result<()> {
        eventually(POD, async || {
            let status = self.pods.look(self.machine).await?;
            let is_over = self.machine.driver_has_ended() || status.is_empty();
            Ok(Check::that(is_over, || format!("{point} is not reached, {status}")))
        })
        .await
    }

    fn happens(&mut self, accident: Accident) -> anyhow::Result<()> {
        match accident {
            Accident::DriverAtPoint | Accident::Driver => self.machine.kill_driver(),
            Accident::Kubelet => self.machine.kill_kubelet(),
            Accident::Containerd => self.machine.kill_containerd(),
            Accident::Task => {
                let tasks = self.machine.tasks()?;
                if !tasks.is_empty() {
                    let victim = Pid::from_raw(*self.rng.pick(&tasks)).context("a process")?;
                    // It may have ended by itself.
                    let _ = kill_process(victim, Signal::KILL);
                }
            }
            Accident::ApiServer => self.partition.begin(),
            Accident::Link => self.pods.lose(self.rng.pick(&NICS))?,
            Accident::Disk => self.disk.fill()?,
        }
        Ok(())
    }

    async fn mend(&mut self, accident: Accident) -> anyhow::Result<()> {
        match accident {
            Accident::DriverAtPoint | Accident::Driver => self.restart_driver(None).await,
            Accident::Kubelet => self.machine.restart_kubelet().await,
            Accident::Containerd => self.machine.restart_containerd().await,
            Accident::Task => Ok(()),
            Accident::ApiServer => {
                self.partition.end();
                Ok(())
            }
            Accident::Link => self.pods.replace().await,
            Accident::Disk => self.disk.empty(),
        }
    }
}
