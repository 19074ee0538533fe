//! The kinds of things that decide where a pod can run. A new kind is one entry of the table.

use serde_json::{Value, json};

use super::{
    CPUS, Case, NAME, NAMESPACE_LABEL, TIER, ZONE, devices, push, tolerant, volumes, with_cpus,
};
use crate::random::Random;

/// A kind of thing that decides where a pod can run.
#[derive(Debug)]
pub struct Kind {
    /// Its name in reports.
    pub name: &'static str,
    /// Adds it to a case.
    pub(super) add: fn(&mut Case, &[String], &mut Random),
    /// Whether groups can have it.
    of_groups: bool,
    /// Whether it replaces the claim of the pod: a case has one such kind at most.
    pub(super) has_claim: bool,
}

impl Kind {
    /// Whether cases may have it.
    pub(super) fn may_be_drawn(&self, is_group: bool) -> bool {
        self.of_groups || !is_group
    }

    const fn of_all(name: &'static str, add: fn(&mut Case, &[String], &mut Random)) -> Self {
        Self { name, add, of_groups: true, has_claim: false }
    }

    const fn of_pods(name: &'static str, add: fn(&mut Case, &[String], &mut Random)) -> Self {
        Self { name, add, of_groups: false, has_claim: false }
    }

    const fn of_claims(name: &'static str, add: fn(&mut Case, &[String], &mut Random)) -> Self {
        Self { has_claim: true, ..Self::of_pods(name, add) }
    }
}

/// All kinds.
pub const KINDS: &[Kind] = &[
    Kind::of_all("taint", taint),
    Kind::of_all("cordon", cordon),
    Kind::of_all("device taint rule", device_taint_rule),
    Kind::of_all("node affinity", node_affinity),
    Kind::of_all("anti-affinity of running pods", kept_clear),
    Kind::of_all("own anti-affinity", apart),
    Kind::of_all("own affinity", near),
    Kind::of_pods("affinity by labels of namespaces", in_namespaces),
    Kind::of_all("spread", spread),
    Kind::of_all("zonal volume", volumes::zonal),
    Kind::of_all("volumes to choose", volumes::to_choose),
    Kind::of_pods("volume of one pod", volumes::of_one_pod),
    Kind::of_all("attached volumes", volumes::attached),
    Kind::of_pods("storage that is left", volumes::storage_left),
    Kind::of_all("preferences", preferences),
    Kind::of_pods("pods of a Service", of_service),
    Kind::of_all("host port", host_port),
    Kind::of_all("CPUs in use", cpus),
    Kind::of_all("RuntimeClass", runtime_class),
    Kind::of_all("pod-level resources", pod_level),
    Kind::of_all("resized pod", resized),
    Kind::of_all("init and sidecar containers", init_containers),
    Kind::of_all("quota with a scope", quota),
    Kind::of_all("LimitRange", limit_range),
    Kind::of_all("preemption", preemption),
    Kind::of_pods("room that is kept for another pod", kept_for_another),
    Kind::of_all("scheduling gate", gate),
    Kind::of_pods("another scheduler", another_scheduler),
    Kind::of_claims("missing claim", devices::missing_claim),
    Kind::of_claims("shared claim", devices::shared_claim),
    Kind::of_claims("extended resource", devices::extended_resource),
    Kind::of_claims("prioritized list", devices::prioritized_list),
    Kind::of_claims("counters", devices::counters),
    Kind::of_claims("consumable capacity", devices::consumable_capacity),
    Kind::of_claims("adminAccess", devices::admin_access),
    Kind::of_claims("binding conditions", devices::binding_conditions),
];

fn taint(case: &mut Case, nodes: &[String], random: &mut Random) {
    let effect = *random.pick(&["NoSchedule", "NoExecute", "PreferNoSchedule"]);
    for node in nodes {
        if random.below(2) == 0 {
            let taint = json!({"key": "tests.dranet.io/odd", "value": "yes", "effect": effect});
            push(&mut case.node(node)["spec"]["taints"], taint);
        }
    }
    if random.below(3) == 0 {
        let mut toleration = json!({"key": "tests.dranet.io/odd", "operator": "Exists"});
        if effect == "NoExecute" {
            toleration["effect"] = json!(effect);
            toleration["tolerationSeconds"] = json!(600);
        }
        push(&mut case.pod["spec"]["tolerations"], toleration);
    }
}

