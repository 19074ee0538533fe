//! Claims of the whole driver in these namespaces: interfaces that come back late, and interfaces on top
//! of others.

use crate::node::node;
use crate::stage::{RAIL, Stage, claim, link};
use futures::FutureExt;
use node_driver::kernel::attach::namespaces;
use node_driver::kernel::attach::netns::NetNs;
use node_driver::kernel::attach::node_network::KernelNetwork;
use node_driver::kernel::attach::record::{AttachRecord, attach_recorded};
use node_driver::kernel::attach::{AttachMode, SYSCTL};
use node_driver::model::checkpoint::{Checkpoint, Phase, Record};
use node_driver::model::plan::Plan;
use node_driver::prepare::claim::AllocatedClaim;
use node_driver::prepare::local::LocalPreparer;
use node_driver::prepare::notices::Subject;
use node_driver::prepare::published::SliceDevices;
use node_driver::prepare::sandboxes::Sandbox;
use node_files::turn;
use process::chain::Chain;
use rtnetlink::packet_route::link::LinkAttribute;
use serde_json::json;
use std::fs;
use std::io::ErrorKind;
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::sync::Arc;
use std::thread;
use topology_graph::fixture;

/// The kernel shows an adapter again after its pod's sandbox has stopped.
pub(crate) fn an_interface_that_comes_back_late_is_restored() {
    let stage = Stage::with(&[]);
    let folder = tempfile::tempdir().unwrap();
    let node = node(folder.path(), AttachMode::Nri);
    let mut plan = stage.plan(json!({"interface": {"name": RAIL}}));
    // As an adapter's interface, which outlives its namespace.
    let host = &mut plan.devices[0].link.as_mut().unwrap().host;
    host.parent = Some("0000:99:00.0".to_owned());
    host.identity.index = 0;
    stage.on_host("ip link set rail0 name hidden mtu 1400");
    let sandbox = attached(&node, &stage, &plan);
    in_namespace(&stage, || node.stop_sandbox(&sandbox).unwrap());
    assert_eq!(mtu(&stage, "hidden"), 1400);
    // The runtime tells of the end again.
    in_namespace(&stage, || node.stop_sandbox(&sandbox).unwrap());
    stage.on_host("ip link set hidden name rail0");
    in_namespace(&stage, || node.unprepare(&plan.claim.uid).unwrap());
    assert_eq!(mtu(&stage, RAIL), 9000);
    let paths = &node.effects.paths;
    assert_eq!(AttachRecord::load(&paths.attached(&plan.claim.uid)), None);
    assert_eq!(Checkpoint::peek(&paths.checkpoint()), Some(Checkpoint::default()));
}

/// The host does not see the interface in the pod, and the one below it must stay.
pub(crate) fn an_interface_below_that_of_a_pod_stays_on_the_host() {
    let stage = Stage::with(&["link add link rail0 name storage type macvlan"]);
    let folder = tempfile::tempdir().unwrap();
    fixture::plant(fixture::machine("gcp-a4").unwrap(), &folder.path().join("root")).unwrap();
    let node = node(folder.path(), AttachMode::Nri);
    let prepare = |device: &str, uid: &str| {
        let parameters = json!({"interface": {"name": device}});
        let mut claim: AllocatedClaim = claim(vec![device.to_owned()], &parameters, None);
        uid.clone_into(&mut claim.claim.uid);
        in_namespace(&stage, || {
            let prepared = node.prepare(&claim, &SliceDevices::default(), &node.read().unwrap());
            prepared.map_err(|error| Chain(&error).to_string())
        })
    };
    let plan = prepare("storage", "u-1").unwrap();
    let attached = stage.attach(plan);
    let refused = prepare(RAIL, "u-2").unwrap_err();
    assert!(refused.contains("interface `storage` of the host or a pod"), "{refused}");
    stage.take_back(&attached);
    in_namespace(&stage, || node.unprepare("u-1").unwrap());
    prepare(RAIL, "u-2").unwrap();
}

/// A hook that has begun ends first, and one that begins afterwards is told.
pub(crate) fn a_claim_is_not_undone_while_a_hook_attaches_it() {
    let stage = Stage::with(&["link set rail0 up"]);
    let folder = tempfile::tempdir().unwrap();
    let node = node(folder.path(), AttachMode::Hook);
    let plan = stage.plan(json!({"interface": {"name": RAIL}}));
    attached(&node, &stage, &plan);
    let (paths, uid) = (&node.effects.paths, &plan.claim.uid);
    node.effects.apply(&plan).unwrap();
    let hook = turn::take_claim(&paths.claim(uid)).unwrap();
    thread::scope(|scope| {
        let undone = scope.spawn(|| in_namespace(&stage, || node.unprepare(uid).map_err(Box::new)));
        attach_as_a_hook(&node, &stage, &plan);
        assert!(!undone.is_finished());
        drop(hook);
        undone.join().unwrap().unwrap();
    });
    assert!(stage.on_host("ip link").contains(RAIL));
    assert_eq!(Checkpoint::peek(&paths.checkpoint()), Some(Checkpoint::default()));
    assert!(turn::take_claim(&paths.claim(uid)).unwrap().is_none(), "a hook finds no claim");
    let socket = folder.path().join("socket");
    let listener = UnixListener::bind(&socket).unwrap();
    let refused = thread::scope(|scope| {
        let told = scope.spawn(|| namespaces::hand_over(&socket, uid, &stage.pod));
        let (stream, _) = listener.accept().unwrap();
        assert!(
            in_namespace(&stage, || node.answer_hook(&stream).map_err(Box::new)).unwrap().is_none()
        );
        told.join().unwrap().unwrap_err()
    });
    assert_eq!(refused.kind(), ErrorKind::NotFound);
}

