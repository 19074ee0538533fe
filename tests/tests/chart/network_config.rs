//! Permission to write claims does not allow setting addresses and routes. Claims and templates may
//! set them only in the namespaces that the operator names.

use std::{sync::Arc, time::Duration};

use kube::{
    Client, Error,
    api::DynamicObject,
    config::{KubeConfigOptions, Kubeconfig},
};
use serde_json::{Value, json};
use tests::{Check, ControlPlane, Scope, chart::Helm, eventually, suite::Test, with_scope};

const SOON: Duration = Duration::from_secs(30);
const POLICY: &str = "network-config.dranet.io";
/// A person who may edit a namespace.
const EDITOR: &str = "
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: editor}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: edit}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: editor}]
";

pub(crate) fn tests() -> Vec<Test> {
    tests::tests![
        only_allowed_namespaces_set_addresses_and_routes,
        a_namespace_may_be_allowed_some_fields,
    ]
    .into_iter()
    .map(Test::alone)
    .collect()
}

async fn only_allowed_namespaces_set_addresses_and_routes(
    plane: Arc<ControlPlane>,
) -> anyhow::Result<()> {
    with_scope(plane.client(), async |scope| {
        with_scope(plane.client(), async |allowed| {
            let flag = format!("--set=networkConfig.namespaces={{{}}}", allowed.namespace());
            for object in Helm::offline()?.template(&[&flag]).await? {
                if object.metadata.name.as_deref() == Some(POLICY) {
                    scope.apply(object).await?;
                }
            }
            let (mine, theirs) = (editor(&plane, scope).await?, editor(&plane, allowed).await?);
            in_force(&mine, scope, allowed.namespace()).await?;
            for (parameters, fields) in held() {
                for object in objects(&parameters) {
                    let refused = create(&mine, scope, &object).await;
                    let Err(Error::Api(status)) = &refused else { panic!("{object}: {refused:?}") };
                    let message = &status.message;
                    assert_eq!(status.code, 403, "{message}");
                    for part in [fields, scope.namespace(), allowed.namespace()] {
                        assert!(message.contains(part), "`{part}` is not in: {message}");
                    }
                    create(&theirs, allowed, &object).await?;
                }
            }
            // A decoder may read the fields of an object from a list, by position.
            for parameters in lists() {
                for object in objects(&parameters) {
                    let refused = create(&mine, scope, &object).await;
                    let Err(Error::Api(status)) = &refused else { panic!("{object}: {refused:?}") };
                    assert!(status.message.contains("an object belongs"), "{}", status.message);
                }
            }
            for parameters in free() {
                for object in objects(&parameters) {
                    create(&mine, scope, &object).await?;
                }
            }
            Ok(())
        })
        .await
    })
    .await
}

/// An entry of `networkConfig.namespaces` can name the fields.
async fn a_namespace_may_be_allowed_some_fields(plane: Arc<ControlPlane>) -> anyhow::Result<()> {
    with_scope(plane.client(), async |scope| {
        let namespace = scope.namespace();
        let flags = [
            format!("--set=networkConfig.namespaces[0]={namespace}=interface.dhcp\\,neighbors"),
            "--set=networkConfig.namespaces[1]=*=interface.vrf".to_owned(),
        ];
        let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
        for object in Helm::offline()?.template(&flags).await? {
            if object.metadata.name.as_deref() == Some(POLICY) {
                scope.apply(object).await?;
            }
        }
        let mine = editor(&plane, scope).await?;
        in_force(&mine, scope, &format!("{namespace}=")).await?;
        let allowed = ["interface.dhcp", "neighbors", "interface.vrf"];
        for (parameters, fields) in held().into_iter().filter(|(_, fields)| !fields.contains(',')) {
            for object in objects(&parameters) {
                let answer = create(&mine, scope, &object).await;
                let is_allowed = allowed.contains(&fields);
                assert_eq!(answer.is_ok(), is_allowed, "{fields}: {answer:?}");
            }
        }
        Ok(())
    })
    .await
}