fn cordon(case: &mut Case, nodes: &[String], random: &mut Random) {
    for node in nodes {
        if random.below(2) == 0 {
            case.node(node)["spec"]["unschedulable"] = json!(true);
        }
    }
}

fn device_taint_rule(case: &mut Case, nodes: &[String], random: &mut Random) {
    let effect = *random.pick(&["NoSchedule", "NoExecute", "None"]);
    let mut selector = json!({"driver": random.pick(&["gpu.nvidia.com", "dra.net"])});
    if random.below(4) > 0 {
        selector["pool"] = json!(random.pick(nodes));
    }
    if effect == "NoExecute" {
        // It would end the earlier pods of these devices.
        case.earlier.clear();
    }
    case.objects.push(json!({
        "apiVersion": "resource.k8s.io/v1", "kind": "DeviceTaintRule",
        "metadata": {"name": "tests-odd"},
        "spec": {"deviceSelector": selector, "taint": {"key": "tests.dranet.io/odd", "effect": effect}},
    }));
}

fn node_affinity(case: &mut Case, nodes: &[String], random: &mut Random) {
    for (number, node) in nodes.iter().enumerate() {
        case.node(node)["metadata"]["labels"][TIER] = json!(number.to_string());
    }
    if random.below(5) == 0 {
        let operator = *random.pick(&["In", "NotIn"]);
        let names = json!([random.pick(nodes)]);
        let field = json!({"key": "metadata.name", "operator": operator, "values": names});
        case.pod["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"] =
            json!({"nodeSelectorTerms": [{"matchFields": [field]}]});
        return;
    }
    let operator = *random.pick(&["Gt", "Lt", "In", "NotIn", "Exists", "DoesNotExist"]);
    let values = match operator {
        "Gt" | "Lt" => json!([random.below(nodes.len()).to_string()]),
        "In" | "NotIn" => json!(["0", random.below(nodes.len()).to_string()]),
        _ => Value::Null,
    };
    let expression = json!({"key": TIER, "operator": operator, "values": values});
    case.pod["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"] =
        json!({"nodeSelectorTerms": [{"matchExpressions": [expression]}]});
}

/// A term of affinity by the labels of pods.
fn term(app: &str, random: &mut Random) -> Value {
    let domains = *random.pick(&["kubernetes.io/hostname", ZONE]);
    let selector = json!({"matchLabels": {"app": app}});
    let term = json!({"topologyKey": domains, "labelSelector": selector});
    json!({"requiredDuringSchedulingIgnoredDuringExecution": [term]})
}

fn kept_clear(case: &mut Case, nodes: &[String], random: &mut Random) {
    case.give_zones(nodes);
    case.pod["metadata"]["labels"]["app"] = json!(NAME);
    for _ in 0..=random.below(2) {
        let mut spec = with_cpus(1);
        spec["affinity"]["podAntiAffinity"] = term(NAME, random);
        case.run(random.pick(nodes).as_str(), &spec);
    }
}

fn apart(case: &mut Case, nodes: &[String], random: &mut Random) {
    case.give_zones(nodes);
    case.pod["spec"]["affinity"]["podAntiAffinity"] = term("running", random);
    for _ in 0..random.below(3) {
        case.run(random.pick(nodes).as_str(), &with_cpus(1));
    }
}

fn near(case: &mut Case, nodes: &[String], random: &mut Random) {
    case.give_zones(nodes);
    let app = *random.pick(&["running", "running", NAME]);
    case.pod["metadata"]["labels"]["app"] = json!(NAME);
    let mut affinity = term(app, random);
    let terms = &mut affinity["requiredDuringSchedulingIgnoredDuringExecution"];
    match random.below(4) {
        0 => {
            terms[0]["matchLabelKeys"] = json!(["app"]);
            terms[0]["labelSelector"] = json!({});
        }
        1 => push(terms, terms[0].clone()),
        _ => {}
    }
    if terms[1].is_object() {
        terms[1]["topologyKey"] = json!("kubernetes.io/hostname");
        terms[1]["labelSelector"] = json!({"matchLabels": {"app": random.pick(&[app, NAME])}});
    }
    case.pod["spec"]["affinity"]["podAffinity"] = affinity;
    for _ in 0..random.below(3) {
        case.run(random.pick(nodes).as_str(), &with_cpus(1));
    }
}

