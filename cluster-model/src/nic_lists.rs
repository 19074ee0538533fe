//! Environment variables that list NICs. A list of one node's NICs is wrong on another node, and with other NICs
//! of the same node.
//!
//! The node driver sets some of them by CDI. Runtimes apply CDI after the variables of image and pod, and replace
//! those with the same name (containerd: `platformSpecOpts` in `internal/cri/server/container_create.go`; CRI-O:
//! `SpecInjectCDIDevices` in `server/container_create.go`). What a command sets is set later, and stays.

use serde_json::Value;

/// Lists of NICs.
const LISTS: [&str; 4] =
    ["NCCL_IB_HCA", "UCX_NET_DEVICES", "NVSHMEM_HCA_LIST", "NVSHMEM_HCA_PE_MAPPING"];
/// Those which the driver sets in all containers with RDMA NICs.
const SET_BY_DRIVER: [&str; 2] = ["NCCL_IB_HCA", "UCX_NET_DEVICES"];
/// What a list may have instead of a NIC, whose names begin so.
const PREFIXES: [&str; 2] = ["mlx4", "mlx5"];

/// A list of NICs that a container sets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NicList {
    /// The variable.
    pub variable: &'static str,
    /// Its value.
    pub value: String,
    /// Whether the command sets it.
    pub in_command: bool,
}

impl NicList {
    /// The lists in a container's environment, then those in its command, as `mpirun -x NCCL_IB_HCA=…` has them.
    pub fn of(container: &Value) -> Vec<Self> {
        let variables = container["env"].as_array().into_iter().flatten();
        let own = variables.filter_map(|variable| {
            let value = variable["value"].as_str().unwrap_or("…").to_owned();
            Some(Self { variable: list(variable["name"].as_str()?)?, value, in_command: false })
        });
        let words = ["command", "args"].map(|field| &container[field]);
        let words = words.into_iter().filter_map(Value::as_array).flatten();
        own.chain(words.filter_map(Value::as_str).flat_map(of_word)).collect()
    }

    /// Whether it names NICs, not only how their names begin.
    pub fn names_nics(&self) -> bool {
        let items = self.value.split(',').map(|item| item.trim_start_matches(['^', '=']));
        let mut names = items.filter(|item| !item.starts_with('$') && !PREFIXES.contains(item));
        names.any(|name| name.contains(|letter: char| letter.is_ascii_digit()))
    }

    /// Whether the driver sets the variable instead.
    pub fn is_replaced(&self) -> bool {
        !self.in_command && SET_BY_DRIVER.contains(&self.variable)
    }
}

/// The variable with this name, if it is a list of NICs.
pub fn list(name: &str) -> Option<&'static str> {
    LISTS.into_iter().find(|list| *list == name)
}

/// The lists that a word of a command sets.
fn of_word(word: &str) -> impl Iterator<Item = NicList> {
    LISTS.into_iter().filter_map(move |variable| {
        let (_, after) = word.split_once(&format!("{variable}="))?;
        // Quotes are the shell's.
        let after = after.trim_start_matches(['"', '\'']);
        let value = after.split(|letter| !is_part(letter)).next().unwrap_or_default().to_owned();
        Some(NicList { variable, value, in_command: true })
    })
}

/// Whether a list can have this letter.
fn is_part(letter: char) -> bool {
    letter.is_ascii_alphanumeric() || "_-.:,^=$".contains(letter)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn lists_of_nics_are_found_in_environment_and_command() {
        for (container, expected) in [
            (json!({}), None),
            (json!({ "env": [{ "name": "NCCL_DEBUG", "value": "INFO" }] }), None),
            (
                json!({ "env": [{ "name": "NCCL_IB_HCA", "value": "=mlx5_0,mlx5_1" }] }),
                Some(("=mlx5_0,mlx5_1", true, true)),
            ),
            (
                json!({ "env": [{ "name": "NCCL_IB_HCA", "value": "mlx5" }] }),
                Some(("mlx5", false, true)),
            ),
            (
                json!({ "env": [{ "name": "NVSHMEM_HCA_LIST", "value": "mlx5_0:1" }] }),
                Some(("mlx5_0:1", true, false)),
            ),
            (
                json!({ "command": ["sh", "-c", "export NCCL_IB_HCA='^mlx5_2'; train"] }),
                Some(("^mlx5_2", true, false)),
            ),
            (
                json!({ "command": ["mpirun"], "args": ["-x", "NCCL_IB_HCA=^mlx5_2", "train"] }),
                Some(("^mlx5_2", true, false)),
            ),
            (
                json!({ "args": ["-x UCX_NET_DEVICES=$UCX_NET_DEVICES train"] }),
                Some(("$UCX_NET_DEVICES", false, false)),
            ),
        ] {
            let found = NicList::of(&container);
            let told = found
                .iter()
                .map(|list| (list.value.as_str(), list.names_nics(), list.is_replaced()));
            assert_eq!(told.collect::<Vec<_>>(), Vec::from_iter(expected), "{container}");
        }
    }
}
