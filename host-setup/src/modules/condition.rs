//! The NodeTopology condition about kernel modules. Pure.

use super::{ModulesReport, Outcome};
use topology_graph::HostCondition;

/// Condition type: whether all kernel modules that the init container was asked for are
/// available.
pub const KERNEL_MODULES: &str = "KernelModules";

/// The condition that this report means.
pub(crate) fn condition(report: &ModulesReport) -> HostCondition {
    let first = report.lacking().next();
    let lines: Vec<_> = report.modules.iter().map(ToString::to_string).collect();
    HostCondition {
        kind: KERNEL_MODULES,
        holds: first.is_none(),
        reason: first.map_or("AllThere", |module| word(module.outcome)),
        message: lines.join("; "),
        entries: Vec::new(),
    }
}

fn word(outcome: Outcome) -> &'static str {
    match outcome {
        Outcome::Loaded => "Loaded",
        Outcome::AlreadyLoaded => "AlreadyLoaded",
        Outcome::BuiltIn => "BuiltIn",
        Outcome::NotNeeded => "NotNeeded",
        Outcome::Waiting => "Waiting",
        Outcome::Absent => "Absent",
        Outcome::Forbidden => "Forbidden",
        Outcome::Failed => "Failed",
    }
}

#[cfg(test)]
mod tests {
    use super::super::ModuleReport;
    use super::*;

    #[test]
    fn the_first_missing_module_is_the_reason() {
        let module = |name: &str, outcome, detail: &str| ModuleReport {
            name: name.to_owned(),
            outcome,
            detail: detail.to_owned(),
        };
        let report = |modules| {
            let it = condition(&ModulesReport { kernel: "6.8.0".to_owned(), modules });
            format!("{} {} {}: {}", it.kind, it.holds, it.reason, it.message)
        };
        let well = module("ib_umad", Outcome::Loaded, "with ib_core");
        assert_eq!(
            report(vec![well.clone()]),
            "KernelModules true AllThere: ib_umad loaded: with ib_core"
        );
        let lacking = module("irdma", Outcome::Absent, "no such module in /lib/modules/6.8.0");
        assert_eq!(
            report(vec![well, lacking]),
            "KernelModules false Absent: ib_umad loaded: with ib_core; irdma is absent: no such \
              module in /lib/modules/6.8.0"
        );
    }
}