fn in_namespaces(case: &mut Case, nodes: &[String], random: &mut Random) {
    case.give_zones(nodes);
    let field = *random.pick(&["podAffinity", "podAntiAffinity"]);
    let mut affinity = term("running", random);
    let label = *random.pick(&[NAMESPACE_LABEL, TIER]);
    let selector = json!({"matchExpressions": [{"key": label, "operator": "Exists"}]});
    affinity["requiredDuringSchedulingIgnoredDuringExecution"][0]["namespaceSelector"] = selector;
    case.pod["spec"]["affinity"][field] = affinity;
    for _ in 0..random.below(3) {
        case.run(random.pick(nodes).as_str(), &with_cpus(1));
    }
}

fn spread(case: &mut Case, nodes: &[String], random: &mut Random) {
    case.give_zones(nodes);
    case.pod["spec"]["topologySpreadConstraints"] = json!([{
        "maxSkew": 1, "topologyKey": random.pick(&["kubernetes.io/hostname", ZONE]),
        "whenUnsatisfiable": "DoNotSchedule", "labelSelector": {"matchLabels": {"app": "running"}},
    }]);
    let constraint = &mut case.pod["spec"]["topologySpreadConstraints"][0];
    match random.below(5) {
        0 => constraint["minDomains"] = json!(random.pick(&[2, 3])),
        1 => constraint["nodeTaintsPolicy"] = json!("Honor"),
        2 => constraint["nodeAffinityPolicy"] = json!("Ignore"),
        3 => {
            constraint["labelSelector"] = json!({});
            constraint["matchLabelKeys"] = json!(["app"]);
        }
        _ => {}
    }
    case.pod["metadata"]["labels"]["app"] = json!("running");
    for _ in 0..random.below(4) {
        case.run(random.pick(nodes).as_str(), &with_cpus(1));
    }
}

/// What makes a node preferred, or less so.
fn preferences(case: &mut Case, nodes: &[String], random: &mut Random) {
    case.give_zones(nodes);
    fill(case, nodes, random);
    case.pod["metadata"]["labels"]["app"] = json!(NAME);
    let requests =
        json!({"cpu": random.pick(&["1", "6"]), "memory": random.pick(&["1Gi", "64Gi"])});
    case.pod["spec"]["containers"][0]["resources"]["requests"] = requests;
    let zone = json!({"key": ZONE, "operator": "In", "values": [random.pick(&["a", "b"])]});
    let weight = *random.pick(&[1, 40, 100]);
    let domains = *random.pick(&["kubernetes.io/hostname", ZONE]);
    let selector = json!({"matchLabels": {"app": random.pick(&["running", NAME])}});
    let term = json!({"topologyKey": domains, "labelSelector": selector});
    let of_pods = json!({"preferredDuringSchedulingIgnoredDuringExecution": [
        {"weight": weight, "podAffinityTerm": term},
    ]});
    let spec = &mut case.pod["spec"];
    match random.below(4) {
        0 => {
            spec["affinity"]["nodeAffinity"]["preferredDuringSchedulingIgnoredDuringExecution"] =
                json!([{"weight": weight, "preference": {"matchExpressions": [zone]}}]);
        }
        1 => spec["affinity"]["podAffinity"] = of_pods,
        2 => spec["affinity"]["podAntiAffinity"] = of_pods,
        _ => {
            let constraint = json!({
                "maxSkew": 1, "topologyKey": domains, "whenUnsatisfiable": "ScheduleAnyway",
                "labelSelector": selector,
            });
            push(&mut spec["topologySpreadConstraints"], constraint);
        }
    }
}

/// Pods that a Service selects, which kube-scheduler spreads.
fn of_service(case: &mut Case, nodes: &[String], random: &mut Random) {
    case.objects.push(json!({
        "apiVersion": "v1", "kind": "Service", "metadata": {"name": "tests-selecting"},
        "spec": {"selector": {"app": "running"}, "ports": [{"port": 80}]},
    }));
    case.pod["metadata"]["labels"]["app"] = json!("running");
    for _ in 0..random.below(4) {
        case.run(random.pick(nodes).as_str(), &with_cpus(1));
    }
}

