//! Every verb on every resource, with the token of every service account, against the table
//! `rights.txt` of what must be possible. The policies of `deploy` restrict it further.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write,
    sync::Arc,
};

use anyhow::Context;
use futures::{StreamExt, TryStreamExt, stream};
use k8s_openapi::api::authorization::v1::{
    ResourceAttributes, SelfSubjectAccessReview, SelfSubjectAccessReviewSpec,
};
use kube::{Api, Client, api::PostParams};
use tests::{
    ControlPlane, binaries, generated::assert_current, installation::Installation, manifest,
    suite::Test, with_scope,
};

/// The table, below the checkout.
const TABLE: &str = "tests/tests/hostile/rights.txt";
/// An account without roles. The table leaves out what it may do.
const ANYONE: &str = "default";
const ACCOUNTS: [&str; 7] = [
    ANYONE,
    "admission",
    "admission-authority",
    "fabric-controller",
    "node-driver",
    "preemptor",
    "scheduler-ext",
];
/// The namespaces that are tried if a verb is not allowed in all.
const NAMESPACES: [&str; 3] = ["dranet-system", "kube-system", "default"];
const VERBS: [&str; 13] = [
    "get",
    "list",
    "watch",
    "create",
    "update",
    "patch",
    "delete",
    "deletecollection",
    "bind",
    "escalate",
    "impersonate",
    "associated-node:patch",
    "arbitrary-node:patch",
];
/// The number of parallel requests.
const TOGETHER: usize = 64;

pub(crate) fn tests() -> Vec<Test> {
    tests::attempts![tokens_can_do_what_the_table_says]
}

async fn tokens_can_do_what_the_table_says(plane: Arc<ControlPlane>) -> anyhow::Result<String> {
    with_scope(plane.client(), async |scope| {
        let installation = Installation::install(&plane, scope).await?;
        installation.apply("components/preemption/preemptor-rbac.yaml").await?;
        let mut resources = served(&plane.client()).await?;
        let named = named_in_roles(&mut resources)?;
        let mut common = BTreeSet::new();
        let (mut text, mut tried) = (String::new(), 0);
        for account in ACCOUNTS {
            let client = installation.client_as(account).await?;
            let allowed = Tried { client: &client, resources: &resources, named: &named };
            let (allowed, count) = allowed.allowed().await?;
            tried += count;
            if account == ANYONE {
                common = allowed;
            } else {
                let own: BTreeSet<_> = allowed.difference(&common).cloned().collect();
                write(&mut text, account, &own)?;
            }
        }
        assert_current(TABLE, &text)?;
        Ok(format!("{tried} attempts; allowed is exactly what the table lists"))
    })
    .await
}

/// A resource with its part, as `GROUP/RESOURCE` or `GROUP/RESOURCE/PART`.
type Resource = (String, String, Option<String>);

/// Every resource that the API server serves, in any version.
async fn served(client: &Client) -> anyhow::Result<BTreeSet<Resource>> {
    let mut all = BTreeSet::new();
    let mut add = |group: &str, name: &str| {
        let (name, part) = match name.split_once('/') {
            Some((name, part)) => (name, Some(part.to_owned())),
            None => (name, None),
        };
        all.insert((group.to_owned(), name.to_owned(), part));
    };
    for version in client.list_core_api_versions().await?.versions {
        for resource in client.list_core_api_resources(&version).await?.resources {
            add("", &resource.name);
        }
    }
    for group in client.list_api_groups().await?.groups {
        for version in group.versions {
            let there = client.list_api_group_resources(&version.group_version).await?;
            there.resources.iter().for_each(|resource| add(&group.name, &resource.name));
        }
    }
    Ok(all)
}

