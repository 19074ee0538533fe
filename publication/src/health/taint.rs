//! Taints for NICs with problems, as the administrator has chosen them.

use super::problem::Problem;
use k8s_openapi::api::resource::v1::DeviceTaint;
use std::collections::BTreeSet;

/// The effect of each problem.
#[derive(clap::Args, Clone, Copy, Debug, PartialEq, Eq)]
pub struct TaintArgs {
    /// Taint of a NIC while its port is down; an Ethernet port while its interface is set up
    #[arg(long, value_name = "EFFECT", value_enum, default_value_t = TaintEffect::NoSchedule)]
    pub port_down_taint: TaintEffect,
    /// Taint of a NIC while its port keeps going up and down
    #[arg(long, value_name = "EFFECT", value_enum, default_value_t = TaintEffect::NoSchedule)]
    pub port_flapping_taint: TaintEffect,
    /// Taint of a NIC while its port has many errors or loses its link often
    #[arg(long, value_name = "EFFECT", value_enum, default_value_t = TaintEffect::None)]
    pub port_errors_taint: TaintEffect,
    /// Taint of a NIC while its PCIe link has many errors that the hardware corrects
    #[arg(long, value_name = "EFFECT", value_enum, default_value_t = TaintEffect::None)]
    pub pcie_errors_taint: TaintEffect,
    /// Taint of a NIC while its PCIe link runs slower or narrower than both of its ends support
    #[arg(long, value_name = "EFFECT", value_enum, default_value_t = TaintEffect::None)]
    pub link_degraded_taint: TaintEffect,
    /// Taint of a NIC while its RDMA device does not answer the kernel
    #[arg(long, value_name = "EFFECT", value_enum, default_value_t = TaintEffect::NoSchedule)]
    pub unresponsive_taint: TaintEffect,
    /// Taint of a NIC that a pod uses and that has vanished from the machine
    #[arg(long, value_name = "EFFECT", value_enum, default_value_t = TaintEffect::NoSchedule)]
    pub gone_taint: TaintEffect,
}

/// What a taint does.
#[derive(clap::ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub enum TaintEffect {
    /// No taint.
    None,
    /// No new pod gets the NIC.
    NoSchedule,
    /// No new pod gets the NIC, and pods that have it are evicted.
    NoExecute,
}

impl TaintArgs {
    /// The taints of a NIC that has these problems.
    pub fn taints(self, problems: &BTreeSet<Problem>) -> Vec<DeviceTaint> {
        problems
            .iter()
            .filter_map(|problem| {
                let effect = self.effect(*problem).word()?.to_owned();
                Some(DeviceTaint {
                    key: format!("dranet.io/{problem}"),
                    effect,
                    ..DeviceTaint::default()
                })
            })
            .collect()
    }

    fn effect(self, problem: Problem) -> TaintEffect {
        match problem {
            Problem::PortDown => self.port_down_taint,
            Problem::PortFlapping => self.port_flapping_taint,
            Problem::PortErrors => self.port_errors_taint,
            Problem::LinkDegraded => self.link_degraded_taint,
            Problem::PcieErrors => self.pcie_errors_taint,
            Problem::Unresponsive => self.unresponsive_taint,
            Problem::Gone => self.gone_taint,
        }
    }
}

impl Default for TaintArgs {
    fn default() -> Self {
        Self {
            port_down_taint: TaintEffect::NoSchedule,
            port_flapping_taint: TaintEffect::NoSchedule,
            port_errors_taint: TaintEffect::None,
            pcie_errors_taint: TaintEffect::None,
            link_degraded_taint: TaintEffect::None,
            unresponsive_taint: TaintEffect::NoSchedule,
            gone_taint: TaintEffect::NoSchedule,
        }
    }
}

impl TaintEffect {
    /// The effect's name in the API.
    fn word(self) -> Option<&'static str> {
        match self {
            Self::None => None,
            Self::NoSchedule => Some("NoSchedule"),
            Self::NoExecute => Some("NoExecute"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Flags {
        #[command(flatten)]
        taints: TaintArgs,
    }

    fn parsed(flags: &[&str]) -> TaintArgs {
        Flags::parse_from([&["driver"], flags].concat()).taints
    }

    #[test]
    fn each_problem_has_the_effect_that_is_set() {
        assert_eq!(parsed(&[]), TaintArgs::default());
        let all = Problem::ALL.into_iter().collect();
        let text = |args: TaintArgs| {
            let taints = args.taints(&all).into_iter();
            taints.map(|taint| format!("{}:{}", taint.key, taint.effect)).collect::<Vec<_>>()
        };
        assert_eq!(
            text(TaintArgs::default()),
            [
                "dranet.io/port-down:NoSchedule",
                "dranet.io/port-flapping:NoSchedule",
                "dranet.io/unresponsive:NoSchedule",
                "dranet.io/gone:NoSchedule"
            ]
        );
        let flags = [
            "--port-down-taint=none",
            "--port-flapping-taint=no-execute",
            "--link-degraded-taint=no-schedule",
            "--port-errors-taint=no-schedule",
            "--pcie-errors-taint=no-schedule",
            "--unresponsive-taint=none",
            "--gone-taint=no-execute",
        ];
        assert_eq!(
            text(parsed(&flags)),
            [
                "dranet.io/port-flapping:NoExecute",
                "dranet.io/port-errors:NoSchedule",
                "dranet.io/link-degraded:NoSchedule",
                "dranet.io/pcie-errors:NoSchedule",
                "dranet.io/gone:NoExecute"
            ]
        );
        assert!(TaintArgs::default().taints(&BTreeSet::new()).is_empty());
    }
}
