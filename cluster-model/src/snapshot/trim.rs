//! Removes fields that no decision reads, and fields that should not be shared.

use serde_json::{Map, Value};

/// Fields of a container that may hold secrets or are long.
const OF_CONTAINERS: [&str; 10] = [
    "args",
    "command",
    "env",
    "envFrom",
    "lifecycle",
    "livenessProbe",
    "readinessProbe",
    "startupProbe",
    "volumeDevices",
    "volumeMounts",
];

/// Fields of the status of a container that are kept.
const OF_STATUSES: [&str; 3] = ["name", "resources", "allocatedResources"];

/// Fields of the spec of a volume that are kept: others say where the data is.
const OF_VOLUMES: [&str; 8] = [
    "accessModes",
    "capacity",
    "claimRef",
    "csi",
    "nodeAffinity",
    "storageClassName",
    "volumeAttributesClassName",
    "volumeMode",
];

/// The label of control plane pods, whose flags show their configuration
/// (`cmd/kubeadm/app/util/staticpod`).
const CONTROL_PLANE: (&str, &str) = ("tier", "control-plane");

/// Removes what no command reads: managed fields, and for pods volumes without claims,
/// environments and command lines, which may hold secrets.
pub(super) fn trim(object: &mut Value) {
    let kind = object["kind"].as_str().unwrap_or_default().to_owned();
    if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.remove("managedFields");
        if let Some(annotations) = metadata.get_mut("annotations").and_then(Value::as_object_mut) {
            annotations.remove("kubectl.kubernetes.io/last-applied-configuration");
        }
    }
    match kind.as_str() {
        "Node" => {
            // A node without the field has no images; in a file, they are not known.
            if let Some(status) = object.get_mut("status").and_then(Value::as_object_mut) {
                status.entry("images").or_insert_with(|| Value::Array(Vec::new()));
            }
            remove(object.get_mut("status"), &["volumesInUse", "volumesAttached"]);
        }
        "PersistentVolume" => {
            if let Some(spec) = object.get_mut("spec").and_then(Value::as_object_mut) {
                spec.retain(|field, _| OF_VOLUMES.contains(&field.as_str()));
                if let Some(csi) = spec.get_mut("csi").and_then(Value::as_object_mut) {
                    csi.retain(|field, _| field == "driver");
                }
            }
            remove(object.get_mut("metadata"), &["annotations"]);
        }
        "VolumeAttachment" => remove(Some(object), &["status"]),
        "Service" => {
            remove(Some(object), &["status"]);
            if let Some(spec) = object.get_mut("spec").and_then(Value::as_object_mut) {
                spec.retain(|field, _| field == "selector");
            }
        }
        "StorageClass" => remove(Some(object), &["mountOptions", "parameters"]),
        "Pod" => {
            let (label, value) = CONTROL_PLANE;
            let is_control_plane = object["metadata"]["labels"][label] == value;
            let status = object.get_mut("status").and_then(Value::as_object_mut);
            status.into_iter().for_each(trim_pod_status);
            trim_pod(object.get_mut("spec"), is_control_plane);
        }
        "Deployment" | "DaemonSet" => {
            let template = object.get_mut("spec").and_then(|spec| spec.get_mut("template"));
            // Our own programs have no secrets in their flags.
            trim_pod(template.and_then(|template| template.get_mut("spec")), true);
        }
        _ => {}
    }
}

/// Keeps of each container what it has while it is resized in place: that takes room.
fn trim_pod_status(status: &mut Map<String, Value>) {
    for field in ["containerStatuses", "initContainerStatuses"] {
        let containers = status.get_mut(field).and_then(Value::as_array_mut);
        for container in containers.into_iter().flatten().filter_map(Value::as_object_mut) {
            container.retain(|field, _| OF_STATUSES.contains(&field.as_str()));
        }
    }
}

fn trim_pod(spec: Option<&mut Value>, keeps_flags: bool) {
    let Some(spec) = spec.and_then(Value::as_object_mut) else { return };
    for field in ["imagePullSecrets", "hostAliases", "dnsConfig"] {
        spec.remove(field);
    }
    if let Some(Value::Array(volumes)) = spec.get_mut("volumes") {
        volumes.retain(has_claim);
        if volumes.is_empty() {
            spec.remove("volumes");
        }
    }
    for field in ["containers", "initContainers", "ephemeralContainers"] {
        let containers = spec.get_mut(field).and_then(Value::as_array_mut);
        for container in containers.into_iter().flatten().filter_map(Value::as_object_mut) {
            for field in OF_CONTAINERS {
                if !(keeps_flags && matches!(field, "args" | "command")) {
                    container.remove(field);
                }
            }
        }
    }
}

fn has_claim(volume: &Value) -> bool {
    ["persistentVolumeClaim", "ephemeral"].iter().any(|field| !volume[field].is_null())
}

fn remove(object: Option<&mut Value>, fields: &[&str]) {
    let Some(object): Option<&mut Map<String, Value>> = object.and_then(Value::as_object_mut)
    else {
        return;
    };
    for field in fields {
        object.remove(*field);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn trimming_removes_secrets_and_keeps_scheduling_fields() {
        let container = json!({
            "name": "c", "image": "i", "env": [{ "name": "TOKEN", "value": "secret" }],
            "command": ["run", "--password=secret"], "resources": { "limits": { "cpu": "1" } },
        });
        let pod = |labels: Value| {
            json!({
                "kind": "Pod",
                "metadata": { "name": "p", "labels": labels, "managedFields": [{}] },
                "spec": { "containers": [container], "volumes": [{}], "nodeName": "n" },
                "status": { "containerStatuses": [
                    { "name": "c", "imageID": "i", "allocatedResources": { "cpu": "2" } },
                ] },
            })
        };
        let mut trimmed = pod(json!({}));
        trim(&mut trimmed);
        assert_eq!(
            trimmed,
            json!({
                "kind": "Pod",
                "metadata": { "name": "p", "labels": {} },
                "spec": { "nodeName": "n", "containers": [
                    { "name": "c", "image": "i", "resources": { "limits": { "cpu": "1" } } },
                ] },
                "status": { "containerStatuses": [
                    { "name": "c", "allocatedResources": { "cpu": "2" } },
                ] },
            })
        );
        let mut flags = pod(json!({ "tier": "control-plane" }));
        trim(&mut flags);
        assert_eq!(flags["spec"]["containers"][0]["command"][0], "run");
        assert_eq!(flags["spec"]["containers"][0]["env"], Value::Null);
    }
}