/// The names that roles of `deploy` limit a resource to. Adds the resources of the roles, which an
/// older API server may not serve.
fn named_in_roles(
    resources: &mut BTreeSet<Resource>,
) -> anyhow::Result<BTreeMap<Resource, BTreeSet<String>>> {
    let mut named: BTreeMap<Resource, BTreeSet<String>> = BTreeMap::new();
    for file in [
        "manifests/admission-rbac.yaml",
        "manifests/admission-authority.yaml",
        "manifests/fabric-controller-rbac.yaml",
        "manifests/node-driver-rbac.yaml",
        "components/preemption/preemptor-rbac.yaml",
        "components/kubeadm-scheduler/scheduler-ext-rbac.yaml",
    ] {
        for object in manifest::read(&binaries::in_tests("../deploy").join(file))? {
            for rule in object.data["rules"].as_array().into_iter().flatten() {
                let list = |key: &str| {
                    let list = rule[key].as_array().into_iter().flatten();
                    list.filter_map(|it| Some(it.as_str()?.to_owned())).collect::<Vec<_>>()
                };
                for group in list("apiGroups") {
                    for resource in list("resources") {
                        let (name, part) = match resource.split_once('/') {
                            Some((name, part)) => (name.to_owned(), Some(part.to_owned())),
                            None => (resource, None),
                        };
                        let resource = (group.clone(), name, part);
                        resources.insert(resource.clone());
                        named.entry(resource).or_default().extend(list("resourceNames"));
                    }
                }
            }
        }
    }
    Ok(named)
}

/// What is tried with one token.
struct Tried<'a> {
    client: &'a Client,
    resources: &'a BTreeSet<Resource>,
    named: &'a BTreeMap<Resource, BTreeSet<String>>,
}

/// Where, what and by which name, and the verb.
type Right = (String, String);

impl Tried<'_> {
    /// What is allowed, and the number of attempts.
    async fn allowed(&self) -> anyhow::Result<(BTreeSet<Right>, usize)> {
        let none = BTreeSet::new();
        let all = self.resources.iter().flat_map(|resource| {
            let names = self.named.get(resource).unwrap_or(&none);
            let names = std::iter::once(None).chain(names.iter().map(|name| Some(name.as_str())));
            names.flat_map(move |name| VERBS.map(|verb| (resource, name, verb)))
        });
        let found: Vec<(Vec<Right>, usize)> = stream::iter(all)
            .map(|(resource, name, verb)| self.places(resource, name, verb))
            .buffer_unordered(TOGETHER)
            .try_collect()
            .await?;
        let tried = found.iter().map(|(_, tried)| tried).sum();
        Ok((found.into_iter().flat_map(|(rights, _)| rights).collect(), tried))
    }

    /// The places where a verb is allowed, and the number of attempts.
    async fn places(
        &self,
        resource: &Resource,
        name: Option<&str>,
        verb: &str,
    ) -> anyhow::Result<(Vec<Right>, usize)> {
        let (group, kind, part) = resource;
        let text = |place: &str| {
            let part = part.as_ref().map(|part| format!("/{part}")).unwrap_or_default();
            let name = name.map(|name| format!(" {name}")).unwrap_or_default();
            (format!("{place} {group}/{kind}{part}{name}"), verb.to_owned())
        };
        if self.may(resource, name, verb, None).await? {
            return Ok((vec![text("everywhere")], 1));
        }
        let mut places = Vec::new();
        for namespace in NAMESPACES {
            if self.may(resource, name, verb, Some(namespace)).await? {
                places.push(text(namespace));
            }
        }
        Ok((places, 1 + NAMESPACES.len()))
    }

    async fn may(
        &self,
        (group, kind, part): &Resource,
        name: Option<&str>,
        verb: &str,
        namespace: Option<&str>,
    ) -> anyhow::Result<bool> {
        let attributes = ResourceAttributes {
            group: Some(group.clone()),
            resource: Some(kind.clone()),
            subresource: part.clone(),
            name: name.map(str::to_owned),
            namespace: namespace.map(str::to_owned),
            verb: Some(verb.to_owned()),
            ..ResourceAttributes::default()
        };
        let review = SelfSubjectAccessReview {
            spec: SelfSubjectAccessReviewSpec {
                resource_attributes: Some(attributes),
                ..SelfSubjectAccessReviewSpec::default()
            },
            ..SelfSubjectAccessReview::default()
        };
        let api: Api<SelfSubjectAccessReview> = Api::all(self.client.clone());
        let answer = api.create(&PostParams::default(), &review).await?;
        Ok(answer.status.context("a review has an answer")?.allowed)
    }
}

/// One line for each place and resource, with its verbs.
fn write(text: &mut String, account: &str, rights: &BTreeSet<Right>) -> anyhow::Result<()> {
    let mut lines: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for (place, verb) in rights {
        lines.entry(place).or_default().push(verb);
    }
    writeln!(text, "\n{account}")?;
    for (place, verbs) in lines {
        writeln!(text, "  {place}: {}", verbs.join(" "))?;
    }
    Ok(())
}
