//! Checks that any input ends without a panic. Used by the fuzz targets and by the test over their
//! findings.

use std::fmt::Write as _;
use std::sync::LazyLock;

use dra_allocator::cel::{CompiledSelector, RuntimeError};
use dra_allocator::{
    AllocatedState, Budget, Claim, Device, Inventory, Limits, MinorVersion, Settings, allocate,
    cel, explain,
};
use k8s_openapi::api::resource::v1::{ResourceClaim, ResourceSlice};
use serde_json::json;

const STEPS: u64 = 1000;

static INVENTORY: LazyLock<Inventory> = LazyLock::new(|| {
    let device = |name: &str, numa: i64| {
        json!({
            "name": name,
            "attributes": {
                "model": {"string": "m"}, "numa": {"int": numa}, "ok": {"bool": true},
                "version": {"version": "1.2.3"}, "names": {"strings": ["a", "b"]},
            },
            "capacity": {"mem": {"value": "4Gi"}},
            "allowMultipleAllocations": numa == 1,
        })
    };
    let slice = json!({
        "metadata": {"name": "s"},
        "spec": {
            "driver": "d", "nodeName": "n",
            "pool": {"name": "p", "generation": 1, "resourceSliceCount": 1},
            "devices": [device("a", 0), device("b", 1), device("c", 1)],
        },
    });
    let class = json!({"metadata": {"name": "c"}, "spec": {}});
    let mut inventory = Inventory::new();
    inventory.apply_slice(&serde_json::from_value(slice).expect("a slice")).expect("applied");
    inventory.apply_class(&serde_json::from_value(class).expect("a class")).expect("applied");
    inventory
});

fn settings() -> [Settings; 2] {
    [MinorVersion::V1_36, MinorVersion::V1_37].map(Settings::defaults_of)
}

/// Evaluates an expression on the first device.
#[allow(dead_code, reason = "fuzz targets do not use it")]
pub(crate) fn on_a_device(
    compiled: &CompiledSelector,
    budget: &Budget<'_>,
) -> Result<bool, RuntimeError> {
    compiled.matches(first_device(), budget)
}

#[allow(dead_code, reason = "fuzz targets do not use it")]
fn first_device() -> &'static Device {
    INVENTORY.devices_on("n", &settings()[0]).expect("devices")[0]
}

/// Evaluates any text as an expression, if it compiles.
pub(crate) fn expression(text: &str) {
    let Ok(compiled) = cel::compile(text, &Budget::unlimited()) else { return };
    let devices = INVENTORY.devices_on("n", &settings()[0]).expect("devices");
    for device in devices.into_iter().take(2) {
        let device: &Device = device;
        drop(compiled.matches(device, &Budget::unlimited()));
    }
}

/// Compiles any text as a pattern, and searches two texts for it with each function that takes a pattern.
pub(crate) fn pattern(text: &str) {
    let mut quoted = String::new();
    for c in text.chars() {
        write!(quoted, "\\U{:08x}", u32::from(c)).expect("a string takes any text");
    }
    let searches = ["", "aab x1_é\\nK"].map(|subject| {
        let called = ["matches", "find", "findAll"].map(|call| format!("'{subject}'.{call}(p)"));
        called.join(", ")
    });
    // All in one expression, since most of the time goes into reading it; as a literal and as a value.
    let searches = searches.join(", ");
    expression(&format!(
        "''.matches('{quoted}') || ['{quoted}'].exists(p, [{searches}].size() == 6)"
    ));
}

/// Parses any JSON as a slice, and runs a claim on it.
pub(crate) fn slice(bytes: &[u8]) {
    let Ok(slice) = serde_json::from_slice::<ResourceSlice>(bytes) else { return };
    let mut inventory = INVENTORY.clone();
    if inventory.apply_slice(&slice).is_err() {
        return;
    }
    let claim = json!({
        "metadata": {"name": "c"},
        "spec": {"devices": {
            "requests": [
                {"name": "a", "exactly": {"deviceClassName": "c", "count": 2}},
                {"name": "b", "exactly": {"deviceClassName": "c", "capacity": {"requests": {"mem": "1"}}}},
            ],
            "constraints": [{"matchAttribute": "d/numa"}, {"distinctAttribute": "d/model"}],
        }},
    });
    let claim: ResourceClaim = serde_json::from_value(claim).expect("a claim");
    ask(&inventory, &Claim::try_from(&claim).expect("a claim"));
    inventory.delete_slice(slice.metadata.name.as_deref().unwrap_or_default());
}

/// Parses any JSON as a claim, runs it, and applies it to the index.
pub(crate) fn claim(bytes: &[u8]) {
    let Ok(wire) = serde_json::from_slice::<ResourceClaim>(bytes) else { return };
    if let Ok(claim) = Claim::try_from(&wire) {
        ask(&INVENTORY, &claim);
    }
    let mut inventory = INVENTORY.clone();
    drop(inventory.apply_claim(&wire));
}

fn ask(inventory: &Inventory, claim: &Claim) {
    let claims = [claim.clone()];
    let state = AllocatedState::new();
    for settings in settings() {
        let limits = Limits::steps(STEPS);
        let attempt = allocate(inventory, "n", &claims, &state, &settings, limits);
        assert!(attempt.steps <= STEPS, "{} steps", attempt.steps);
    }
    let few = Limits::steps(STEPS / 10);
    drop(explain(inventory, "n", &claims, &state, &settings()[1], few));
}
