//! Generates custom resource definitions from the types.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceColumnDefinition, CustomResourceDefinition, CustomResourceDefinitionNames,
    CustomResourceDefinitionSpec, CustomResourceDefinitionVersion, CustomResourceSubresourceStatus,
    CustomResourceSubresources, CustomResourceValidation, JSONSchemaProps,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use k8s_openapi::{ClusterResourceScope, Resource};
use kube_core::schema::{OptionalEnum, OptionalIntOrString, StructuralSchemaRewriter};
use schemars::JsonSchema;
use schemars::generate::SchemaSettings;
use schemars::transform::AddNullable;

use super::NodeTopology;

/// A column of `kubectl get`: name, type, JSON path and priority. A column with priority above 0 is
/// printed by `-o wide` only.
pub type Column = (&'static str, &'static str, &'static str, i32);

const COLUMNS: [Column; 7] = [
    ("GPUs", "integer", ".spec.summary.gpus", 0),
    ("NICs", "integer", ".spec.summary.nics", 0),
    ("NUMA", "integer", ".spec.summary.numaNodes", 0),
    ("Anomalies", "integer", ".spec.summary.anomalies", 0),
    ("Complete", "string", r#".status.conditions[?(@.type=="Complete")].status"#, 0),
    ("Shape", "string", ".spec.shape.hash", 0),
    ("Fabric", "string", ".spec.fabric", 1),
];

/// The custom resource definition of [`NodeTopology`].
pub fn crd() -> CustomResourceDefinition {
    definition::<NodeTopology>(&COLUMNS)
}

/// The definition of a cluster-scoped resource, with the status subresource if the type has a
/// status.
///
/// # Panics
///
/// Panics if the type's schema is not accepted by Kubernetes.
#[expect(clippy::expect_used, reason = "it depends only on the types, and a test generates it")]
pub fn definition<K>(columns: &[Column]) -> CustomResourceDefinition
where
    K: Resource<Scope = ClusterResourceScope> + JsonSchema,
{
    let schema = serde_json::to_value(schema::<K>()).and_then(serde_json::from_value);
    let schema = schema.expect("the schema has the form of Kubernetes");
    let plural = K::URL_PATH_SEGMENT;
    CustomResourceDefinition {
        metadata: ObjectMeta {
            name: Some(format!("{plural}.{}", K::GROUP)),
            ..ObjectMeta::default()
        },
        spec: CustomResourceDefinitionSpec {
            group: K::GROUP.to_owned(),
            names: CustomResourceDefinitionNames {
                kind: K::KIND.to_owned(),
                plural: plural.to_owned(),
                singular: Some(K::KIND.to_lowercase()),
                ..CustomResourceDefinitionNames::default()
            },
            scope: "Cluster".to_owned(),
            versions: vec![version::<K>(schema, columns)],
            ..CustomResourceDefinitionSpec::default()
        },
        status: None,
    }
}

/// A structural schema, as Kubernetes requires: without references and unions.
fn schema<K: JsonSchema>() -> schemars::Schema {
    let settings = SchemaSettings::openapi3().with(|settings| {
        settings.inline_subschemas = true;
        settings.meta_schema = None;
    });
    settings
        .with_transform(AddNullable::default())
        .with_transform(StructuralSchemaRewriter)
        .with_transform(OptionalEnum)
        .with_transform(OptionalIntOrString)
        .into_generator()
        .into_root_schema_for::<K>()
}

fn version<K: Resource>(
    schema: JSONSchemaProps,
    columns: &[Column],
) -> CustomResourceDefinitionVersion {
    let has_status = schema.properties.as_ref().is_some_and(|all| all.contains_key("status"));
    CustomResourceDefinitionVersion {
        additional_printer_columns: Some(columns.iter().copied().map(column).collect()),
        name: K::VERSION.to_owned(),
        schema: Some(CustomResourceValidation { open_api_v3_schema: Some(schema) }),
        served: true,
        storage: true,
        subresources: has_status.then(|| CustomResourceSubresources {
            status: Some(CustomResourceSubresourceStatus(serde_json::json!({}))),
            ..CustomResourceSubresources::default()
        }),
        ..CustomResourceDefinitionVersion::default()
    }
}

fn column((name, type_, json_path, priority): Column) -> CustomResourceColumnDefinition {
    CustomResourceColumnDefinition {
        name: name.to_owned(),
        type_: type_.to_owned(),
        json_path: json_path.to_owned(),
        priority: (priority != 0).then_some(priority),
        ..CustomResourceColumnDefinition::default()
    }
}

// Schemas for types that do not derive one.

/// One anomaly and its subject.
#[derive(JsonSchema)]
#[serde(rename_all = "camelCase")]
#[expect(dead_code, reason = "only its schema is used")]
pub(super) struct AnomalySchema {
    /// A PCI address, a device's name, or a path below the host's root.
    subject: String,
    /// The kind of anomaly.
    kind: String,
    /// The finding, as text for people.
    detail: String,
}

/// Condition contains details for one aspect of the current state of this API Resource.
#[derive(JsonSchema)]
#[serde(rename_all = "camelCase")]
#[expect(dead_code, reason = "only its schema is used")]
pub(super) struct ConditionSchema {
    /// The last time the condition changed from one status to another.
    #[schemars(extend("format" = "date-time"))]
    last_transition_time: String,
    /// A human readable message with details about the change; may be empty.
    message: String,
    /// The generation of the object that the condition was set for.
    observed_generation: Option<i64>,
    /// The reason of the last change, in `CamelCase`.
    reason: String,
    /// `True`, `False` or `Unknown`.
    status: String,
    /// Type of the condition, in `CamelCase`.
    #[serde(rename = "type")]
    type_: String,
}