fn host_port(case: &mut Case, nodes: &[String], random: &mut Random) {
    let mut ports = json!([{"containerPort": 7000, "hostPort": 7000}]);
    case.pod["spec"]["containers"][0]["ports"] = ports.clone();
    if random.below(3) == 0 {
        case.pod["spec"]["hostNetwork"] = json!(true);
        case.pod["spec"]["containers"][0]["ports"] = json!([{"containerPort": 7000}]);
    }
    for node in nodes {
        if random.below(2) == 0 {
            ports[0]["protocol"] = json!(random.pick(&["TCP", "TCP", "UDP"]));
            ports[0]["hostIP"] = json!(random.pick(&["", "127.0.0.1"]));
            let mut spec = with_cpus(1);
            spec["containers"][0]["ports"] = ports.clone();
            case.run(node, &spec);
        }
    }
}

/// Uses most CPUs of some nodes.
fn fill(case: &mut Case, nodes: &[String], random: &mut Random) {
    for node in nodes {
        if random.below(3) > 0 {
            case.run(node, &with_cpus(CPUS - 8));
        }
    }
}

fn cpus(case: &mut Case, nodes: &[String], random: &mut Random) {
    fill(case, nodes, random);
    let cpus = random.pick(&["8", "8001m", "100", "200"]);
    case.pod["spec"]["containers"][0]["resources"]["requests"]["cpu"] = json!(cpus);
}

fn runtime_class(case: &mut Case, nodes: &[String], random: &mut Random) {
    fill(case, nodes, random);
    for (number, node) in nodes.iter().enumerate() {
        case.node(node)["metadata"]["labels"][TIER] = json!(number.to_string());
    }
    let mut class = json!({
        "apiVersion": "node.k8s.io/v1", "kind": "RuntimeClass",
        "metadata": {"name": "tests-odd"}, "handler": "odd",
    });
    if random.below(2) == 0 {
        class["overhead"] = json!({"podFixed": {"cpu": random.pick(&["8", "9"])}});
    }
    if random.below(2) == 0 {
        let tier = random.below(nodes.len()).to_string();
        class["scheduling"]["nodeSelector"] = json!({TIER: tier});
    }
    case.objects.push(class);
    case.pod["spec"]["runtimeClassName"] = json!("tests-odd");
}

fn pod_level(case: &mut Case, nodes: &[String], random: &mut Random) {
    fill(case, nodes, random);
    let (of_pod, of_container) = (random.pick(&["8", "9", "16"]), random.pick(&["1", "8"]));
    let amounts = random.pick(&["requests", "limits"]);
    case.pod["spec"]["resources"] = json!({*amounts: {"cpu": of_pod}});
    if random.below(2) == 0 {
        let requests = json!({"cpu": of_container});
        case.pod["spec"]["containers"][0]["resources"]["requests"] = requests;
    }
}

/// Pods that are being resized in place: what the node has allocated may be more than they ask for.
fn resized(case: &mut Case, nodes: &[String], random: &mut Random) {
    for node in nodes {
        let cpus = |random: &mut Random| random.pick(&["20", "100"]).to_string();
        let (asked, allocated) = (cpus(random), cpus(random));
        let requests = json!({"cpu": asked});
        let spec = json!({"containers": [
            {"name": "main", "image": "none", "resources": {"requests": requests}},
        ]});
        let pod = case.run(node, &spec);
        pod["status"] = json!({"containerStatuses": [{
            "name": "main", "image": "none", "imageID": "none", "ready": true, "restartCount": 0,
            "allocatedResources": {"cpu": allocated},
            "resources": {"requests": {"cpu": allocated}},
        }]});
    }
    case.pod["spec"]["containers"][0]["resources"]["requests"]["cpu"] = json!("50");
}

fn init_containers(case: &mut Case, nodes: &[String], random: &mut Random) {
    fill(case, nodes, random);
    let mut init = json!([]);
    for number in 0..=random.below(3) {
        let requests = json!({"cpu": random.pick(&["3", "5", "8", "9"])});
        let mut container = json!({"name": format!("i{number}"), "image": "none", "resources": {"requests": requests}});
        if random.below(2) == 0 {
            container["restartPolicy"] = json!("Always");
        }
        push(&mut init, container);
    }
    case.pod["spec"]["initContainers"] = init;
    let requests = json!({"cpu": random.pick(&["1", "3", "5"])});
    case.pod["spec"]["containers"][0]["resources"]["requests"] = requests;
}

