//! Makes types Kubernetes resources, for this crate and those that use it.

/// Makes a type with the fields `metadata` and `spec` a Kubernetes resource. With `written`, it is
/// serialized as the API server expects: with the type, without an empty status.
#[macro_export]
macro_rules! resource {
    ($type:ident, $group:literal, $version:literal, $plural:literal, $scope:ty) => {
        impl k8s_openapi::Resource for $type {
            const API_VERSION: &'static str = concat!($group, "/", $version);
            const GROUP: &'static str = $group;
            const KIND: &'static str = stringify!($type);
            const VERSION: &'static str = $version;
            const URL_PATH_SEGMENT: &'static str = $plural;
            type Scope = $scope;
        }

        impl k8s_openapi::Metadata for $type {
            type Ty = ObjectMeta;

            fn metadata(&self) -> &ObjectMeta {
                &self.metadata
            }

            fn metadata_mut(&mut self) -> &mut ObjectMeta {
                &mut self.metadata
            }
        }
    };
    ($type:ident, $group:literal, $version:literal, $plural:literal, $scope:ty, written $($status:ident)?) => {
        $crate::resource!($type, $group, $version, $plural, $scope);

        impl serde::Serialize for $type {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                use serde::ser::SerializeStruct as _;

                let mut object = serializer.serialize_struct(stringify!($type), 5)?;
                object.serialize_field("apiVersion", concat!($group, "/", $version))?;
                object.serialize_field("kind", stringify!($type))?;
                object.serialize_field("metadata", &self.metadata)?;
                object.serialize_field("spec", &self.spec)?;
                $(if let Some(status) = &self.$status {
                    object.serialize_field("status", status)?;
                })?
                object.end()
            }
        }
    };
}
