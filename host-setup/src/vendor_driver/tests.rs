//! The vendor's image runs when nothing uses the modules, once for each version and boot.

use super::plan::{Step, Users, next};
use super::state::{LoadedModule, Modules};
use super::*;
use crate::fake::FakeDriver;
use publication::network::Interface;
use std::collections::BTreeSet;
use std::os::unix::fs::symlink;
use std::time::Instant;
use tempfile::TempDir;

/// Longest wait for what the loader does.
const PATIENCE: Duration = Duration::from_secs(20);

fn modules(all: &[(&str, &str, u32)]) -> Modules {
    all.iter()
        .map(|(name, build, openers)| {
            let module = LoadedModule { build: (*build).to_owned(), openers: *openers };
            ((*name).to_owned(), module)
        })
        .collect()
}

fn state(version: &str, stage: Stage, builds: &[(&str, &str)]) -> VendorDriverState {
    VendorDriverState {
        version: version.to_owned(),
        stage,
        modules: builds
            .iter()
            .map(|(name, build)| ((*name).to_owned(), (*build).to_owned()))
            .collect(),
        detail: String::new(),
        waits_for_turn: false,
    }
}

#[test]
fn modules_are_replaced_once_and_only_when_nothing_uses_them() {
    let claims: BTreeSet<String> = (1..=7).map(|number| format!("team/nics-{number}")).collect();
    let one: BTreeSet<String> = ["team/nics".to_owned()].into();
    let inbox = modules(&[("mlx5_core", "in", 0), ("mlx5_ib", "in", 0)]);
    let open = modules(&[("mlx5_core", "in", 1), ("mlx5_ib", "in", 2)]);
    let ready = state("2", Stage::Ready, &[("mlx5_core", "in"), ("mlx5_ib", "in")]);
    let cases = [
        ("nothing is loaded", None, Modules::new(), &BTreeSet::new()),
        ("no such module, and a claim", None, Modules::new(), &one),
        ("the kernel's own, unused", None, inbox.clone(), &BTreeSet::new()),
        ("the kernel's own, unused, not its turn", None, inbox.clone(), &BTreeSet::new()),
        ("the kernel's own, of a claim, not its turn", None, inbox.clone(), &one),
        ("the same version, not its turn", Some(ready.clone()), inbox.clone(), &one),
        ("the kernel's own, of a claim", None, inbox.clone(), &one),
        ("the kernel's own, of claims", None, inbox.clone(), &claims),
        ("open devices", None, open.clone(), &BTreeSet::new()),
        ("the same version, used", Some(ready.clone()), open.clone(), &one),
        ("another version, used", Some(state("1", Stage::Ready, &[])), inbox.clone(), &one),
        ("an interrupted load", Some(state("2", Stage::Loading, &[])), inbox.clone(), &one),
        ("loaded anew by somebody else", Some(ready), modules(&[("mlx5_core", "x", 0)]), &one),
    ];
    let line = |(what, before, modules, claims): (&str, Option<_>, Modules, &BTreeSet<String>)| {
        let (claims, lacks_turn) = (claims.clone(), what.contains("not its turn"));
        let users = Users { claims, modules, others: Vec::new(), lacks_turn };
        format!("{what}: {:?}", next("2", before.as_ref(), &users))
    };
    insta::assert_snapshot!(cases.into_iter().map(line).collect::<Vec<_>>().join("\n"), @r#"
    nothing is loaded: Load
    no such module, and a claim: Wait("claim team/nics is prepared on this node")
    the kernel's own, unused: Load
    the kernel's own, unused, not its turn: WaitForTurn("this node has not loaded it before, and nodes load a new version one at a time")
    the kernel's own, of a claim, not its turn: Wait("claim team/nics is prepared on this node")
    the same version, not its turn: Keep
    the kernel's own, of a claim: Wait("claim team/nics is prepared on this node")
    the kernel's own, of claims: Wait("claims team/nics-1, team/nics-2, team/nics-3, team/nics-4, team/nics-5, 2 more are prepared on this node")
    open devices: Wait("a process has a device of mlx5_core open; 2 references to devices of mlx5_ib are open")
    the same version, used: Keep
    another version, used: Wait("claim team/nics is prepared on this node")
    an interrupted load: Wait("claim team/nics is prepared on this node")
    loaded anew by somebody else: Wait("claim team/nics is prepared on this node")
    "#);
}

/// A machine with one module of which nothing is open, and one claim.
struct Machine(TempDir, Arc<FakeDriver>);

impl Machine {
    fn new() -> Self {
        let machine = Self(tempfile::tempdir().unwrap(), Arc::new(FakeDriver::new()));
        machine.write("proc/sys/kernel/random/boot_id", "1b1c2d3e-0000-4000-8000-000000000001\n");
        machine.write("sys/module/mlx5_ib/refcnt", "2\n");
        machine.write("sys/module/mlx5_ib/srcversion", "533BB7E5866E52F63B9ACCB\n");
        // Two modules use it; their references are not those of programs.
        machine.write("sys/module/mlx5_ib/holders/a/refcnt", "0\n");
        machine.write("sys/module/mlx5_ib/holders/b/refcnt", "0\n");
        machine
    }

    fn path(&self, path: &str) -> PathBuf {
        self.0.path().join(path)
    }

    fn write(&self, path: &str, text: &str) {
        let path = self.path(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    /// Prepares these claims, and no others.
    fn set_claims(&self, names: &[&str]) {
        self.1.said().claims = names.iter().map(|name| format!("team/{name}")).collect();
    }

    fn loader(&self, version: &str, script: &str) -> Loader {
        let ready = self.path("ready").display().to_string();
        let args = RunArgs {
            state: StateArgs { version: version.to_owned(), root: self.0.path().to_owned() },
            modules: vec!["mlx5_ib".to_owned(), "not_loaded".to_owned()],
            ready_file: self.path("ready"),
            kubelet_dir: self.path("kubelet"),
            force: false,
            first_load_in_turn: false,
            command: ["sh", "-c", script, "sh", &ready].map(str::to_owned).to_vec(),
        };
        let node = Arc::<FakeDriver>::clone(&self.1);
        Loader::new(args, |_| node).unwrap()
    }

    fn state(&self) -> Option<VendorDriverState> {
        file(self.0.path()).unwrap().load()
    }

    async fn until(&self, stage: Stage) -> VendorDriverState {
        let begin = Instant::now();
        loop {
            match self.state() {
                Some(recorded) if recorded.stage == stage => return recorded,
                other => assert!(begin.elapsed() < PATIENCE, "not {stage:?}: {other:?}"),
            }
            sleep(Duration::from_millis(20)).await;
        }
    }

    fn is_ready(&self, version: &str) -> Result<(), String> {
        let args = StateArgs { version: version.to_owned(), root: self.0.path().to_owned() };
        is_ready(&args).map_err(|error| error.to_string())
    }
}

/// An image that loads at once, and ends when it is told to.
const IMAGE: &str = "touch \"$1\"; until [ -e \"$1.end\" ]; do sleep 0.02; done";

#[tokio::test]
async fn an_image_waits_for_claims_and_is_not_started_again() {
    let machine = Machine::new();
    machine.set_claims(&["nics"]);
    machine.write("ready", "of an earlier container");
    let running = tokio::spawn(machine.loader("1", IMAGE).run());
    let waiting = machine.until(Stage::Waiting).await;
    assert_eq!(waiting.to_string(), "version 1 waits: claim team/nics is prepared on this node");
    let told = "version 1 is not loaded: version 1 waits: claim team/nics is prepared on this node";
    assert_eq!(machine.is_ready("1"), Err(told.to_owned()));

    machine.set_claims(&[]);
    let ready = machine.until(Stage::Ready).await;
    assert_eq!(ready.modules["mlx5_ib"], "533BB7E5866E52F63B9ACCB");
    assert_eq!(machine.is_ready("1"), Ok(()));
    assert!(machine.is_ready("2").is_err());
    machine.write("ready.end", "");
    running.await.unwrap().unwrap();

    // A container that restarts beside a running pod.
    machine.set_claims(&["nics"]);
    assert_eq!(machine.loader("1", "exit 1").step().unwrap(), Step::Keep);
    assert!(matches!(machine.loader("2", "exit 1").step().unwrap(), Step::Wait(_)));
    assert!(machine.is_ready("1").is_err(), "another version is wanted now");
}

#[tokio::test]
async fn an_image_that_fails_is_reported() {
    let machine = Machine::new();
    let failed = machine.loader("1", "exit 3").run().await.unwrap_err();
    assert_eq!(failed.to_string(), "`sh` ended before its driver was loaded: exit status: 3");
    let state = machine.state().unwrap();
    assert_eq!(
        state.to_string(),
        "version 1 was not loaded: `sh` ended before its driver was loaded: exit status: 3"
    );
    // It is tried again.
    assert_eq!(machine.loader("1", "exit 3").step().unwrap(), Step::Load);
    assert_eq!(machine.state().unwrap().stage, Stage::Loading);
}

#[tokio::test]
async fn an_image_that_ends_later_leaves_its_modules_in_use() {
    let machine = Machine::new();
    let image = "touch \"$1\"; until [ -e \"$1.end\" ]; do sleep 0.02; done; exit 3";
    let running = tokio::spawn(machine.loader("1", image).run());
    machine.until(Stage::Ready).await;
    machine.set_claims(&["nics"]);
    machine.write("ready.end", "");
    running.await.unwrap().unwrap_err();
    assert_eq!(machine.state().unwrap().stage, Stage::Ready);
    assert_eq!(machine.loader("1", image).step().unwrap(), Step::Keep);
}

#[test]
fn references_of_other_modules_are_not_those_of_programs() {
    let machine = Machine::new();
    let names = ["mlx5_ib".to_owned(), "not_loaded".to_owned()];
    let read = || loaded::read(&machine.path("sys"), &names);
    assert_eq!(read(), modules(&[("mlx5_ib", "533BB7E5866E52F63B9ACCB", 0)]));
    machine.write("sys/module/mlx5_ib/refcnt", "3\n");
    assert_eq!(read()["mlx5_ib"].openers, 1);
    fs::remove_file(machine.path("sys/module/mlx5_ib/srcversion")).unwrap();
    machine.write("sys/module/mlx5_ib/notes/.note.gnu.build-id", "\u{4}\u{2}");
    assert_eq!(read()["mlx5_ib"].build, "0402");
}

/// Nothing of this is a claim, and nothing holds a device open.
#[test]
fn virtual_machines_other_plugins_and_the_nodes_own_traffic_are_users() {
    let machine = Machine::new();
    let function = |address: &str, class: &str, driver: &str| {
        let directory = format!("sys/devices/pci0000:3b/{address}");
        machine.write(&format!("{directory}/class"), class);
        let link = |from: &str, to: &str| {
            let from = machine.path(from);
            fs::create_dir_all(from.parent().unwrap()).unwrap();
            symlink(machine.path(to), from).unwrap();
        };
        link(&format!("sys/bus/pci/devices/{address}"), &directory);
        link(&format!("sys/bus/pci/drivers/{driver}/{address}"), &directory);
        link(&format!("{directory}/driver"), &format!("sys/bus/pci/drivers/{driver}"));
        directory
    };
    let physical = function("0000:3b:00.0", "0x020000\n", "mlx5_ib");
    machine.write(&format!("{physical}/net/rail0/type"), "1\n");
    machine.write(&format!("{physical}/mlx5_core.sf.2/net/scalable0/type"), "1\n");
    let of_machine = function("0000:3b:00.2", "0x020000\n", "vfio-pci");
    symlink(machine.path(&of_machine), machine.path(&physical).join("virtfn0")).unwrap();
    function("0000:3b:00.1", "0x020000\n", "mlx5_ib");
    function("0000:3c:00.0", "0x020700\n", "mlx5_ib");
    let interface = |index, name: &str, kind: Option<&str>, lower| Interface {
        index,
        name: name.to_owned(),
        kind: kind.map(str::to_owned),
        lower,
        ..Interface::default()
    };
    let mut loader = machine.loader("1", "exit 1");
    loader.network.interfaces = vec![
        interface(2, "rail0", None, None),
        interface(3, "net1", Some("macvlan"), Some(2)),
        Interface { master: Some(5), ..interface(4, "scalable0", None, None) },
        interface(5, "bond0", Some("bond"), None),
    ];
    let Step::Wait(why) = loader.step().unwrap() else { panic!("it loads") };
    assert_eq!(
        why,
        "driver vfio-pci has virtual function 0000:3b:00.2; interface net1 uses rail0; \
         interface bond0 has scalable0 as a member; the interface of function 0000:3b:00.1 is in another network namespace"
    );
    loader.network.to_server.insert(2);
    let Step::Wait(why) = loader.step().unwrap() else { panic!("it loads") };
    assert!(why.contains("the node's own traffic goes through rail0"), "{why}");
    loader.args.force = true;
    assert_eq!(loader.step().unwrap(), Step::Load);
}

/// Otherwise it would go down after each reboot.
#[test]
fn a_node_that_went_down_while_loading_waits_for_a_person() {
    let machine = Machine::new();
    assert_eq!(machine.loader("1", "exit 1").step().unwrap(), Step::Load);
    assert_eq!(machine.loader("1", "exit 1").step().unwrap(), Step::Load, "the same boot");
    machine.write("proc/sys/kernel/random/boot_id", "1b1c2d3e-0000-4000-8000-000000000002\n");
    let Step::Wait(why) = machine.loader("1", "exit 1").step().unwrap() else {
        panic!("it loads again")
    };
    assert!(why.starts_with("the node went down while version 1 was being loaded"), "{why}");
    assert_eq!(machine.loader("2", "exit 1").step().unwrap(), Step::Load, "another version");
}

/// At a first installation nothing uses the modules; otherwise all nodes would load at once.
#[tokio::test]
async fn a_version_is_loaded_for_the_first_time_in_the_nodes_turn() {
    let machine = Machine::new();
    machine.write("proc/uptime", "86400.52 1000.00\n");
    let loader = |version: &str| {
        let mut loader = machine.loader(version, IMAGE);
        loader.args.first_load_in_turn = true;
        loader
    };
    let running = tokio::spawn(loader("1").run());
    let waiting = machine.until(Stage::Waiting).await;
    assert!(waiting.waits_for_turn, "{waiting}");
    let grant = |version: &str| {
        let file = state::grant_file(&HostRoot::at(machine.0.path())).unwrap();
        file.store(&Grant { version: version.to_owned() }).unwrap();
    };
    grant("2");
    sleep(2 * PERIOD).await;
    assert_eq!(machine.state(), Some(waiting), "the turn is for another version");
    grant("1");
    machine.until(Stage::Ready).await;
    machine.write("ready.end", "");
    running.await.unwrap().unwrap();
    grant("");

    // After a reboot the same version needs no turn, but a new one does.
    machine.write("proc/sys/kernel/random/boot_id", "1b1c2d3e-0000-4000-8000-000000000002\n");
    assert!(matches!(loader("2").step().unwrap(), Step::WaitForTurn(_)));
    assert_eq!(loader("1").step().unwrap(), Step::Load);
    // A claim is another reason, and its pod is evicted.
    machine.set_claims(&["nics"]);
    assert!(matches!(loader("2").step().unwrap(), Step::Wait(_)));
    assert!(!machine.state().unwrap().waits_for_turn);
    machine.set_claims(&[]);
    machine.write("proc/uptime", "42.10 1.00\n");
    assert_eq!(loader("2").step().unwrap(), Step::Load, "a node that has just booted");
}
