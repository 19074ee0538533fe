//! A plan for the present nodes, and how remembered machines are added to it.

use super::among::Among;
use super::extended::Extendable;
use super::{Plan, Policy, as_read};
use crate::intent::Intent;

/// A plan, and what is needed to add remembered machines.
pub(super) struct Decided<'a> {
    pub(super) plan: Plan,
    /// The intent as it was planned.
    pub(super) intent: Intent,
    pub(super) rest: Rest<'a>,
    /// True if the plan is for a group, since a claim in pairs would be too large.
    pub(super) is_instead_of_pairs: bool,
}

/// The remembered machines that a plan leaves out.
pub(super) enum Rest<'a> {
    /// There are none.
    None,
    /// A plan with them is used if its claim is the same.
    SameClaim,
    /// A plan with them is used if it promises the same on each present machine.
    SamePromise,
    /// They are added to the claim one by one.
    Added(Box<Extendable<'a>>),
}

impl Rest<'_> {
    /// Returns true if another plan, with the remembered machines, can be used instead.
    fn accepts(&self, plan: &Plan, other: &Plan) -> bool {
        match self {
            Self::None | Self::Added(_) => false,
            Self::SameClaim => other.claim == plan.claim,
            Self::SamePromise => plan.promises_the_same(other),
        }
    }
}

impl<'a> Decided<'a> {
    /// A plan for the intent as it was read.
    pub(super) fn new(plan: Plan, intent: &Intent, rest: Rest<'a>) -> Self {
        Self { plan, rest, intent: intent.clone(), is_instead_of_pairs: false }
    }

    /// The plan with remembered machines, as far as present ones lose nothing.
    pub(super) fn with_remembered(self, all: &Among<'a>, policy: &Policy) -> Plan {
        let Self { plan, intent, rest, is_instead_of_pairs } = self;
        let plan = match rest {
            Rest::None => plan,
            Rest::SameClaim | Rest::SamePromise => match as_read(&intent, all, policy) {
                Ok(Self { plan: other, .. }) if rest.accepts(&plan, &other) => other,
                Ok(_) | Err(_) => plan,
            },
            Rest::Added(extendable) => extendable.with_remembered(plan, all, policy),
        };
        if !is_instead_of_pairs {
            return plan;
        }
        let why = format!("{}; a claim in pairs would be too large", plan.why);
        Plan { why, ..plan }
    }
}

impl Plan {
    /// Returns true if another plan promises the same on each machine of this one.
    fn promises_the_same(&self, other: &Self) -> bool {
        self.join == other.join
            && self.rails == other.rails
            && self.machines.iter().all(|machine| {
                let mut same = other.machines.iter().filter(|it| it.nodes == machine.nodes);
                same.any(|it| it == machine)
            })
    }
}