/// Configurations that only allowed namespaces may set, and the fields that the denial names.
fn held() -> Vec<(Value, &'static str)> {
    vec![
        (json!({"interface": {"addresses": ["10.0.0.1/24"]}}), "interface.addresses"),
        (json!({"interface": {"addressRange": "10.0.0.0/24"}}), "interface.addressRange"),
        (json!({"interface": {"dhcp": true}}), "interface.dhcp"),
        (json!({"interface": {"addressing": "dhcp"}}), "interface.dhcp"),
        (json!({"interface": {"disableEbpfPrograms": true}}), "interface.disableEbpfPrograms"),
        (
            json!({"interface": {"type": "macvlan", "macvlanMode": "passthru"}}),
            "interface.macvlanMode",
        ),
        (json!({"interface": {"forwarding": true}}), "interface.forwarding"),
        (
            json!({"interface": {"acceptRouterAdvertisements": true}}),
            "interface.acceptRouterAdvertisements",
        ),
        (json!({"interface": {"hardwareAddr": "02:00:00:00:00:01"}}), "interface.hardwareAddr"),
        (json!({"interface": {"type": "ipoib", "pkey": "0x8001"}}), "interface.pkey"),
        (json!({"interface": {"vrf": {"name": "blue"}}}), "interface.vrf"),
        (json!({"routes": [{"destination": "0.0.0.0/0", "gateway": "10.0.0.1"}]}), "routes"),
        (json!({"rules": [{"priority": 1, "table": 7}]}), "rules"),
        (json!({"neighbors": [{"destination": "10.0.0.2"}]}), "neighbors"),
        (json!({"virtualFunction": {"vlan": 7}}), "virtualFunction"),
        (
            json!({"interface": {"name": "net1", "vrf": {"name": "blue"}}, "routes": [{}]}),
            "routes, interface.vrf",
        ),
    ]
}

/// Configurations with lists instead of objects.
fn lists() -> Vec<Value> {
    vec![
        json!({"interface": [null, null, null, null, ["10.0.0.5/24"]]}),
        json!({"interface": []}),
        json!({"virtualFunction": [7]}),
        json!({"routes": [["0.0.0.0/0", "10.0.0.1"]]}),
        json!({"rules": {"priority": 1}}),
    ]
}

/// Configurations that any namespace may set.
fn free() -> Vec<Value> {
    vec![
        json!({}),
        json!({"virtualFunction": {}}),
        json!({"interface": {"name": "net1", "mtu": 4200, "type": "macvlan"}}),
        json!({"interface": {"type": "ipoib"}}),
        json!({"interface": {"type": "ipvlan", "addressing": "unnumbered", "ipvlan": {"mode": "l2"}}}),
        json!({"interface": {"dhcp": false, "addresses": [], "vrf": null}, "routes": []}),
        json!({"interface": null, "ethtool": {"features": {"gro": false}}}),
    ]
}

/// A claim and a template with such a configuration, among others.
fn objects(parameters: &Value) -> [Value; 2] {
    let foreign = json!({"routes": [{"destination": "0.0.0.0/0"}]});
    let config = |driver: &str, parameters: &Value| json!({"opaque": {"driver": driver, "parameters": parameters}});
    let spec = json!({"devices": {
        "requests": [{"name": "nic", "exactly": {"deviceClassName": "dranet.net"}}],
        "config": [config("gpu.nvidia.com", &foreign), config("dra.net", parameters)],
    }});
    let object = |kind: &str, spec: Value| {
        json!({
            "apiVersion": "resource.k8s.io/v1",
            "kind": kind,
            "metadata": {"generateName": "claim-"},
            "spec": spec,
        })
    };
    [object("ResourceClaim", spec.clone()), object("ResourceClaimTemplate", json!({"spec": spec}))]
}

async fn create(client: &Client, scope: &Scope, object: &Value) -> kube::Result<()> {
    let path = match object["kind"].as_str() {
        Some("ResourceClaim") => "resourceclaims",
        _ => "resourceclaimtemplates",
    };
    let url = format!("/apis/resource.k8s.io/v1/namespaces/{}/{path}", scope.namespace());
    let request = http::Request::post(url).header("content-type", "application/json");
    let request = request.body(object.to_string().into_bytes()).map_err(Error::HttpError)?;
    client.request::<DynamicObject>(request).await.map(drop)
}

/// A policy takes effect some time after it is written, and the one of an earlier test some time
/// after it is deleted. Waits for a denial of the one that allows `namespaces`.
async fn in_force(client: &Client, scope: &Scope, namespaces: &str) -> anyhow::Result<()> {
    let [claim, _] = objects(&json!({"routes": [{}]}));
    eventually(SOON, async || {
        let answer = create(client, scope, &claim).await;
        let is_named = matches!(
            &answer,
            Err(Error::Api(status)) if status.message.contains(&format!("may ({namespaces}"))
        );
        Ok(Check::that(is_named, || format!("it is not in force: {answer:?}")))
    })
    .await
}

/// A client with the default role `edit` in the scope's namespace.
async fn editor(plane: &ControlPlane, scope: &Scope) -> anyhow::Result<Client> {
    scope.apply_yaml(EDITOR).await?;
    let mut file = Kubeconfig::read_from(plane.kubeconfig())?;
    for user in &mut file.auth_infos {
        if let Some(user) = &mut user.auth_info {
            user.impersonate = Some("editor".to_owned());
            user.impersonate_groups = Some(vec!["system:authenticated".to_owned()]);
        }
    }
    let config = kube::Config::from_custom_kubeconfig(file, &KubeConfigOptions::default()).await?;
    Ok(Client::try_from(config)?)
}