/// A copy of the plan is in memory, which a fault of the disk does not reach.
pub(crate) fn a_claim_whose_files_are_torn_comes_home() {
    for (is_absent, is_attached) in [(false, true), (true, true), (false, false), (true, false)] {
        let stage = Stage::with(&["link set rail0 up"]);
        let folder = tempfile::tempdir().unwrap();
        let node = node(folder.path(), AttachMode::Hook);
        let plan = stage.plan(json!({"interface": {"name": "net1", "mtu": 1400}}));
        let (paths, uid) = (&node.effects.paths, &plan.claim.uid);
        attached(&node, &stage, &plan);
        node.effects.apply(&plan).unwrap();
        if is_attached {
            attach_as_a_hook(&node, &stage, &plan);
        }
        fs::write(paths.plan(uid), "").unwrap();
        if is_absent {
            fs::remove_file(paths.checkpoint()).unwrap();
        } else {
            fs::write(paths.checkpoint(), "").unwrap();
        }
        in_namespace(&stage, || node.reconcile().unwrap());
        // So no other claim gets the NIC, and a container of the pod can start.
        let known = Checkpoint::peek(&paths.checkpoint()).unwrap_or_default();
        assert_eq!(known.claims[uid].plan, plan);
        assert!(node.effects.is_applied(&plan));
        let told = node.effects.notices.next().now_or_never().unwrap();
        assert!(told[&Subject::Rebuilt][0].contains("of 1 claims"), "{told:?}");
        in_namespace(&stage, || node.unprepare(uid).unwrap());
        assert_eq!(mtu(&stage, RAIL), 9000);
        assert!(!paths.plan_copy(uid).exists());
    }
}

/// Attaches, and records it. The driver holds the namespace.
fn attach_as_a_hook(node: &LocalPreparer, stage: &Stage, plan: &Plan) {
    let uid = &plan.claim.uid;
    let path = node.effects.paths.attached(uid);
    let pod = stage.pod.run(async |_| NetNs::current()).unwrap();
    let mut record = AttachRecord::begin(&path, pod.id().unwrap(), None);
    node.namespaces().hold(uid, Arc::new(pod));
    record.store(&path).unwrap();
    let sysctl = Path::new(SYSCTL);
    let namespaces = [&stage.host, &stage.pod];
    attach_recorded(&KernelNetwork, plan, &mut record, [&path, sysctl], namespaces).unwrap();
}

/// A claim whose plan is nowhere is not forgotten in silence.
pub(crate) fn a_claim_without_any_plan_is_told() {
    let stage = Stage::with(&[]);
    let folder = tempfile::tempdir().unwrap();
    let node = node(folder.path(), AttachMode::Hook);
    let plan = stage.plan(json!({"interface": {"name": RAIL}}));
    attached(&node, &stage, &plan);
    let (paths, uid) = (&node.effects.paths, &plan.claim.uid);
    node.effects.apply(&plan).unwrap();
    fs::write(paths.plan(uid), "").unwrap();
    fs::write(paths.plan_copy(uid), "").unwrap();
    fs::write(paths.checkpoint(), "").unwrap();
    in_namespace(&stage, || node.reconcile().unwrap());
    let told = node.effects.notices.next().now_or_never().unwrap();
    assert!(told[&Subject::Lost][0].contains(uid), "{told:?}");
}

/// A claim as the driver has recorded it: its sandbox had the interfaces, and its namespace is gone.
fn attached(node: &LocalPreparer, stage: &Stage, plan: &Plan) -> Sandbox {
    let paths = &node.effects.paths;
    let uid = plan.claim.uid.clone();
    let record = Record { phase: Phase::Prepared, plan: plan.clone() };
    let claims = [(uid.clone(), record)].into();
    fs::create_dir_all(paths.plugin()).unwrap();
    Checkpoint { claims, ..Checkpoint::default() }.store(&paths.checkpoint()).unwrap();
    let sandbox = Some("s-1".to_owned());
    let path = paths.attached(&uid);
    AttachRecord::begin(&path, stage.pod.id().unwrap(), sandbox).store(&path).unwrap();
    Sandbox {
        id: "s-1".to_owned(),
        pod_uid: "p-1".to_owned(),
        pod: "ns/pod".to_owned(),
        network: None,
        is_running: false,
    }
}

/// Runs work on a thread in the host's namespace.
fn in_namespace<T: Send>(stage: &Stage, work: impl FnOnce() -> T + Send) -> T {
    stage.host.run(async |_| Ok(work())).unwrap()
}

fn mtu(stage: &Stage, name: &str) -> u32 {
    let (_, attributes) = link(&stage.host, name);
    let mtu = attributes.iter().find_map(|attribute| match attribute {
        LinkAttribute::Mtu(mtu) => Some(*mtu),
        _ => None,
    });
    mtu.unwrap()
}