fn quota(case: &mut Case, _: &[String], random: &mut Random) {
    let pods = case.earlier.len() + random.below(2);
    let mut spec = json!({"hard": {"pods": pods.to_string()}});
    if random.below(3) > 0 {
        spec["scopes"] = json!([random.pick(&["BestEffort", "NotBestEffort", "NotTerminating"])]);
    } else {
        case.objects.push(json!({
            "apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass",
            "metadata": {"name": "tests-limited"}, "value": 1,
        }));
        if random.below(2) == 0 {
            case.pod["spec"]["priorityClassName"] = json!("tests-limited");
        }
        let operator = *random.pick(&["In", "NotIn", "Exists"]);
        let values = (operator != "Exists").then_some(["tests-limited"]);
        spec["hard"]["pods"] = json!(random.below(2).to_string());
        spec["scopeSelector"] = json!({"matchExpressions": [
            {"scopeName": "PriorityClass", "operator": operator, "values": values},
        ]});
    }
    case.objects.push(json!({
        "apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "scoped"}, "spec": spec,
    }));
}

fn limit_range(case: &mut Case, nodes: &[String], random: &mut Random) {
    fill(case, nodes, random);
    let default = random.pick(&["8", "9", "200"]);
    let mut limits = vec![json!({"type": "Container", "default": {"cpu": default}})];
    if random.below(3) == 0 {
        let bound = *random.pick(&["min", "max"]);
        // Of two objects with defaults, Kubernetes takes the ones that it meets first, in no order.
        if random.below(2) == 0 {
            limits.push(json!({"type": "Pod", bound: {"cpu": "9"}}));
        } else if bound == "min" || *default != "200" {
            limits[0][bound] = json!({"cpu": if bound == "min" { "2" } else { "9" }});
        }
    }
    case.objects.push(json!({
        "apiVersion": "v1", "kind": "LimitRange", "metadata": {"name": "limits"},
        "spec": {"limits": limits},
    }));
    // The defaults are not those of the pods that run.
    case.earlier.retain(|pod| !pod["spec"]["nodeName"].is_null());
}

/// Adds two classes, whose priorities are below and above that of pods without a class.
fn priority_classes(case: &mut Case) {
    for (name, value) in [("tests-low", -10), ("tests-high", 100)] {
        let class = json!({
            "apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass",
            "metadata": {"name": name}, "value": value,
        });
        if !case.objects.contains(&class) {
            case.objects.push(class);
        }
    }
}

/// A pod that is evicted for another, and takes long to end.
fn kept_for_another(case: &mut Case, nodes: &[String], random: &mut Random) {
    priority_classes(case);
    let node = random.pick(nodes);
    let victim = case.run(node, &with_cpus(CPUS - 8));
    victim["spec"]["terminationGracePeriodSeconds"] = json!(3600);
    let selector = json!({"kubernetes.io/hostname": node});
    let mut spec = with_cpus(CPUS - 28);
    spec["priorityClassName"] = json!("tests-high");
    spec["nodeSelector"] = selector.clone();
    let coming =
        json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "comes"}, "spec": spec});
    case.earlier.push(tolerant(coming));
    if random.below(2) == 0 {
        case.pod["spec"]["nodeSelector"] = selector;
    }
    if random.below(3) == 0 {
        case.pod["spec"]["priorityClassName"] = json!("tests-high");
        case.pod["spec"]["preemptionPolicy"] = json!("Never");
    }
    case.pod["spec"]["containers"][0]["resources"]["requests"]["cpu"] = json!("2");
}

fn preemption(case: &mut Case, nodes: &[String], random: &mut Random) {
    priority_classes(case);
    let kept = random.below(nodes.len());
    for (number, node) in nodes.iter().enumerate() {
        let mut spec = with_cpus(CPUS - 8);
        if number != kept {
            spec["priorityClassName"] = json!("tests-low");
        }
        case.run(node, &spec);
    }
    if random.below(3) > 0 {
        case.pod["spec"]["priorityClassName"] = json!("tests-high");
    }
    if random.below(4) == 0 {
        case.pod["spec"]["preemptionPolicy"] = json!("Never");
    }
    case.pod["spec"]["containers"][0]["resources"]["requests"]["cpu"] = json!("100");
}

fn gate(case: &mut Case, _: &[String], _: &mut Random) {
    case.pod["spec"]["schedulingGates"] = json!([{"name": "tests.dranet.io/gate"}]);
}

fn another_scheduler(case: &mut Case, _: &[String], _: &mut Random) {
    case.pod["spec"]["schedulerName"] = json!("tests-nobody");
}
